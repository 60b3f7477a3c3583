"""What a program recorded, as the reader in the test's own process sees it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable

from conftest import Worker, reading, readings

from brickd import _reader
from brickd.fold import Fold
from brickd.ledger import ledger_of
from brickd.segment import Path, Reading

Start = Callable[..., Worker]


def summaries(of: Reading) -> dict[tuple[str, ...], _reader.Row]:
    """Each path's numbers by the names that lead to it; a layer is written behind its name."""
    fold: Fold[tuple[str, ...]] = Fold()

    def names(path: Path, above: int) -> tuple[str, ...]:
        name = of.name(path.name) + (f"[{path.layer}]" if path.layer >= 0 else "")
        return (*(fold.keys[above] if above >= 0 else ()), name)

    fold.add(of, fold.places(of, names))
    return {key: fold.row(row) for row, key in enumerate(fold.keys) if fold.row(row)["count"]}


def spans(of: Reading) -> dict[str, int]:
    return {term: n for term, n in ledger_of(of).document()["spans"].items() if n}


def record(worker: Start, prefix: str, program: str, **environment: str) -> Reading:
    """Run a program, read its segment while it pauses at the end, see it end well."""
    process = worker(textwrap.dedent(program) + "\npause()\n", **environment)
    process.paused()
    result = reading(prefix)
    process.go()
    assert process.end() == 0
    assert readings(prefix) == [], "a process that ended cleanly removes its segment"
    return result


def counts(of: Reading) -> dict[tuple[str, ...], int]:
    """How many spans each path has."""
    return {path: row["count"] for path, row in summaries(of).items()}
