"""The flight recorder: whether the daemon has one, what it holds and what it did last.

Owns: the facts about the flight recorder, and the verdict. Must not know: how it records, how its recordings are found.
Invariants: A daemon without a flight recorder is not a finding, and neither is a pause between two recordings. What a
daemon does not report is not known, and never `off`.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from brickd.base.units import plural
from brickd.client import client
from brickd.doctor.check import CheckResult, fine, mib
from brickd.errors import BrickdError
from brickd.recording.library import flight_recordings

_NAME, _WANTED = "flight-recorder", "every new problem recorded, or no flight recorder"


class FlightFacts(NamedTuple):
    """The flight recorder.

    Attributes:
        state: `on`, `off`, or why this is not known.
        last: its last result, as the daemon reports it; None before the first one.
        recordings: the number of its recordings, and `bytes` their size.
        directory: the directory of its recordings; "" without recordings.
    """

    state: str
    last: dict[str, Any] | None = None
    recordings: int = 0
    bytes: int = 0
    directory: str = ""


def observe() -> FlightFacts:
    """Ask the daemon, and list the recordings."""
    found = _asked()
    try:
        kept = flight_recordings()
    except BrickdError:  # another check reports this
        return found
    directory = os.path.dirname(kept[-1]["files"][0]["path"]) if kept else ""
    return found._replace(recordings=len(kept), bytes=sum(each["bytes"] for each in kept), directory=directory)


def _asked() -> FlightFacts:
    try:
        document = client.ask("").document()
    except BrickdError:
        return FlightFacts("not known: no daemon answers")
    if "flight_recorder" not in document:
        return FlightFacts("not known: the daemon is another brickd, which does not report it")
    recorder = document["flight_recorder"]
    return FlightFacts("off") if recorder is None else FlightFacts("on", recorder["last"])


def judge(facts: FlightFacts) -> CheckResult:
    """Report the state, and a new problem that was not recorded."""
    holds = f"; {plural(facts.recordings, 'recording')} in {facts.directory}, {mib(facts.bytes)}"
    seen = facts.state + (holds if facts.recordings else "; no recordings")
    if facts.last is None:
        return fine(_NAME, seen, _WANTED)
    seen += f"; last: {facts.last['at']}: {facts.last['text']}"
    if facts.last["result"] != "failed":
        return fine(_NAME, seen, _WANTED)
    why = "the spans of this problem are missing; if it goes on, record it yourself"
    return CheckResult(_NAME, "advice", seen, _WANTED, "brickd record --spans --duration 20s", why)
