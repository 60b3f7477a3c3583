"""A stored survey of all workers at one moment.

Owns: the times of a survey, the interval between surveys, the stored format. Must not know: the receivers of snapshots.
Invariant: a recording gives a receiver the same snapshots, in the same order, as the live daemon did.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from brickd.base.timestamps import Moment
from brickd.base.units import SECOND
from brickd.model.workers import Survey
from brickd.shm import segment_codec

EVERY_NS = 10 * SECOND


class Snapshot(NamedTuple):
    """A survey in compact form; `now_ns` is the time on a monotonic clock, `at_ns` is the time since 1970."""

    now_ns: int
    at_ns: int
    survey: Survey

    @property
    def moment(self) -> Moment:
        """Return the time of the snapshot on both clocks."""
        return Moment(self.now_ns, self.at_ns)

    @classmethod
    def of(cls, survey: Survey, now_ns: int, at_ns: int) -> Snapshot:
        """Make a snapshot of a survey."""
        workers = [worker._replace(reading=segment_codec.compact(worker.reading)) for worker in survey.workers]
        return cls(now_ns, at_ns, survey._replace(workers=workers))


def without_lanes(of: Snapshot) -> Snapshot:
    """Return the snapshot without lanes, which take much memory."""
    workers = [each._replace(reading=replace(each.reading, lanes=[])) for each in of.survey.workers]
    return of._replace(survey=of.survey._replace(workers=workers))


class Takes(Protocol):
    """A receiver of every snapshot."""

    def take(self, snapshot: Snapshot) -> None:
        """Receive the next snapshot."""
