"""A pytest plugin that records which mutants each test reaches, and how long the test takes.

Several runs share the tests. Each run takes every Nth test file, and has a file of marks. All processes of its tests
mark in this file the mutants that they reach. At the end, `<file>.json` has the mutants, the seconds and the result of
each test. A mutant that an import reaches counts as reached by each test.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Generator
from pathlib import Path

import pytest

_FOLDER, _COUNT = Path(os.environ["MUTANTS_FOLDER"]), int(os.environ["MUTANTS_COUNT"])
_SHARE, _SHARES = map(int, os.environ.get("MUTANTS_SHARE", "0/1").split("/"))
_MARKS = _FOLDER / f"marks-{_SHARE}"
_MARKS.write_bytes(bytes(_COUNT))
# This must be set before brickd is imported.
os.environ["MUTANTS_REACHED"] = str(_MARKS)
_found: dict[str, dict[str, object]] = {}
_failed: set[str] = set()
_skipped: set[str] = set()
_imported: set[int] = set()  # mutants that imports reached before the first test: each test may depend on these


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Record the mutants reached by the imports of all test files."""
    try:
        return (yield)
    finally:
        _imported.update(_marked())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of this share."""
    files = list(dict.fromkeys(item.path for item in items))
    here = set(files[_SHARE::_SHARES])
    items[:] = [item for item in items if item.path in here]


def _marked() -> set[int]:
    return {number for number, mark in enumerate(_MARKS.read_bytes()) if mark}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Record the mutants reached by a test."""
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
    """Record failed tests and skipped tests. If a test fails even without a mutant, its failure says nothing about a
    mutant.
    """
    if report.failed:
        _failed.add(report.nodeid)
    elif report.skipped:
        _skipped.add(report.nodeid)


def pytest_sessionfinish() -> None:
    """Write the results for the parent."""
    _MARKS.with_suffix(".json").write_text(json.dumps(_found))
