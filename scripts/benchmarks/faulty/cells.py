"""Cells (architecture, fault, kind of traffic) from a seed, and the file of finished cells.

Owns: the list of cells, their order and seeds, the form of the file. Must not know: models, brickd. Invariants: the
same seed draws the same cells in the same order; a cell's seed depends only on the run's seed and the cell; a file is
continued only by the same version of brickd, under its original limits. Files of this form are also used for other
lists of cells.
"""

from __future__ import annotations

import fnmatch
import json
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.faulty.frozen import HEALTHY, WANTED

ARCHITECTURES = ("llama_fp32", "llama_bf16", "llama_int8", "mixtral", "vit", "unet", "bert")
EQUAL, UNIQUE = "equal", "unique"
_QUICK = (("llama_fp32", "weight_bit", EQUAL), ("llama_bf16", "rare_nan", EQUAL), ("bert", HEALTHY, UNIQUE))
# a fault that is tested with one architecture only, because it does not depend on the model and its cell takes as long
# as ten others
_LONG = "leak"
_INT8 = "llama_int8"
# faults that an int8 model cannot have: a quantized operator refuses NaN, and the server ends
_NOT_INT8 = ("weight_bit", "rare_nan")


@dataclass(frozen=True)
class Cell:
    """One fleet and its fault.

    Attributes:
        architecture: one of ARCHITECTURES.
        fault: one of WANTED, or HEALTHY.
        traffic: equal prompts for all workers, or different prompts.
        seed: selects the worker, the place and the prompts.
    """

    architecture: str
    fault: str
    traffic: str
    seed: int

    @property
    def key(self) -> str:
        """The cell's name in files and options."""
        return f"{self.architecture}/{self.fault}/{self.traffic}"


def drawn(seed: int, *, quick: bool = False, only: str = "*") -> list[Cell]:
    """Return the cells of a run in the order of execution; `only` is a pattern of their keys."""
    kinds = list(_QUICK if quick else _every())
    random.Random(seed).shuffle(kinds)
    cells = [Cell(*kind, random.Random(f"{seed} {'/'.join(kind)}").getrandbits(32)) for kind in kinds]
    return [cell for cell in cells if fnmatch.fnmatchcase(cell.key, only)]


def _every() -> Iterable[tuple[str, str, str]]:
    for architecture in ARCHITECTURES:
        for fault in WANTED:
            if fault == _LONG and architecture != ARCHITECTURES[0]:
                continue
            if fault in (_NOT_INT8 if architecture == _INT8 else ("int8_weight",)):
                continue
            yield architecture, fault, EQUAL
        yield architecture, HEALTHY, EQUAL
        yield architecture, HEALTHY, UNIQUE
    yield ARCHITECTURES[0], "eps", UNIQUE  # with unique prompts, brickd must report the service as unproven


class FinishedCells:
    """A file with a line about the run, and one for each finished cell."""

    def __init__(self, file: Path, seed: int, *, quick: bool, results: dict[str, dict[str, Any]]) -> None:
        self._file = file
        self.seed, self.quick, self.results = seed, quick, results

    @classmethod
    def begun(cls, file: Path, seed: int, *, quick: bool, limits: Mapping[str, Any]) -> FinishedCells:
        """Begin a new file. An existing file is replaced."""
        file.parent.mkdir(parents=True, exist_ok=True)
        head = {"brickd": version("brickd"), "seed": seed, "quick": quick, "limits": limits}
        file.write_text(json.dumps(head) + "\n", encoding="utf-8")
        return cls(file, seed, quick=quick, results={})

    @classmethod
    def resumed(
        cls, file: Path, seed: int | None, *, quick: bool, limits: Mapping[str, Any], has: str
    ) -> FinishedCells:
        """Continue a file; drop an incomplete last line.

        If a result lacks the key `has`, an older version made the file, and the file is refused.

        Raises:
            RuntimeError: the file does not exist, or belongs to another run.
        """
        if not file.exists():
            raise RuntimeError(f"{file} does not exist: nothing to resume")
        content = file.read_bytes()
        whole = content[: content.rfind(b"\n") + 1]
        head, *lines = map(json.loads, whole.splitlines() or [b"{}"])
        if head.get("brickd") != version("brickd"):
            raise RuntimeError(
                f"{file} is of brickd {head.get('brickd', '(version not known)')}, this is {version('brickd')}: run"
                " without --resume"
            )
        if head.get("limits") != limits:
            raise RuntimeError(f"{file} was begun under other limits: run without --resume")
        if head["quick"] != quick or seed not in (None, head["seed"]):
            raise RuntimeError(f"{file} is of seed {head['seed']}{' with --quick' if head['quick'] else ''}")
        for each in lines:
            if has not in each:
                raise RuntimeError(f"{file}: the result of {each['cell']} has no {has}: run without --resume")
        if whole != content:
            file.write_bytes(whole)
        return cls(file, head["seed"], quick=quick, results={each["cell"]: each for each in lines})

    def add(self, result: dict[str, Any]) -> None:
        """Save the result of a cell; a skipped cell is tried again by the next run."""
        if result.get("skipped"):
            return
        self.results[result["cell"]] = result
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")
