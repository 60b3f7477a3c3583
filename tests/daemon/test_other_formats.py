"""A daemon drains workers of every minor version of the format, older and newer. A segment of another major version is
refused, with the next command.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from forge import MINORS, golden, placed, put, seal

from brickd.base.units import SECOND
from brickd.daemon.collector import Collector
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment import open_segment
from brickd.state.daemon_state import Memory

ROOT = Path(__file__).parent.parent.parent
MAJOR, MINOR = map(int, _reader.FORMAT.split("."))
NEXT = f"{MAJOR}.{MINOR + 1}"


def of_format(version: str) -> bytes:
    """Return a dead worker that has this version of the format.

    For a future version, its content is that of the newest version.
    """
    major, minor = map(int, version.split("."))
    image = bytearray(golden(version if version in MINORS else MINORS[-1]))
    put(image, "header", {"major": major, "minor": minor, "uuid": os.urandom(16)})
    return seal(image)


@pytest.fixture
def loop(prefix: str) -> Iterator[Collector]:
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)
    yield loop
    loop.end(SECOND)


def drained(loop: Collector) -> dict[int, int]:
    """Return the number of begun spans of each drained worker, keyed by the minor version of the worker's format."""
    loop.tick(0)
    readings = [each.segment.read() for each in loop.roster.attached.values()]
    return {each.header["minor"]: ledger_of(each).spans["begun"] for each in readings}


def test_golden_files_header_and_documentation_name_the_format_that_is_written() -> None:
    assert MINORS[-1] == _reader.FORMAT
    title = (ROOT / "agent" / "include" / "brick_shm.h").read_text().partition("\n")[0]
    assert title.endswith(f"version {_reader.FORMAT}.")
    formats = (ROOT / "docs" / "reference" / "formats.md").read_text()
    assert f"32 hexadecimal digits | {_reader.FORMAT} |" in formats
    assert f"\n| {MINOR} | " in formats


@pytest.mark.ci
def test_a_worker_of_each_minor_is_drained_also_of_the_next_one(loop: Collector, prefix: str) -> None:
    versions = (*MINORS, NEXT, f"{MAJOR}.{2**16 - 1}")
    for number, version in enumerate(versions):
        placed(f"{prefix}{number}", of_format(version))
    begun = drained(loop)
    assert sorted(begun) == [int(version.split(".")[1]) for version in versions]
    assert loop.directory.quarantined == {}
    assert begun[MINOR] == begun[MINOR + 1] == begun[2**16 - 1] > 0


@pytest.mark.parametrize("major", [MAJOR - 1, MAJOR + 1])
def test_a_worker_of_another_major_is_refused_with_what_to_install_and_no_other_is(
    loop: Collector, prefix: str, major: int
) -> None:
    placed(f"{prefix}other", of_format(f"{major}.0"))
    placed(f"{prefix}ours", of_format(_reader.FORMAT))
    assert list(drained(loop)) == [MINOR]
    (refused,) = loop.directory.refused().items()
    assert refused[0] == f"{prefix}other"
    assert refused[1].reason == f"format {major}.0, this brickd reads {MAJOR}.x: install a brickd of that version"


@pytest.mark.parametrize("version", [MINORS[0], NEXT])
def test_settings_reach_a_newer_worker_and_not_one_that_lacks_the_fields(prefix: str, version: str) -> None:
    placed(f"{prefix}0", of_format(version))
    with open_segment(f"{prefix}0", os.O_RDWR) as segment:
        segment.command(2, 7, 0b101)
        control = segment.control()
    newer = version == NEXT
    assert (control["flags"], control["fingerprint_rate"]) == (2, 7 if newer else 0)
    assert segment.has_epochs == newer
