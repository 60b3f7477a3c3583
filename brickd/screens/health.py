"""The health of all workers: conditions, tolerated values, and the line that says whether all is well.

Owns: the conditions with their expected values, the line. Must not know: how a status document is made. Invariants: A
condition has the observed value, the expected value and, if they differ, the next command. An ignored condition is
always healthy, and so is a condition whose problems are all silenced. The line shows unhealthy conditions first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from brickd.base import escape
from brickd.base.units import duration, plural
from brickd.query.parameters import Choices, Switch, Whole
from brickd.query.queries import OUTPUTS_BY
from brickd.query.query import Query, given
from brickd.screens.screen import Screen
from brickd.screens.wording import is_past, lost

if TYPE_CHECKING:
    from brickd.views.common import Document
    from brickd.views.fetch_answer import Missing

_PROOFS = ("diverged", "equal", "unproven")  # of several verdicts, the first in this order counts
# A turn of the daemon's loop takes at most a second, or at most this time if the turn removes a dead worker.
_STILL_NS = 10_000_000_000
REQUIRED = ("weights", "outputs", "row", "history")
_IS = {"stuck": "stuck", "memory": "growing", "slower": "slower than before", "nan": "computes NaN or Inf"}
NAMES = (
    *("lost", "dead", "quarantined", "daemon", "checkpoint", "diverged", "weights", "straggler"),
    *_IS,
    *("removed", "workers"),
)

# For each condition, the kind of problem that belongs to it. Problems of the daemon itself cannot be silenced.
_KINDS = {name: name for name in NAMES if name not in ("daemon", "checkpoint")} | {
    "dead": "died", "diverged": "numbers", "removed": "uncounted",
}  # fmt: skip


class Bounds(Query):
    """The options that define what is healthy."""

    max_lost: int = given(
        Whole(0, None, "With --check: accept at most N lost spans, details and events.", metavar="N"), default=0
    )
    max_dead: int = given(Whole(0, None, "With --check: accept at most N dead workers.", metavar="N"), default=0)
    need_daemon: bool = given(
        Switch(
            "With --check: require a daemon that answers. Without this option, only a daemon that died is unhealthy."
        ),
        default=False,
    )
    ignore: tuple[str, ...] = given(
        Choices(NAMES, "With --check: do not check this condition. May be given several times."), default=()
    )
    require: tuple[str, ...] = given(
        Choices(
            REQUIRED,
            "With --check: require this class of evidence to be proven equal in each service."
            " May be given several times.",
        ),
        default=(),
    )
    allow_empty: bool = given(Switch("With --check: accept that there is no worker."), default=False)


class Condition(NamedTuple):
    """A condition: the observed and the expected value, as text; `command` is None if the condition is healthy."""

    name: str
    healthy: bool
    seen: str
    wanted: str
    command: str | None


def conditions(status: Document, missing: Missing | None, bounds: Bounds) -> list[Condition]:
    """Judge a status. `missing` is the daemon that does not answer, or None if the daemon answers or never ran."""
    past = is_past(status)
    found = _at_a_past_time(status, bounds) if past else _now(status, missing, bounds)
    if past and status["problems"] is None:
        return found
    known = {name for name in NAMES if _is_silenced(name, status)}
    accepted = {**dict.fromkeys(known, "anything, because it is silenced"), **dict.fromkeys(bounds.ignore, "anything")}
    return [
        _judged(each.name, True, each.seen, accepted[each.name]) if each.name in accepted else each for each in found
    ]


def _now(status: Document, missing: Missing | None, bounds: Bounds) -> list[Condition]:
    workers = status["workers"]
    quarantined = sum(worker["together"] for worker in workers if worker["state"] == "quarantined")
    keeps = "brickd up -d" if status["daemon"] is None else "brickd prune"
    return [
        _few("lost", sum(worker["lost"] for worker in workers), bounds.max_lost, "brickd workers", parts=lost(status)),
        _dead(workers, bounds),
        _few("quarantined", quarantined, 0, "brickd workers"),
        _daemon(status, missing, needed=bounds.need_daemon),
        _checkpoint(status["daemon"]),
        _diverged(status["diverged"]),
        _weights(status["weights"]),
        _straggler(status["stragglers"], status["waiting"], status["judged_age_ns"]),
        *(_alarm(kind, status["alarms"]) for kind in _IS),
        _few("removed", status["removed"]["unasked_spans"], 0, keeps),
        _workers(workers, empty=bounds.allow_empty),
        *(_required(each, status) for each in dict.fromkeys(bounds.require)),
    ]


def _dead(workers: Sequence[Document], bounds: Bounds) -> Condition:
    died = sum(worker["together"] for worker in workers if worker["state"] == "died")
    return _few("dead", died, bounds.max_dead, "brickd prune", "died")


def _at_a_past_time(status: Document, bounds: Bounds) -> list[Condition]:
    """Judge a past time, of which a daemon keeps only the workers and the problems."""
    problems, workers, at = status["problems"], status["workers"], status["at"]
    if problems is None or workers is None:
        seen = f"the workers and problems of {at} are not known"
        return [_judged("problems", False, seen, "a time that the daemon kept", "brickd events")]
    # dead workers are counted, because some may be tolerated
    ignored = {"died", *(_KINDS.get(name) for name in bounds.ignore)}
    counted = [each for each in problems if each["kind"] not in ignored]
    more = f" (and {plural(len(counted) - 1, 'more problem')})" if len(counted) > 1 else ""
    seen = f"{counted[0]['id']} {counted[0]['text']}{more}" if counted else "no problem"
    found = [
        _judged("problems", not counted, f"{seen} at {at}", "none", counted[0]["command"] if counted else None),
        _dead(workers, bounds),
        _workers(workers, empty=bounds.allow_empty),
    ]
    for each in dict.fromkeys(bounds.require):
        wanted = f"{each} proven in each service"
        found.append(_judged(f"require {each}", False, f"{each} not known at {at}", wanted, "brickd coverage"))
    return found


def inactive(status: Document) -> list[Condition]:
    """Return the conditions that are unhealthy without any options, but that have no active problem."""
    if not status["workers"] or status["problems"] is None:
        return []
    kinds = {each["kind"] for each in status["problems"]}
    judged = conditions(status, None, Bounds())
    return [
        each for each in judged if not each.healthy and each.name != "problems" and _KINDS.get(each.name) not in kinds
    ]


def _is_silenced(name: str, status: Document) -> bool:
    """Whether all active problems of this condition are silenced."""
    kind = _KINDS.get(name)
    silenced = status.get("silenced", ())  # older daemons do not send it
    return any(each["kind"] == kind for each in silenced) and all(each["kind"] != kind for each in status["problems"])


def line(judged: Sequence[Condition], screen: Screen) -> str:
    """Return the line about all conditions, ready to print."""
    if healthy(judged):
        seen = ", ".join(condition.seen for condition in judged)
        return screen.paint(escape.text(f"healthy: {seen}", screen.width), "green")
    seen = "; ".join(f"{each.seen}, expected {each.wanted} ({each.command})" for each in judged if not each.healthy)
    return screen.paint(escape.text(f"unhealthy: {seen}", screen.width), "red")


def healthy(found: Sequence[Condition]) -> bool:
    """Whether all conditions are healthy."""
    return all(condition.healthy for condition in found)


def _judged(name: str, healthy: bool, seen: str, wanted: str, command: str | None = None) -> Condition:
    return Condition(name, healthy, seen, wanted, None if healthy else command)


def _few(name: str, seen: int, most: int, command: str, what: str = "", parts: str = "") -> Condition:
    text = f"{seen:,} {what or name}{f' ({parts})' if parts else ''}"
    return _judged(name, seen <= most, text, f"at most {most}" if most else "none", command)


def _workers(workers: Sequence[Document], *, empty: bool) -> Condition:
    seen = plural(sum(worker["together"] for worker in workers), "worker") if workers else "no worker"
    wanted = "any number" if empty else "at least one (--allow-empty accepts none)"
    return _judged("workers", empty or bool(workers), seen, wanted, "brickd doctor")


def _required(what: str, status: Document) -> Condition:
    """Judge whether the evidence `what` proves that the workers of each service in `living` are equal.

    There are several classes of outputs. It is enough if one class is equal, and no other class diverged.
    """
    classes = OUTPUTS_BY if what == "outputs" else (what,)
    by_service: dict[str, list[dict[str, Any]]] = {}
    for each in living(status):
        if each["evidence"] in classes:
            by_service.setdefault(each["service"], []).append(each)
    proofs = [min(found, key=lambda each: _PROOFS.index(each["verdict"])) for found in by_service.values()]
    diverged = [each for each in proofs if each["verdict"] == "diverged"]
    unproven = [each for each in proofs if each["verdict"] == "unproven"]
    wanted = f"{what} proven in each service"
    if not (worst := diverged + unproven):
        seen = f"{what} equal in {plural(len(proofs), 'service')}" if proofs else f"no service that has {what}"
        return _judged(f"require {what}", True, seen, wanted)
    more = f" and in {plural(len(worst) - 1, 'more service')}" if len(worst) > 1 else ""
    why = "" if worst[0]["why"] is None else f" ({worst[0]['why']})"
    seen = f"{what} {worst[0]['verdict']} in {worst[0]['service']}{why}{more}"
    return _judged(f"require {what}", False, seen, wanted, worst[0]["command"] or "brickd version")


def living(status: Document) -> list[dict[str, Any]]:
    """Return the verdicts on services with a live worker, or all verdicts if no worker is alive."""
    live = {worker["service"] for worker in status["workers"] or () if worker["state"] == "live"}
    return [each for each in status["evidence"] or () if each["service"] in live or not live]


def _daemon(status: Document, missing: Missing | None, *, needed: bool) -> Condition:
    name, wanted, facts = "daemon", "a daemon that answers", status["daemon"]
    if facts is not None:
        if facts["loop_still_ns"] > _STILL_NS:
            seen = f"daemon {facts['pid']} answers, but has read nothing for {duration(facts['loop_still_ns'])}"
            return _judged(name, False, seen, "a read every second", "brickd down && brickd up -d")
        return _judged(name, True, f"daemon {facts['pid']}", wanted)
    if missing is not None:
        return _judged(name, False, missing.what, wanted, "brickd up -d" if missing.ended else "brickd doctor")
    unread = sum(
        bool(each["set"] and each["set"]["spans"] == "on" and not each["drained"]) for each in status["workers"]
    )
    if unread:
        seen = f"no daemon, but spans are on in {plural(unread, 'worker')} and no process reads them"
        return _judged(name, False, seen, "a daemon that reads them", "brickd up -d")
    return _judged(name, not needed, "no daemon", wanted if needed else "no killed daemon", "brickd up -d")


def _checkpoint(facts: dict[str, Any] | None) -> Condition:
    if facts is None:
        return _judged("checkpoint", True, "no checkpoint", "no checkpoint without a daemon")
    problem = facts["checkpoint_problem"]
    seen = "checkpoint written" if problem is None else f"no checkpoint: {problem}"
    return _judged("checkpoint", problem is None, seen, "a written checkpoint", "brickd doctor")


def _diverged(found: Sequence[dict[str, Any]] | None) -> Condition:
    if found is None:
        return _judged("diverged", True, "no numbers compared", "no comparison without a daemon")
    text = f"{found[0]['kernel']} of {found[0]['service']} diverged" if found else "nothing diverged"
    more = f" and {plural(len(found) - 1, 'more site')}" if len(found) > 1 else ""
    return _judged("diverged", not found, text + more, "none", found[0]["command"] if found else "")


def _weights(found: Sequence[dict[str, Any]] | None) -> Condition:
    if found is None:
        return _judged("weights", True, "no weights compared", "no comparison without replicas")
    workers = list(dict.fromkeys(name for each in found for name in each["workers"]))
    seen = f"weights of {workers[0]} differ" if workers else "weights equal"
    more = f" and of {plural(len(workers) - 1, 'more worker')}" if len(workers) > 1 else ""
    wanted = "equal weights in all replicas"
    return _judged("weights", not workers, seen + more, wanted, found[0]["command"] if found else "")


def _straggler(
    found: Sequence[dict[str, Any]] | None, waiting: Sequence[dict[str, Any]] | None, age_ns: int | None
) -> Condition:
    if found is None and age_ns is not None:
        seen = f"no worker is judged: the daemon compared the workers last {duration(age_ns)} ago"
        return _judged("straggler", False, seen, "a comparison every 10 s", "brickd events")
    if found is None:
        return _judged("straggler", True, "no worker compared", "no comparison without a daemon")
    workers = list(dict.fromkeys(each["worker"] for each in (*found, *(waiting or ()))))
    how = "slow" if found else "waits for a processor"
    seen = f"{workers[0]} {how}" if workers else "no worker slow"
    more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
    return _judged("straggler", not workers, seen + more, "none", "brickd stragglers")


def _alarm(kind: str, found: Sequence[dict[str, Any]] | None) -> Condition:
    if found is None:
        return _judged(kind, True, f"{kind} not checked", "no check without a daemon")
    mine = [each for each in found if each["kind"] == kind]
    workers = list(dict.fromkeys(name for each in mine for name in each["workers"]))
    more = f" and {len(workers) - 1} more" if len(workers) > 1 else ""
    seen = f"{workers[0]}{more} {_IS[kind]}" if workers else f"no worker {_IS[kind]}"
    return _judged(kind, not workers, seen, "none", mine[0]["command"] if mine else "")
