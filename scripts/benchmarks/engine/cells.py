"""Draws the trials of `scripts/bench evidence` from a seed: for each, an architecture, a fault or none, and traffic.

Owns: the list of trials, their order and their seeds, and what the seed of a trial decides. Must not know: models,
brickd. Invariant: the same seed draws the same trials; a trial's seed depends only on the run's seed and on the trial.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator
from dataclasses import replace
from random import Random

from benchmarks.engine import frozen
from benchmarks.engine.scheduler import Settings
from benchmarks.engine.traffic import SYSTEM_LENGTHS
from benchmarks.faulty.cells import Cell
from benchmarks.faulty.frozen import HEALTHY

DENSE = {"fp32": "llama_fp32", "bf16": "llama_bf16"}
# A trial without a fault. It serves the same requests with and without brickd, and compares the outputs bit by bit. It
# also compares the rows of different replicas.
BITWISE = "bitwise"
EXPERTS = {"fp32": "mixtral", "bf16": "mixtral_bf16"}
_QUICK = (
    ("llama_fp32", "late_channel", "000"),
    ("mixtral", "one_weight", "001"),
    ("mixtral_bf16", "swapped_expert", "000"),
    ("llama_bf16", "eps", "000"),
    ("llama_fp32", HEALTHY, "000"),
    ("llama_fp32", HEALTHY, "004"),
    ("llama_fp32", BITWISE, "000"),
    ("mixtral_bf16", BITWISE, "001"),
)
_SEEDS = 1 << 24


def drawn(seed: int, *, quick: bool = False, only: str = "*") -> list[Cell]:
    """The trials of a run, in the order in which they run. `only` is a pattern for their keys."""
    kinds = list(_QUICK if quick else _every())
    Random(seed).shuffle(kinds)
    cells = [Cell(*kind, Random(f"{seed} {'/'.join(kind)}").getrandbits(32)) for kind in kinds]
    return [cell for cell in cells if fnmatch.fnmatchcase(cell.key, only)]


def _every() -> Iterator[tuple[str, str, str]]:
    for dtype in frozen.DTYPES:
        for fault in (*frozen.FAULTS, *frozen.LATER):
            for run in range(frozen.RUNS):
                dense = run % 2 == 0 and fault != "swapped_expert"
                yield (DENSE if dense else EXPERTS)[dtype], fault, f"{run:03}"
        for run in range(frozen.CLEAN_CELLS // len(frozen.DTYPES)):
            yield (EXPERTS if run % 2 else DENSE)[dtype], HEALTHY, f"{run:03}"
        for run in range(frozen.BITWISE_RUNS):
            yield (EXPERTS if run % 2 else DENSE)[dtype], BITWISE, f"{run:03}"


def dtype(architecture: str) -> str:
    """The dtype of an architecture."""
    return next(name for name in frozen.DTYPES if architecture in (DENSE[name], EXPERTS[name]))


def settings(cell: Cell, seed: int) -> Settings:
    """What the replicas of a trial of a run with this seed serve.

    The trials without a fault serve one model of each architecture, so that their recordings are comparable. They take
    turns with all batches and threads.
    """
    random = Random(f"settings {cell.seed}")
    own = Settings(
        cell.architecture,
        cell.seed % _SEEDS,
        system=random.choice(SYSTEM_LENGTHS),
        batch=random.choice(frozen.BATCHES),
        chunk=random.choice((16, 32, 64)),
        threads=random.choice(frozen.THREADS),
    )
    if cell.fault != HEALTHY:
        return own
    number = int(cell.traffic) // 2  # each architecture has every second number
    return replace(
        own,
        seed=Random(f"weights {seed} {cell.architecture}").randrange(_SEEDS),
        batch=frozen.BATCHES[number % len(frozen.BATCHES)],
        threads=frozen.THREADS[number % len(frozen.THREADS)],
        traffic=cell.seed % _SEEDS,
    )
