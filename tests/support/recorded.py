"""Runs programs that record, and reads their records in the process of the test."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

from conftest import Worker, reading, readings

from brickd.model.summary_fold import SummaryFold
from brickd.shm import _reader, records
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment
from brickd.shm.segment_copy import CallPath, Reading

Start = Callable[..., Worker]
Site = tuple[str, int, bool]


def summaries(of: Reading) -> dict[tuple[str, ...], _reader.Row]:
    """Return the totals of each path, keyed by the names from the root; the layer is appended to a name."""
    fold: SummaryFold[tuple[str, ...]] = SummaryFold()

    def names(path: CallPath, above: int) -> tuple[str, ...]:
        name = of.name(path.name) + (f"[{path.layer}]" if path.layer >= 0 else "")
        return (*(fold.keys[above] if above >= 0 else ()), name)

    fold.add(of, names)
    return {key: fold.row(row) for row, key in enumerate(fold.keys) if fold.row(row)["count"]}


def spans(of: Reading) -> dict[str, int]:
    return {term: n for term, n in ledger_of(of).document()["spans"].items() if n}


def events(of: Reading) -> list[dict[str, Any]]:
    """Return the records in the event rings, lane by lane, each with the name of its kind.

    A deferred start also has the names of its path.
    """
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
    """Return kernel and layer of each site, and whether the site is off."""
    with open_segment(of.file) as segment:
        sites = segment.read().sites
    return [None if site is None else (of.name(site.name), site.layer, site.off) for site in sites]


def checked(of: Reading) -> list[tuple[Site, dict[str, Any]]]:
    """Return each checksum in the event rings, with its site."""
    known, found = sites(of), []
    for each in events(of):
        site = known[each["site"]]
        assert site is not None
        found.append((site, each))
    return found


def is_of_rows(record: dict[str, Any]) -> bool:
    """Return whether a checksum has single rows instead of whole tensors."""
    return bool(record["flags"] & _reader.CHECKED_ROWS)


def _names(of: Reading, number: int) -> tuple[str, ...]:
    path = of.paths[number]
    assert path is not None
    above = _names(of, path.parent) if path.parent >= 0 else ()
    return (*above, of.name(path.name) + (f"[{path.layer}]" if path.layer >= 0 else ""))


def record(worker: Start, prefix: str, program: str, **environment: str) -> Reading:
    """Run a program and read its segment while it pauses at the end; assert that it ends well."""
    process = worker(textwrap.dedent(program) + "\npause()\n", **environment)
    process.paused()
    result = reading(prefix)
    process.go()
    assert process.end() == 0
    assert readings(prefix) == [], "a process that ended cleanly removes its segment"
    return result


def counts(of: Reading) -> dict[tuple[str, ...], int]:
    """Return the number of spans of each path."""
    return {path: row["count"] for path, row in summaries(of).items()}
