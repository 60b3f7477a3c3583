"""Removed segments and the file of their records, for the tests of writers and readers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import forge
import pytest
from conftest import SHM, Worker
from faults import PRIVATE, Compile, native, program

from brickd.shm import _reader
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import find

# Builds a writer in which dead segments may take no part of /dev/shm, so a new worker removes all of them.
GREEDY = ("-DBRICK_TEST_POINTS", "-DBRICK_DEAD_SHARE=UINT64_MAX")
RECORD = _reader.REMOVED_BYTES
FULL = _reader.REMOVED_MAX * RECORD


def file_of(prefix: str) -> Path:
    return SHM / f"{prefix}removed-{os.geteuid()}"


def records(prefix: str) -> list[_reader.Removed]:
    """Return the records of removed segments in a test; assert that none is damaged."""
    if not file_of(prefix).exists():
        return []
    found = _reader.removed(file_of(prefix).read_bytes())
    whole = [each for each in found if each is not None]
    assert len(whole) == len(found)
    return whole


def sums(of: Reading) -> dict[str, Any]:
    """Return the expected fields of a record of this segment."""
    lanes = [lane for _, lane, _ in of.lanes]
    same = ("begun", "summarized", "open", "abandoned", "nested", "span_attempts", "event_attempts", "marks")
    return {
        **{name: sum(lane[name] for lane in lanes) for name in (*same, "marks_refused")},  # type: ignore[literal-required]
        "rejected": tuple(map(sum, zip(*(lane["rejected"] for lane in lanes), strict=True))),
        "span_dropped": sum(sum(lane["span_dropped"]) for lane in lanes),
        "event_dropped": sum(sum(lane["event_dropped"]) for lane in lanes),
        "no_lane": of.process["no_lane"],
        "took": of.process["took"],
        "uuid": of.header["uuid"],
        "service": of.header["service"],
        "coordinates": of.header["coordinates"][:16],
        "index": of.header["index"],
        "started_ns": of.header["started_ns"],
    }


def _damaged(path: Path) -> None:
    path.write_bytes(bytes(RECORD + 1))
    path.chmod(0o600)


def _full(path: Path) -> None:
    path.touch(0o600)
    os.truncate(path, FULL)


def _link(path: Path) -> None:
    elsewhere = path.with_name(path.name.replace("removed", "elsewhere-removed"))
    elsewhere.touch(0o600)
    path.symlink_to(elsewhere)


def _two_links(path: Path) -> None:
    path.touch(0o600)
    path.with_name(path.name.replace("removed", "too-removed")).hardlink_to(path)


def _of_a_stranger(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to give a file away")
    path.touch(0o600)
    os.chown(path, 65534, 65534)


REFUSED = {
    "a link": _link,
    "a FIFO": lambda path: os.mkfifo(path, 0o600),
    "a folder": lambda path: path.mkdir(),
    "writable by its group": lambda path: (path.touch(), path.chmod(0o620)),
    "readable by others": lambda path: (path.touch(), path.chmod(0o604)),
    "two links": _two_links,
    "of another user": _of_a_stranger,
    "incomplete record": _damaged,
    "full": _full,
}


@contextmanager
def dead(compiled: Compile, prefix: str, *spans: int) -> Iterator[list[str]]:
    """Return the segments of killed workers with these numbers of spans, the oldest first."""
    binary, before, files = program(compiled, "removed", *GREEDY), find(prefix), list[str]()
    with ExitStack() as all_of_them:
        # All workers start before the first one dies, because a new worker would remove dead segments.
        workers = []
        for number in spans:
            workers.append(all_of_them.enter_context(native(binary, str(number), "none", "1")))
            workers[-1].paused()
            files += [file for file in find(prefix) if file not in files + before]
        for age, (file, each) in enumerate(zip(files, workers, strict=True)):
            each.kill()
            os.utime(SHM / file, ns=(age * 10**9, age * 10**9))  # a dead worker does not write any more
        yield files


def newcomer(compiled: Compile, *kill: str) -> Worker:
    with native(program(compiled, "removed", *GREEDY), "0", *(kill or ("none", "1"))) as process:
        if not kill:
            process.paused()
        process.end()
    return process


def dead_image(uuid: bytes, begun: int, **process: int) -> bytes:
    """Return the bytes of a segment whose worker has ended, with this uuid and number of spans."""
    image = bytearray(forge.golden("1.6"))
    forge.put(image, "header", {"uuid": uuid, "service": b"api", "index": 3, "coordinates": b""})
    forge.put(image, "process", {"no_lane": 0, "ended": 1, **process})
    for lane in range(2):
        zero = dict.fromkeys(("open", "abandoned", "nested", "span_attempts", "event_attempts", "event_records"), 0)
        spans = begun if lane == 0 else 0
        forge.put(image, "lane", {**zero, "begun": spans, "summarized": spans, "rejected": (0, 0)}, lane)
        forge.put(image, "lane", {"span_dropped": (0, 0), "event_dropped": (0,) * 16, "marks": 0}, lane)
        forge.put(image, "lane", {"span_head": 0, "event_head": 0}, lane)
    return forge.seal(image)


def record_of(uuid: bytes, begun: int, *, reason: int = _reader.REMOVED_ROOM, **process: int) -> bytes:
    """Return the record of a removed segment, as the reader would append it."""
    with forge.segment_of(dead_image(uuid, begun, **process)) as segment:
        return segment.removed(reason)


def takes_along(file: str, lost: bytes) -> None:
    """Make a worker's segment claim that it continues a lost segment."""
    with (SHM / file).open("r+b", buffering=0) as opened:
        at = forge.place(os.pread(opened.fileno(), forge.PAGE, 0), "process") + forge.field("process", "took")[0]
        os.pwrite(opened.fileno(), lost[:8], at)


# A program that runs with its own /dev/shm. `killed(n, spans)` starts n workers with this number of spans each and
# kills them together. `comes()` starts a worker that records nothing. `seen()` returns the free bytes, the bytes of
# segments, the segments and the records of removed segments.
SMALL = """
def killed(n, spans=1):
    ready, never, children = os.pipe(), os.pipe(), []
    for _ in range(n):
        child = os.fork()
        if child == 0:
            for _ in range(spans):
                with brick.span("b"): pass
            os.write(ready[1], b".")
            os.read(never[0], 1)
        children.append(child)
    for each in children: os.read(ready[0], 1)
    for each in children:
        os.kill(each, 9)
        os.waitpid(each, 0)
def comes(spans=0):
    child = os.fork()
    if child == 0:
        brick.init()
        for _ in range(spans):
            with brick.span("b"): pass
        brick.shutdown()
        os._exit(0)
    os.waitpid(child, 0)
def seen():
    room, files = os.statvfs("/dev/shm"), {each.name: each.stat() for each in os.scandir("/dev/shm")}
    records = [status.st_size // 256 for name, status in files.items() if "removed" in name]
    segments = [status.st_blocks * 512 for name, status in files.items() if "removed" not in name and name != "filler"]
    return room.f_bavail * room.f_frsize, sum(segments), len(segments), sum(records)
def fill():
    with open("/dev/shm/filler", "wb", buffering=0) as filler:
        try:
            while True: filler.write(bytes(4096))
        except OSError: pass
"""


def small(mebibytes: int) -> str:
    return f'{PRIVATE}\nmount(b"tmpfs", b"/dev/shm", b"tmpfs", 0, b"size={mebibytes}m")\n{SMALL}'
