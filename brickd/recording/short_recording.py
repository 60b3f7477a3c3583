"""A recording of the next seconds, for a program that asks about single spans of live workers.

Owns: the temporary file, and the process that records into it. Must not know: what is read from the file. Invariants:
Workers keep each span in detail only while the process records, and nothing stays on the disk. The process is the
command `brickd record`, because a recording handles signals and without a daemon drains the rings, which a program that
uses this module may do itself.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from brickd.errors import BrickdError
from brickd.query.orders import StartRecording
from brickd.recording.chunks import Form
from brickd.recording.replay import opened_files

_SUFFIX = ".brick"


@contextmanager
def short_recording(names: tuple[str, ...], seconds: float) -> Iterator[list[Form]]:
    """Record the single spans of workers, and open the files of the recording.

    Args:
        names: names of workers and services; empty: all workers.
        seconds: how long to record.

    Raises:
        WrongQuestion: the duration is too short or too long.
        BrickdError: nothing can be recorded, for instance because another recording runs.
    """
    order = StartRecording(names, duration=seconds, spans=True)
    with tempfile.TemporaryDirectory(prefix="brickd-") as folder:
        _record(order, Path(folder) / f"live{_SUFFIX}")
        with opened_files([str(path) for path in sorted(Path(folder).glob(f"*{_SUFFIX}"))]) as forms:
            yield forms


def _record(order: StartRecording, file: Path) -> None:
    """Run `brickd record`. BrickdError: it failed."""
    named = [part for name in order.names for part in ("--workers", name)]
    command = [sys.executable, "-P", "-m", "brickd", "record", "--spans", "-o", str(file), *named]
    # After Ctrl-C, the process is not killed, because it must still tell the workers to stop.
    with subprocess.Popen(
        [*command, "--duration", f"{order.duration}s"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        last = process.communicate()[1].strip().rpartition("\n")[2]
    if process.returncode:
        raise BrickdError(last.removeprefix("brickd: ") or f"brickd record ended with exit code {process.returncode}")
