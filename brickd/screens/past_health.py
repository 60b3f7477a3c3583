"""The health at a past time of a daemon, which keeps only the workers and problems of that time.

Owns: the conditions of a past time. Must not know: how a status document is made. Invariants: A condition about which
nothing is known is unhealthy. An ignored kind of problem is always healthy.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from brickd.base.units import plural

if TYPE_CHECKING:
    from brickd.views.common import Document


class PastCondition(NamedTuple):
    """A condition of a past time: the observed and the expected value, and the next command if they differ."""

    name: str
    healthy: bool
    seen: str
    wanted: str
    command: str


def is_past(status: Document) -> bool:
    """Whether a status is about a past time of a daemon, which keeps no counts of that time."""
    return status["ledger"] is None


def of_past(
    status: Document, kinds: Mapping[str, str], ignored: Collection[str], *, empty: bool
) -> list[PastCondition]:
    """Judge a past status.

    Args:
        status: the document.
        kinds: for each condition, the kind of problem that belongs to it.
        ignored: the names of conditions that are always healthy.
        empty: whether no worker is healthy, too.
    """
    problems, workers = status["problems"], status["workers"]
    if problems is None or workers is None:
        seen = f"the workers and problems of {status['at']} are not known"
        return [PastCondition("problems", False, seen, "a time that the daemon kept", "brickd events")]
    accepted = {kinds.get(name) for name in ignored}
    counted = [each for each in problems if each["kind"] not in accepted]
    more = f" (and {plural(len(counted) - 1, 'more problem')})" if len(counted) > 1 else ""
    seen = f"{counted[0]['id']} {counted[0]['text']}{more}" if counted else "no problem"
    command = counted[0]["command"] if counted else ""
    well = empty or bool(workers) or "workers" in ignored
    there = plural(sum(worker["together"] for worker in workers), "worker") if workers else "no worker"
    return [
        PastCondition("problems", not counted, f"{seen} at {status['at']}", "none", command),
        PastCondition("workers", well, there, "at least one (--allow-empty accepts none)", "brickd doctor"),
    ]
