"""What a program recorded, as the reader in the test's own process sees it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from conftest import Worker, reading, readings

from brickd.model.summary_fold import Fold
from brickd.shm import _reader, records
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import CallPath, Reading

Start = Callable[..., Worker]
Site = tuple[str, int, bool]


def summaries(of: Reading) -> dict[tuple[str, ...], _reader.Row]:
    """Each path's numbers by the names that lead to it; a layer is written behind its name."""
    fold: Fold[tuple[str, ...]] = Fold()

    def names(path: CallPath, above: int) -> tuple[str, ...]:
        name = of.name(path.name) + (f"[{path.layer}]" if path.layer >= 0 else "")
        return (*(fold.keys[above] if above >= 0 else ()), name)

    fold.add(of, names)
    return {key: fold.row(row) for row, key in enumerate(fold.keys) if fold.row(row)["count"]}


def spans(of: Reading) -> dict[str, int]:
    return {term: n for term, n in ledger_of(of).document()["spans"].items() if n}


def events(of: Reading) -> list[dict[str, Any]]:
    """What the event rings of a segment hold, lane by lane: each record with the name of its kind; of a start also the
    names that lead to its path."""
    found = []
    with open_segment(of.file) as segment:
        for number, _, _ in of.lanes:
            decoded, others = records.events(segment.ring(number, events=True)[1])
            assert not others
            found += [each | {"kind": records.kind_name(each["kind"])} for each in decoded]
    for each in found:
        if "path" in each:
            each["path"] = _names(of, each["path"])
    return found


def sites(of: Reading) -> list[Site | None]:
    """The kernel, the layer and whether it is off, of each site."""
    with open_segment(of.file) as segment:
        return [None if site is None else (of.name(site[0]), site[1], bool(site[2])) for site in segment.sites()]


def checked(of: Reading) -> list[tuple[Site, dict[str, Any]]]:
    """Each checksum in the event rings, with the site that it is of."""
    known, found = sites(of), []
    for each in events(of):
        site = known[each["site"]]
        assert site is not None
        found.append((site, each))
    return found


def _names(of: Reading, number: int) -> tuple[str, ...]:
    path = of.paths[number]
    assert path is not None
    above = _names(of, path.parent) if path.parent >= 0 else ()
    return (*above, of.name(path.name) + (f"[{path.layer}]" if path.layer >= 0 else ""))


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
