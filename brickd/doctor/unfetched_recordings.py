"""Recordings that were not fetched.

Owns: the facts about these recordings, and the verdict. Must not know: how recordings are found or fetched. Invariants:
A recording that is still being written is not a finding. Another check reports a daemon that does not answer.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from brickd.base.units import plural
from brickd.doctor.check import CheckResult, fine, mib
from brickd.errors import BrickdError
from brickd.model.worker_names import as_argument
from brickd.recording.library import ROOM, unfetched


class UnfetchedRecording(NamedTuple):
    """A recording: its id, its directory, and the bytes of all its files."""

    recording: str
    directory: str
    bytes: int


def observe() -> tuple[UnfetchedRecording, ...]:
    """Return the complete recordings, the oldest first."""
    try:
        found = unfetched()
    except BrickdError:
        return ()
    return tuple(
        UnfetchedRecording(each["recording"], os.path.dirname(each["files"][0]["path"]), each["bytes"])
        for each in found
        if not each["written"]
    )


def judge(left: tuple[UnfetchedRecording, ...]) -> CheckResult:
    """Report the recordings, and how to fetch them."""
    name, wanted = "recordings", "every recording fetched"
    if not left:
        return fine(name, "all were fetched", wanted)
    newest = left[-1]
    size = mib(sum(each.bytes for each in left))
    seen = f"{plural(len(left), 'recording')} not fetched in {newest.directory}, {size}"
    why = f"fetches the newest; or delete recordings that you do not need: above {ROOM}, brickd deletes the oldest"
    fix = f"brickd record --fetch {as_argument(newest.recording)}"
    return CheckResult(name, "advice", seen, wanted, fix, why, tuple(each.recording for each in left))
