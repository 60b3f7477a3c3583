"""A recording made by `brickd record`, as users do, and the checksums in it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.workplace import Workplace
from brickd.recording.checksum_records import Checked
from brickd.recording.chunks import open_recording
from brickd.recording.file_index import FileIndex
from brickd.recording.replay import opened
from brickd.shm import records

_WEIGHT = 8  # the flag of a weight's record, which belongs to no kernel


@contextmanager
def recording(place: Workplace, name: str, *options: str) -> Iterator[Path]:
    """Record the workers inside the `with` block; the file is complete at the end of the block."""
    file = place.folder / f"{name}.brick"
    process = subprocess.Popen(
        [sys.executable, "-m", "brickd", "record", "-o", str(file), *options],
        env=place.environment,
        cwd=place.folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    with process:
        try:
            line = process.stderr.readline()
            if b"recording" not in line:
                raise RuntimeError(f"brickd record did not begin: {line.decode()}")
            yield file
        finally:
            process.send_signal(signal.SIGINT)
            process.stderr.read()
            process.wait()


def checksums(file: Path, name: str) -> list[dict[str, Any]]:
    """Return the checksums of a recorded worker, in the order in which they were sent."""
    with opened([str(file)]) as world, open_recording(str(file)) as form:
        (worker,) = (each for each in world.survey().workers if each.name == name)
        return [
            each
            for _, slots in Checked([FileIndex(form)], {worker.reading.uuid})
            for each in records.events(slots)[0]
            if not each["flags"] & _WEIGHT
        ]
