"""Texts that several verbs share: cells with numbers, rows about workers, and the lines about a problem.

Owns: the texts that verbs share. Must not know: individual verbs. Invariants: Cells are not escaped, because the table
escapes them. Complete lines are escaped here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from brickd.base import escape, units
from brickd.base.unknown_rows import without_histories, without_rows
from brickd.query.queries import step_name
from brickd.screens.screen import Screen
from brickd.views.next_command import command

_UNSEEN = (
    ("lost", "lost", "lost"),
    ("unreadable", "tensor that cannot be read", "tensors that cannot be read"),
    ("evicted", "evicted", "evicted"),
    ("stateful", "of a stateful kernel", "of stateful kernels"),
    ("sites_off", "site off", "sites off"),
    ("sites_closed", "site closed", "sites closed"),
    ("sites_without_inputs", "site without inputs", "sites without inputs"),
)
_OF_WEIGHTS = (
    ("unread", "tensor not read yet", "tensors not read yet"),
    ("unreadable", "weight that cannot be read", "weights that cannot be read"),
    ("missing", "tensor that only others have", "tensors that only others have"),
    ("no_room", "record of weights without room", "records of weights without room"),
    ("workers_without", "worker without weights", "workers without weights"),
)
# Why a worker's tensor was not compared.
NOT_COMPARED = {
    "alone": "of a single replica",
    "missing": "that no other worker has",
    "generation": "of another generation",
    "key": "of another key",
}


def no_workers(document: dict[str, Any]) -> str:
    """Return the line for a document without workers."""
    if document.get("from") is not None:  # the period is of the last day
        return "no worker recorded anything in this time"
    return units.NONE_RECORDED if "recording" in document else units.NO_WORKERS


def is_past(status: dict[str, Any]) -> bool:
    """Whether a status is about a past time of a daemon, which keeps no counts of that time."""
    return status["ledger"] is None


def identifier(number: int | str | None) -> str:
    """Format a number that identifies something, such as a layer, a thread or a checksum."""
    return "-" if number is None else str(number)


def with_step(entry: dict[str, Any]) -> dict[str, Any]:
    """Return the entry with the text of its step, or else the step's number, in place of the digits."""
    digits = entry.get("step")
    return entry | {"step": entry.get("step_text") or (digits and step_name(int(digits, 16)))}


def signed(percent: float | None) -> str:
    """Format a relative percentage with its sign."""
    return f"{'+' if percent and percent > 0 else ''}{units.percent(percent)}"


def lost(entry: dict[str, Any]) -> str:
    """Return what was lost, from an entry with a ledger; "" if nothing was lost, or if the ledger is not known.

    >>> lost({"ledger": {"lost": {"spans": 1, "details": 3, "events": 2_000}}})
    '1 span, 3 details, 2,000 events'
    >>> lost({"ledger": {"lost": {"spans": 1, "details": 0, "events": 0}}})
    '1 span'
    """
    if entry["ledger"] is None:  # it is of a past time
        return ""
    kinds = entry["ledger"]["lost"]
    return ", ".join(
        units.many(kinds[each], each.removesuffix("s")) for each in ("spans", "details", "events") if kinds[each]
    )


def worker_row(worker: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a worker, with the cells STATE, SPANS, LOST and OPEN NOW added.

    The state has a mark if the worker does not record as usual. OPEN NOW looks at the innermost open span of
    each thread, and shows the one that began first.
    """
    setting, ledger = worker["set"] or {}, worker["ledger"]
    mark = ", off" if setting.get("recording") == "off" else ", spans" if setting.get("spans") == "on" else ""
    if not mark and (setting.get("fingerprints", "default") != "default" or setting.get("filtered")):
        mark = ", set"
    return worker | {
        "state": f"{worker['state']}{mark}",
        "spans": None if ledger is None else ledger["spans"]["summarized"],
        "lost": lost(worker) or units.count(worker["lost"]),
        "open": "".join(f"{span['brick']} {units.duration(span['since_ns'])}" for span in (worker["open"] or ())[:1]),
    }


def more(number: int, one: str, then: str = "", several: str | None = None) -> list[str]:
    """Return a line that says how many rows were omitted; [] if none were. The line is not escaped."""
    return [f"…{units.many(number, one, several)}{then}"] if number > 0 else []


def silenced(problems: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line that says how many problems are silenced, ready to print; [] if none are."""
    return [f"{units.many(len(problems), 'silenced problem')}: brickd silence"] if problems else []


def removed(of: dict[str, int] | None, screen: Screen) -> list[str]:
    """Return a line that says how many spans removed workers had, ready to print; [] if no worker was removed."""
    if of is None or not of["workers"]:
        return []
    line = f"removed  {units.many(of['spans'], 'span')} of {units.many(of['workers'], 'worker')}, in no total"
    return [escape.text(line, screen.width)]


def numerics(services: Sequence[dict[str, Any]], coverage: str = "brickd coverage") -> str:
    """Say how much of the numerics was compared. The string is not escaped.

    If nothing was compared for the same input, the string names the command `coverage`.
    """
    by_input = [service for service in services if service["input"] is not None]
    by_weights = [service["weights"] for service in services if service["weights"] is not None]
    unseen = [units.many(n, *words) for key, *words in _UNSEEN if (n := _total(by_input, "unseen", key))]
    unseen = [*([] if by_weights else ["weights (none given)"]), *_weights_unseen(by_weights), *unseen]
    parts = [
        *([_by_weights(by_weights)] if by_weights else []),
        _by_input(by_input, coverage),
        *_by_row(by_input),
        *_by_history(by_input),
    ]
    return " · ".join([*parts, *([f"unseen: {', '.join(unseen)}"] if unseen else [])])


_CALLED = {"weights": "weights", "input": "outputs", "history": "histories"}


def unproven(evidence: Iterable[dict[str, Any]], document: dict[str, Any], screen: Screen) -> list[str]:
    """Return a line for each service with unproven evidence, ready to print. Most lines end with the next command."""
    services: dict[str, list[dict[str, Any]]] = {}
    every = list(evidence)
    by_rows = {
        each["service"] for each in every if each["evidence"] in ("row", "history") and each["verdict"] != "unproven"
    }
    for each in every:
        if each["evidence"] == "input" and each["service"] in by_rows:  # the outputs were compared row by row
            continue
        if each["evidence"] == "history" and not each["recorded"]:  # few engines record histories
            continue
        if each["verdict"] == "unproven" and each["evidence"] in _CALLED:
            services.setdefault(each["service"], []).append(each)
    lines = []
    for service, rows in services.items():
        recorded = [each for each in rows if each["recorded"]]
        if not recorded and len(rows) == 2:
            lines.append(escape.text(f"unproven  {service}: no fingerprints, no weights", screen.width))
            continue
        why = ", ".join(f"{_CALLED[each['evidence']]} ({each['why']})" for each in rows)
        following = [*rows, *recorded][-1]["command"]
        lines.append(_with_command(f"unproven  {service}: {why}", command(document, following), screen))
    return lines


def _with_command(text: str, following: str, screen: Screen) -> str:
    """Return a line with this text, followed by the next command, ready to print. Only the text may be cut."""
    following = escape.text(following)
    room = None if screen.width is None else max(20, screen.width - escape.width(following) - 2)
    return screen.paint(escape.text(text, room), "yellow") + f"  {following}"


def _total(services: Iterable[dict[str, Any]], part: str, key: str) -> int:
    return sum(service[part][key] for service in services)


def _by_input(services: Sequence[dict[str, Any]], coverage: str) -> str:
    if not services:
        return f"same input: not compared ({coverage})"
    fingerprints, compared = _total(services, "input", "fingerprints"), _total(services, "input", "compared")
    if not fingerprints:
        return "same input: no fingerprints yet"
    ages = [age for service in services if (age := service["input"]["age_ns"]) is not None]
    age = f" ({units.duration(min(ages))} ago)" if ages else ""
    differ = units.many(_total(services, "input", "differ"), "site differs", "sites differ")
    if _total(services, "input", "unkept"):
        differ = f"at least {differ}"
    most = max(service["input"]["numeric_classes"] for service in services)
    classes = f", {units.many(most, 'numeric class', 'numeric classes')}" if most > 1 else ""
    return f"same input: {units.count(compared)} of {units.count(fingerprints)} compared, {differ}{classes}{age}"


def _by_row(services: Sequence[dict[str, Any]]) -> list[str]:
    """Say how many rows were compared, and at how many sites the rows are unknown; [] if there are neither."""
    rows = _total(services, "row", "rows")
    unknown = Counter[str]()
    for service in services:
        unknown.update(service["row"].get("unknown", {}))  # an older daemon does not know
    differ = units.many(_total(services, "row", "differ"), "site differs", "sites differ")
    compared = f"rows: {units.count(_total(services, 'row', 'compared'))} of {units.count(rows)} compared, {differ}"
    return [*([compared] if rows else []), *([without_rows(unknown)] if unknown else [])]


def _by_history(services: Sequence[dict[str, Any]]) -> list[str]:
    """Say how many rows with histories were compared, and how many histories are unknown; [] if there are neither."""
    seen = [service for service in services if service.get("history")]  # an older daemon does not know
    rows, unknown = _total(seen, "history", "rows"), Counter[str]()
    for service in seen:
        unknown.update(service["history"]["unknown"])
    differ = units.many(_total(seen, "history", "differ"), "site differs", "sites differ")
    compared = f"histories: {units.count(_total(seen, 'history', 'compared'))} of {units.count(rows)} rows compared"
    return [*([f"{compared}, {differ}"] if rows else []), *([without_histories(unknown)] if unknown else [])]


def _by_weights(services: Sequence[dict[str, Any]]) -> str:
    def total(key: str) -> int:
        return sum(service[key] for service in services)

    workers = units.many(total("workers") - _total(services, "unseen", "workers_without"), "worker")
    if not total("tensors"):
        return f"weights: not read yet in {workers}"
    if not total("workers_equal") and not total("workers_odd"):
        return f"weights: nothing comparable in {workers}"
    when = weights_read([service for service in services if service["verdict"] != "nothing"])
    differ, compared, unreadable = total("differ"), total("compared"), total("unreadable")
    age = f" ({', '.join(when)})" if when else ""
    what = units.many(compared, "tensor")
    if differ:
        what = f"{units.count(differ)} of {what} {'differs' if differ == 1 else 'differ'}"
    elif unreadable:
        what = f"{units.count(compared)} of {units.many(max(total('watched'), compared), 'tensor')}"
    if unreadable:
        what += f"; {units.count(unreadable)} cannot be read"
    return f"weights: {units.count(total('workers_equal'))} of {workers} equal, {what}{age}"


def weights_read(services: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say how long ago the compared weights were read.

    Weights that are read only once, when they are loaded, are named separately.
    """
    once = sum(service.get("load_only", 0) for service in services)  # an older daemon does not send this key
    if not once:
        return _ago([service["age_ns"] for service in services])
    of_load = _ago([service["age_ns"] for service in services if service.get("load_only", 0)])
    if once >= sum(service["tensors"] for service in services):
        return [" ".join(["read at load only", *of_load])]
    again = [age for service in services if (age := service.get("rescanned_age_ns")) is not None]
    return [*(_ago(again) if again else []), " ".join([f"{units.count(once)} read at load only", *of_load])]


def _ago(ages: Sequence[int | None]) -> list[str]:
    known = [age for age in ages if age is not None]
    return [f"{units.duration(max(known))} ago"] if known and len(known) == len(ages) else []


def _weights_unseen(services: Sequence[dict[str, Any]]) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for service in services:
        reasons.update(service["unseen"]["not_comparable"])
    yield from (f"{units.many(n, 'tensor')} {NOT_COMPARED.get(reason, reason)}" for reason, n in reasons.items())
    yield from (units.many(n, *words) for key, *words in _OF_WEIGHTS if (n := _total(services, "unseen", key)))


def problem(found: dict[str, Any], screen: Screen) -> list[str]:
    """Return the lines of a problem, with its id and the next command, ready to print."""
    until = f"  (silenced until {found['silenced_until']})" if found["silenced_until"] else ""
    return finding(f"{found['id']} {found['text']}", found["command"], screen, until)


def finding(text: str, command: str, screen: Screen, note: str = "") -> list[str]:
    """Return the lines of a finding and the next command, ready to print; nothing is cut."""
    wrapped = escape.wrapped(text, None if screen.width is None else max(20, screen.width - 2))
    lines, after = [f"{'  ' if n else '! '}{line}" for n, line in enumerate(wrapped)], f"{escape.text(command)}{note}"
    painted = [screen.paint(line, "yellow") for line in lines]
    if screen.width is None or escape.width(lines[-1]) + escape.width(after) + 2 <= screen.width:
        return [*painted[:-1], f"{painted[-1]}  {after}"]
    return [*painted, f"  {after}"]
