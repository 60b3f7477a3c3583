"""A pytest plugin: which mutants each test comes to, and how long it takes.

Each process of pytest-xdist has a file in which all processes that its tests start mark what they come to. What a test
came to, its seconds and whether it passed go to `<file>.json` at the end. What imports come to counts for each test.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

_FOLDER, _COUNT = Path(os.environ["MUTANTS_FOLDER"]), int(os.environ["MUTANTS_COUNT"])
_MARKS = _FOLDER / f"marks-{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
_MARKS.write_bytes(bytes(_COUNT))
# Before anything of brickd is imported.
os.environ["MUTANTS_REACHED"] = str(_MARKS)
_found: dict[str, dict[str, object]] = {}
_failed: set[str] = set()
_skipped: set[str] = set()
_imported: set[int] = set()  # what runs where modules are imported, before the first test: each test may depend on it


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Note what the imports of all test files come to."""
    try:
        return (yield)
    finally:
        _imported.update(_marked())


def _marked() -> set[int]:
    return {number for number, mark in enumerate(_MARKS.read_bytes()) if mark}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note what a test came to."""
    with _MARKS.open("r+b") as marks:
        marks.write(bytes(_COUNT))
    began = time.monotonic()
    try:
        return (yield)
    finally:
        reached = sorted(_marked() | _imported)
        seconds = time.monotonic() - began
        if item.nodeid not in _skipped:
            _found[item.nodeid] = {"reached": reached, "seconds": seconds, "passed": item.nodeid not in _failed}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note what does not pass: it says nothing about a mutant. What is skipped is not wanted here either."""
    if report.failed:
        _failed.add(report.nodeid)
    elif report.skipped:
        _skipped.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Leave it for the parent."""
    _MARKS.with_suffix(".json").write_text(json.dumps(_found))
