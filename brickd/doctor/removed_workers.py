"""Checks the file of records of removed segments: whether it is writable, and whether each record is complete.

Owns: the possible defects of that file, and the fix. Must not know: segments, the content of records. Invariant: a fix
keeps the records if possible.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import NamedTuple

from brickd.base.units import plural
from brickd.doctor.check import CheckResult, fine
from brickd.shm import removed_file
from brickd.shm.removed_file import RemovedRecords

_WANTED = "a file that only this user can write, with room for records"
_STAY = "while records cannot be written, segments of ended or dead workers are not removed"


class RecordsFile(NamedTuple):
    """The content of the file, whether this user owns it, and whether only its mode is wrong."""

    path: str
    found: RemovedRecords = RemovedRecords()
    ours: bool = True
    open_to_others: bool = False


NO_RECORDS = RecordsFile("")


def observe(prefix: str) -> RecordsFile:
    """Read the file, its owner and its mode."""
    path, found = removed_file.path(prefix), removed_file.look(prefix)
    try:
        status = os.lstat(path)
    except OSError:
        return RecordsFile(path, found)
    ours = status.st_uid == os.geteuid()
    return RecordsFile(path, found, ours, ours and stat.S_ISREG(status.st_mode) and status.st_nlink == 1)


def judge(records: RecordsFile) -> CheckResult:
    """Judge whether the file is writable, and whether each record is complete."""
    name, found = "segments-removed", records.found
    if found.refused:
        return CheckResult(name, "advice", f"{records.path}: {found.refused}", _WANTED, _remedy(records), _STAY)
    seen = plural(len(found.removed), "record")
    if found.damaged:
        seen += f" and {found.damaged:,} damaged"
        return CheckResult(name, "advice", seen, "whole records", "brickd up -d", "damaged records are not counted")
    if found.full:
        return CheckResult(name, "advice", f"{seen}, full", _WANTED, "brickd up -d", f"{_STAY}; a daemon empties it")
    return fine(name, seen, _WANTED)


def _remedy(records: RecordsFile) -> str:
    path = shlex.quote(records.path)
    if records.open_to_others:
        return f"chmod 600 {path}"
    return f"rm -r -- {path}" if records.ours else f"sudo rm -r -- {path}"
