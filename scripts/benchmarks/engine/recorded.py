"""Recordings of trials without a fault: made by `brickd record` for the whole length of a trial, and kept for a run.

Owns: the folder of a run's recordings and their key, how a recording begins and ends. Must not know: what a trial is,
who reads a recording. Invariants: all workers of a run that are recorded have one key, so that their checksums are
comparable; a run that does not continue another one begins with an empty folder.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.faulty.driven import SERVICE
from benchmarks.workplace import Workplace

_KEY = "key"
_SIZE_MAX = 2 << 30  # of a recording; a trial of ten minutes takes 0.2 to 1.1 GB
_FREE_MIN = 2 * _SIZE_MAX
_END_SECONDS = 120.0


def emptied(folder: Path) -> None:
    """Remove all recordings of an earlier run, and its key."""
    shutil.rmtree(folder, ignore_errors=True)


def one_key(place: Workplace, folder: Path) -> None:
    """Let the workers that start later in a workplace use the key of the run."""
    folder.mkdir(parents=True, exist_ok=True)
    place.environment["BRICKD_KEY_FILE"] = str(folder / _KEY)


@contextmanager
def recorded(place: Workplace, file: Path) -> Iterator[dict[str, Any]]:
    """Record the fleet of a workplace into a file. At the end, the dictionary has the length and the size.

    Rows in float32 are compared only if the recording has the values of tensors.

    Raises:
        RuntimeError: the disk has too little room, or the recording does not begin or end, or is not whole.
    """
    file.unlink(missing_ok=True)
    if (free := shutil.disk_usage(file.parent).free) < _FREE_MIN:
        raise RuntimeError(f"{file.parent}: {free >> 20} MiB are free, expected {_FREE_MIN >> 20} MiB for a recording")
    about: dict[str, Any] = {"file": file.name}
    options = ("--workers", SERVICE, "--values", "--max-size", str(_SIZE_MAX), "--json")
    with subprocess.Popen(
        [sys.executable, "-m", "brickd", "record", "-o", str(file), *options],
        env=place.environment,
        cwd=place.folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stderr is not None
            begun = process.stderr.readline()
            if not begun.startswith("brickd: recording "):
                raise RuntimeError(f"brickd record did not begin: {begun}{process.stderr.read()}")
            yield about
            process.send_signal(signal.SIGTERM)
            printed, errors = process.communicate(timeout=_END_SECONDS)
        except subprocess.TimeoutExpired as error:
            process.kill()
            raise RuntimeError(f"brickd record did not end within {_END_SECONDS:g} s") from error
        except BaseException:
            process.kill()
            raise
    if process.returncode != 0:
        raise RuntimeError(f"brickd record: exit status {process.returncode}, expected 0: {errors}")
    document = json.loads(printed)
    if len(document["files"]) != 1:
        count = len(document["files"])
        raise RuntimeError(f"brickd record wrote {count} files, expected 1 of at most {_SIZE_MAX} bytes")
    about |= {"seconds": document["elapsed_ns"] / 1e9, "bytes": file.stat().st_size}
