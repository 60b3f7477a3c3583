"""Reports of NaN and infinities that are born in a worker: an event, an alarm, a problem.

A value is born at a site if the output of the site has it and no input has it. Owns: the sentences of reports, how many
sites of a worker get an event. Must not know: when a birth is a finding, screens. Invariants: The text names the
worker, the kind of value (NaN, +Inf, -Inf) and the first site. A worker has one alarm for all of its sites.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from brickd.analysis.numerics.not_finite import KINDS, Birth, Births, BornAt
from brickd.analysis.problem import Problem, problem_id
from brickd.analysis.timing.alarms import Alarm
from brickd.base.json_values import U64_MAX
from brickd.base.timestamps import local
from brickd.base.units import plural
from brickd.model.event_log import LogEvent
from brickd.model.worker_names import as_argument

EVENTS_MAX = 8  # sites of a worker that get their own event


def log_births(log_event: LogEvent, births: Births, born: Iterable[BornAt], names: Mapping[str, str]) -> None:
    """Log the first EVENTS_MAX findings of each worker."""
    new = list(born)
    known = Counter(at.worker for at in births)
    known.subtract(at.worker for at in new)
    for at in new:
        known[at.worker] += 1
        if known[at.worker] > EVENTS_MAX:
            continue
        name = names.get(at.worker) or at.worker[:8]
        text = f"{name} computes {at.kind} at {_where(at)}; the inputs contain none"
        problem = problem_id("nan", at.service)
        log_event("nan", text, service=at.service, worker=name, command=_command(at.service), problem=problem)


def alarms(births: Births, names: Mapping[str, str], now_ns: int, for_ns: int) -> list[Alarm]:
    """Return one alarm for each worker that had a birth in the last `for_ns` nanoseconds."""
    return [
        _alarm(service, uuid, names.get(uuid) or uuid[:8], found, now_ns)
        for (service, uuid), found in _of_workers(births).items()
        if max(birth.latest_ns for _, birth in found) > now_ns - for_ns
    ]


def problems(births: Births, names: Mapping[str, str], now_ns: int) -> list[Problem]:
    """Return one problem for each worker that had a birth. Each new birth is a new occurrence of this problem."""
    return [
        Problem(
            alarm.kind,
            alarm.service,
            alarm.workers,
            alarm.text,
            alarm.command,
            mark=min(U64_MAX, sum(birth.times for _, birth in found)),
            first_ns=min(birth.since_ns for _, birth in found),
            last_ns=max(birth.latest_ns for _, birth in found),
        )
        for (service, uuid), found in _of_workers(births).items()
        for alarm in [_alarm(service, uuid, names.get(uuid) or uuid[:8], found, now_ns)]
    ]


def _of_workers(births: Births) -> dict[tuple[str, str], list[tuple[BornAt, Birth]]]:
    workers: dict[tuple[str, str], list[tuple[BornAt, Birth]]] = defaultdict(list)
    for at, birth in births.items():
        workers[at.service, at.worker].append((at, birth))
    return workers


def _alarm(service: str, uuid: str, name: str, found: list[tuple[BornAt, Birth]], now_ns: int) -> Alarm:
    found = sorted(found, key=lambda each: each[1].since_ns)
    (first, birth), sites = found[0], {_where(at) for at, _ in found}
    kinds = " and ".join(kind for kind in KINDS if any(at.kind == kind for at, _ in found))
    times = sum(each.times for _, each in found)
    more = f" (and at {plural(len(sites) - 1, 'more site')})" if len(sites) > 1 else ""
    since = f"since {local(birth.since_ns, now_ns)}, {plural(times, 'time')}"
    text = f"{name} computes {kinds} at {_where(first)}{more} {since}; the inputs contain none"
    return Alarm("nan", service, (name,), uuid, text, _command(service))


def _where(at: BornAt) -> str:
    return at.kernel if at.layer < 0 else f"{at.kernel} layer {at.layer}"


def _command(service: str) -> str:
    return f"brickd diff {as_argument(service)}"
