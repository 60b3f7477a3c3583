"""An invalid segment affects no other segment, and no control request is lost."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import SHM, reading
from faults import Start
from forge import PAGE, empty, golden, header_value, place, put, seal
from rings import Rings, spans

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.base.units import SECOND
from brickd.daemon.attachment import Attached
from brickd.daemon.collector import Collector
from brickd.query.orders import Wish
from brickd.state.daemon_state import Memory

SERVICE = "wanted"


@contextmanager
def segment(prefix: str, name: str) -> Iterator[Rings]:
    """A file with two lanes and with holes; no worker uses it."""
    page = bytearray(empty(lanes=2, span_slots=16, event_slots=16))
    put(page, "header", {"uuid": os.urandom(16), "service": SERVICE.encode()})
    with (SHM / f"{prefix}{name}").open("w+b", buffering=0) as file:
        file.write(seal(page))
        file.truncate(header_value(page, "size"))
        rings = Rings(file.fileno(), bytes(page))
        rings.put("process", 0, paths=2)
        rings.path(1, 0)
        yield rings


@contextmanager
def written_below(offset: int) -> Iterator[None]:
    """Make writes above this offset fail, as if the file had a hole there and the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (offset, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def quarantined(loop: Collector) -> dict[str, str]:
    return {file: refused.reason for file, refused in loop.directory.refused().items()}


def test_a_segment_with_unwritable_tails_is_quarantined_and_others_are_drained(prefix: str) -> None:
    kept: list[bytes] = []
    loop = Collector(Memory(prefix), kept.append, lambda *_, **__: None, clock=int)
    with segment(prefix, "0") as full, segment(prefix, "1") as healthy:
        full.move(0, "span", 0)
        full.add(1, "span", spans({"path": 1, "sequence": 1}))
        healthy.add(0, "span", spans({"path": 1, "sequence": 1}))
        try:
            with written_below(place(full.page, "consumer", 1)):
                loop.tick(0)
            assert kept, "the round continued to its end"
            assert quarantined(loop) == {f"{prefix}0": "cannot be written: File too large"}
            assert healthy.line(0)["span"][0] == 1
            assert [each.segment.name for each in loop.roster.attached.values()] == [f"{prefix}1"]
        finally:
            loop.end(SECOND)


def test_a_worker_with_an_unwritable_control_page_is_drained(prefix: str) -> None:
    loop = Collector(
        Memory(prefix, wishes={SERVICE: Wish(spans=True)}), lambda _: None, lambda *_, **__: None, clock=int
    )
    with segment(prefix, "0") as first, segment(prefix, "1"):
        first.add(0, "span", spans({"path": 1, "sequence": 1}))
        before = set(Path("/proc/self/fd").iterdir())
        with written_below(PAGE):
            loop.look(0)
        assert len(set(Path("/proc/self/fd").iterdir()) - before) == len(loop.roster.attached) == 2
        loop.tick(1)
        assert [each.drain.spans for each in loop.roster.attached.values()] == [1, 0]
        loop.end(SECOND)


def test_checksum_tails_advance_each_second_and_at_half_a_ring(worker: Start, prefix: str) -> None:
    process = worker(
        """
def check(count):
    for _ in range(count):
        brick.checksum("k", bytes(64))
    pause()
check(1); check(1); check(600)
"""
    )
    process.paused()
    loop = Collector(Memory(prefix), lambda _: None, lambda *_, **__: None, clock=int)

    def waiting(now_ns: int) -> int:
        loop.tick(now_ns)
        ((_, lane, consumer),) = reading(prefix).lanes
        return lane["event_head"] - consumer["event"][0]

    try:
        assert waiting(SECOND) == 0
        process.go()
        process.paused()
        assert waiting(SECOND + 1) > 0
        assert waiting(2 * SECOND) == 0
        process.go()
        process.paused()
        assert waiting(2 * SECOND + 1) == 0
    finally:
        loop.end(3 * SECOND)


def test_a_setting_that_arrives_while_a_worker_is_judged_is_saved_at_once(
    prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (SHM / f"{prefix}0").write_bytes(golden())
    kept: list[bytes] = []
    loop = Collector(Memory(prefix), kept.append, lambda *_, **__: None, clock=int)
    for now_ns in (0, 45 * SECOND // 10):
        loop.tick(now_ns)
    loop.change()
    loop.tick(52 * SECOND // 10)
    before = len(kept)

    def exhaust(_: Attached) -> bool:
        loop.change()  # another thread calls this while it has the lock that the loop needs
        return False

    with monkeypatch.context() as patched:
        patched.setattr(Attached, "exhaust", exhaust)
        loop.tick(56 * SECOND // 10)
    assert len(kept) == before + 1
    loop.end(6 * SECOND)


def test_whoever_is_told_of_a_divergence_finds_it_in_the_state(worker: Start, prefix: str) -> None:
    memory, found = Memory(prefix), list[bool]()

    def log(kind: str, *_: object, **__: object) -> None:
        if kind == "diverged":
            found.append(len(memory.compared.findings) == 1)

    for number in range(2):
        program = f"brick.checksum('gemm', array('f', [{number}]), input=array('f', [1, 2]), step=1)\npause()"
        worker(f"from array import array\n{program}", BRICKD_SERVICE="api", BRICKD_WORKER=str(number)).paused()
    loop = Collector(memory, lambda _: None, log, numerics=Numerics(), clock=int)
    loop.tick(1, look=True)
    loop.keep(1)
    assert found == [True]
