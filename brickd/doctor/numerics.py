"""Whether a daemon keeps fingerprints for long enough to compare them.

Owns: the verdict. Must not know: the comparison. Invariant: it is not a fault if there is no daemon, or if the settings
of the daemon turn comparisons off.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.base.units import count, duration, percent, write_size
from brickd.client import client
from brickd.doctor.check import CheckResult, fine, mib
from brickd.errors import BrickdError

_WANTED_NS = 60_000_000_000
_MOST_BYTES = 1 << 30
_SHARE = 0.01  # the accepted fraction of evicted fingerprints


class HeldFingerprints(NamedTuple):
    """The window of fingerprints in a daemon.

    Attributes:
        bytes: the limit of the window in bytes.
        age_ns: the age of the oldest fingerprint.
        fingerprints: the number of all fingerprints with inputs.
        gone: how many of these were evicted before another worker had the same inputs.
    """

    bytes: int
    age_ns: int
    fingerprints: int
    gone: int


def observe() -> HeldFingerprints | None:
    """Query the daemon; None if there is no daemon, or if it has nothing to compare."""
    try:
        answer = client.ask("coverage").document()
        window, services = answer["window"], answer["services"]
        if not window["oldest_age_ns"]:
            return None
        whole = sum(each["input"]["fingerprints"] - each["unseen"]["without_inputs"] for each in services)
        gone = sum(each["unseen"]["evicted"] for each in services)
        return HeldFingerprints(window["bytes"], window["oldest_age_ns"], whole, gone)
    except BrickdError:
        return None


def judge(window: HeldFingerprints | None) -> CheckResult:
    """Judge whether the window is long enough."""
    name, wanted = "fingerprints", f"fingerprints kept for {duration(_WANTED_NS)}"
    if window is None:
        return fine(name, "no daemon keeps fingerprints", wanted)
    seen = f"the last {duration(window.age_ns)} in {mib(window.bytes)}"
    if window.age_ns >= _WANTED_NS or window.gone <= _SHARE * window.fingerprints or window.bytes >= _MOST_BYTES:
        return fine(name, seen, wanted)
    gone = f"{count(window.gone)} of {count(window.fingerprints)} ({percent(100 * window.gone / window.fingerprints)})"
    seen += f": {gone} were dropped before another worker had the same inputs"
    needed = 1 << (window.bytes * _WANTED_NS // max(1, window.age_ns)).bit_length()
    fix = f"brickd down && brickd up -d --numerics-bytes {write_size(min(needed, _MOST_BYTES))}"
    return CheckResult(name, "advice", seen, wanted, fix, "until then fewer outputs are compared")
