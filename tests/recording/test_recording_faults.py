"""Recordings with a full disk, a dead writer or a concurrent reader, and files that are not recordings."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, Worker
from faults import needs_namespaces
from forge import GOLDEN
from tapes import FIRST, begin, clean, content, memory

from brickd.errors import NotPermitted, RecordingRefused
from brickd.recording.chunks import RingRecords, Title, open_recording, records
from brickd.shm import _reader

Start = Callable[..., Worker]

# A writer in its own process; the body of each chunk contains the number of the chunk.
WRITER = f"""
sys.path.insert(0, {str(ROOT / "tests/support")!r})
from tapes import begin
from brickd.shm import _reader
fd = os.open(os.environ["RECORDING"], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
recording = begin(fd, 1 << 24, ahead_bytes=1 << 16)
def write(many):
    for _ in range(many):
        recording.append(_reader.CHUNK_SNAPSHOT, 0, b"%d" % recording.chunks * 20)
"""


def numbered(chunks: list[bytes]) -> bool:
    """Return whether these are the first chunks, in order."""
    return all(body == b"%d" % number * 20 for number, body in enumerate(chunks))


# ---- the stored recording of version 1.0


def test_a_recording_of_form_1_0_can_always_be_read() -> None:
    """After the release of 1.0, never replace recording-1.0.json. If a change of the format would make old recordings
    unreadable, the format needs a new major version.
    """
    frozen: dict[str, Any] = json.loads((GOLDEN / "recording-1.0.json").read_text())
    bytes_ = bytes.fromhex("".join(frozen["bytes"]))
    appended = [(kind, at_ns, body.encode()) for kind, at_ns, body in frozen["appended"]]
    with memory(bytes_) as fd, open_recording(f"/proc/self/fd/{fd}") as form:
        title = frozen["title"]
        assert form.title == Title(**{**title, "id": bytes.fromhex(title["id"])})
        *others, last = form
        assert clean(form.end)
        assert list(form.end.refused) == frozen["refused"]
    assert [(each.kind, each.at_ns, each.body) for each in others] == appended
    assert last.kind == _reader.CHUNK_RECORDS
    seen = records(last.body)
    assert seen._replace(slots=b"") == RingRecords(**{**frozen["records"], "inside": 0, "slots": b""})
    assert len(seen.slots) // 64 == frozen["records"]["slots"]
    with memory() as fd:
        recording = begin(fd, number=title["number"])
        for chunk in appended:
            recording.append(*chunk)
        # All fields that format 1.1 added are zero; only the minor version in the title differs.
        assert content(fd)[FIRST : last.offset] == bytes_[FIRST : last.offset]


@pytest.mark.parametrize("body", [b"", bytes(63), bytes(8) + b"\2" + bytes(55)])
def test_an_invalid_body_of_records_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"expected at least 64|slots of ring 2, expected 0 or 1"):
        records(body)


# ---- files that are not recordings


def test_a_file_that_is_not_a_recording_is_refused_with_its_type(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "round").symlink_to("round")
    (tmp_path / "text").write_text("workers: 8\n")
    for name, reason in {
        "fifo": "is not a recording: its mode is prw-r--r--, expected a regular file",
        ".": "is not a recording: its mode is drwx",
        "round": "cannot be opened: Too many levels of symbolic links",
        "nothing": "cannot be opened: No such file or directory",
        "with\0zero": "cannot be opened: embedded null byte",
        "text": "is not a recording of brickd: it begins with 3a7372656b726f77, expected",
    }.items():
        with pytest.raises(RecordingRefused) as refused:
            open_recording(str(tmp_path / name))
        assert refused.value.path == str(tmp_path / name)
        assert refused.value.reason.startswith(reason)
        assert str(refused.value) == f"{refused.value.path}: {refused.value.reason}"
    with pytest.raises(RecordingRefused, match=r"/dev/zero: is not a recording: its mode is crw"):
        open_recording("/dev/zero")


@pytest.mark.ci
def test_a_recording_of_another_user_is_not_permitted(tmp_path: Path, nobody: list[str]) -> None:
    path = Path("/tmp") / f"brickd-{os.getpid()}-theirs.brick"
    path.write_bytes(b"")
    path.chmod(stat.S_IRUSR)
    program = f"from brickd.recording.chunks import open_recording; open_recording({str(path)!r})"
    try:
        done = subprocess.run([*nobody, sys.executable, "-P", "-c", program], capture_output=True, check=False)
    finally:
        path.unlink()
    assert NotPermitted.__name__.encode() in done.stderr


# ---- processes


@pytest.mark.ci
def test_everything_written_by_a_killed_writer_is_read(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "F.brick"
    process = worker(
        WRITER
        + """
while True:
    write(50)
    report(recording.chunks)
""",
        python=("-P",),
        RECORDING=str(path),
    )
    least = max(process.next_report() for _ in range(20))
    process.kill()
    with open_recording(str(path)) as form:
        bodies = [chunk.body for chunk in form]
        assert len(bodies) >= least
        assert numbered(bodies)
        assert (form.end.damages, form.end.ended) == ([], False)
        assert any("its writer still runs or was killed" in reported for reported in form.end.words())


@pytest.mark.ci
def test_complete_chunks_are_read_while_another_process_writes(worker: Start, tmp_path: Path) -> None:
    path = tmp_path / "F.brick"
    process = worker(
        WRITER
        + """
write(1)
report()
write(8000)
recording.close()
report()
""",
        python=("-P",),
        RECORDING=str(path),
    )
    process.next_report()
    with open_recording(str(path)) as form:
        seen = 0
        while not form.end.ended:
            bodies = [chunk.body for chunk in form]
            assert numbered(bodies)
            assert form.end.damages == []
            assert len(bodies) >= seen
            seen = len(bodies)
        assert seen == 8001
        assert clean(form.end)
    process.next_report()
    assert process.end() == 0


def test_a_recording_truncated_during_the_read_is_read_up_to_there(tmp_path: Path) -> None:
    with memory() as fd:
        recording = begin(fd, 1 << 20, ahead_bytes=1 << 16)
        for number in range(100):
            recording.append(_reader.CHUNK_SNAPSHOT, 0, b"%d" % number * 20)
        recording.close()
        with open_recording(f"/proc/self/fd/{fd}") as form:
            bodies = []
            for chunk in form:
                bodies.append(chunk.body)
                if len(bodies) == 40:
                    os.ftruncate(fd, chunk.offset + 100)
            assert len(bodies) == 40
            assert numbered(bodies)
            assert not clean(form.end)


def test_an_unreadable_file_is_refused_with_the_reason() -> None:
    # No memory is mapped at the beginning of this file, so reading it fails as on a broken disk.
    with pytest.raises(RecordingRefused, match="/proc/self/mem: cannot be read at byte 0: Input/output error"):
        open_recording("/proc/self/mem")


# ---- full disks


FULL = """
import sys; sys.path.insert(0, sys.argv[1])
import json, os
from rings import rings, spans
from tapes import begin, clean, flush, read_fd
from brickd.shm import _reader
import numpy as np
fd = os.open("/mnt/F.brick", os.O_RDWR | os.O_CREAT, 0o600)
with rings(span_slots=1 << 12) as r:
    made = np.repeat(spans({}), 3000)
    made["sequence"] = np.arange(1, 3001)
    r.add(0, "span", made)
    recording = begin(fd, 1 << 24, ahead_bytes=4 << 20)
    written = 0
    try:
        while written < 20:
            recording.append(_reader.CHUNK_SNAPSHOT, 0, bytes([written]) * 1500)
            written += 1
    except OSError as error:
        raise SystemExit(f"full after {written}")
    drain, alone, spool = r.drain(), r.drain(), _reader.Spool()
    drain.record_into(spool)
    assert _reader.drain([drain, alone])[2] == []
    assert (drain.spans, drain.cursors(), drain.longest()) == (alone.spans, alone.cursors(), alone.longest())
    try:
        recording.append(_reader.CHUNK_SNAPSHOT, 0, bytes(60000))
    except OSError as error:
        why = error.strerror
    try:
        flush(recording, spool)
    except OSError as error:
        trouble = error.strerror
    spool.clear()
    flush(recording, spool)
    refused = spool.refused_slots
    recording.close()
    seen = read_fd(fd)
    slots = sum(len(each.body) // 64 - 1 for each in seen.chunks if each.kind == _reader.CHUNK_RECORDS)
    print(json.dumps([why, trouble, refused + slots, refused > 0, clean(seen.end), seen.end.refused, len(seen.chunks)]))
"""


@pytest.mark.slow
@needs_namespaces
@pytest.mark.parametrize("kind", ["tmpfs -o size=64k", "tmpfs -o size=48k"])
def test_on_a_full_disk_dropped_slots_are_counted_and_the_drain_continues(kind: str) -> None:
    command = f'mount -t {kind} none /mnt && exec "$@"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", command, "sh", sys.executable, "-P", "-c", FULL, str(ROOT / "tests/support")],
        stdout=subprocess.PIPE,
        check=True,
    )
    why, trouble, slots, some, whole, refused, chunks = json.loads(done.stdout)
    assert why == trouble == "No space left on device"
    assert (slots, some, whole) == (3000, True, True)
    assert refused[:2] == [1, 60000]
    assert chunks >= 20
