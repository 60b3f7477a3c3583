"""The pairs of cases that are compared, and the goal for the ratio of each pair."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import cases
from benchmarks.goals import Goal
from benchmarks.peers import (
    Peer,
    lttng,
    opentelemetry,
    prometheus,
    pure_python_ring,
    seed,
    torch,
    viztracer,
    writer,
)

BRICKD = "brickd"


@dataclass(frozen=True, slots=True)
class Comparison:
    """A case, the case that it is compared with, and the goal for the ratio of the two, if there is one."""

    case: str
    reference: str
    goal: Goal | None = None
    needs_tsc: bool = False  # the goal applies only if the agent reads the time stamp counter
    by: str = BRICKD
    note: str = ""

    def goal_with(self, tsc: bool) -> Goal | None:
        return self.goal if tsc or not self.needs_tsc else None


def _peer(peer: Peer, case: str, at_least: float | None = None, reference: str = cases.WITH) -> Comparison:
    goal = None if at_least is None else Goal(at_least, at_least=True)
    return Comparison(case, reference, goal, needs_tsc=True, by=peer.BY, note=peer.HOW[case])


COMPARISONS = (
    Comparison(cases.WITH, cases.WITH_CONTROL, Goal(1.45)),
    Comparison(cases.RINGED, cases.WITH_CONTROL, Goal(1.45)),
    Comparison(cases.NESTED, cases.WITH_CONTROL),
    Comparison(cases.START, cases.START_CONTROL, Goal(1.6)),
    Comparison(cases.AMOUNTS, cases.WITH, Goal(2)),
    Comparison(cases.BY_NAME, cases.WITH, Goal(2)),
    Comparison(cases.DEFERRED, cases.WITH),
    Comparison(cases.PORTED, cases.START, Goal(2)),
    Comparison(cases.PORTED_OFF, cases.PORTED_EMPTY, Goal(1.5)),
    Comparison(cases.OFF, cases.WITH_EMPTY, Goal(1.1)),
    Comparison(cases.OFF_ENVIRONMENT, cases.WITH_EMPTY, Goal(1.1)),
    Comparison(cases.OFF_CONSUMER, cases.WITH_EMPTY),
    _peer(writer, writer.PAIR),
    _peer(seed, seed.PAIR, at_least=1.4, reference=cases.START),
    _peer(lttng, lttng.PAIR, at_least=4),
    _peer(lttng, lttng.OF_TASK),
    _peer(pure_python_ring, pure_python_ring.SPAN),
    _peer(prometheus, prometheus.TIME, at_least=50),
    _peer(prometheus, prometheus.OBSERVE),
    _peer(prometheus, prometheus.INC),
    _peer(viztracer, viztracer.SPAN),
    _peer(torch, torch.PROFILED),
    _peer(torch, torch.UNPROFILED),
    _peer(opentelemetry, opentelemetry.SPAN),
)
