"""The losses of a worker, and the settings that would make room for what was lost.

Owns: how a worker's counters are judged. Must not know: screens, other workers. Invariants: every counter of lost data
is reported. A truncated name is not a loss. An end without a begin is not a loss either: it happens in a child process
that was forked within a span. The suggested value of a setting makes room for everything that was refused, unless this
exceeds the agent's limit. If several losses of a worker suggest the same setting, they suggest the same value.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple

from brickd.base.units import plural
from brickd.shm import _reader, records
from brickd.shm.ledger import Ledger
from brickd.shm.segment_copy import Reading
from brickd.shm.table_needs import TIMES_MAX, Table, TableNeeds, table_needs

_EVENTS_MAX = 1 << 20  # the limit of BRICKD_EVENTS (agent/src/writer/config.c)

Kind = Literal[
    "lanes", "lane-memory", "memory", "opening", "nesting", "clock", "tables", "names", "marks", "amounts", "details",
    "sites", "tensors", "sources", "deferred", "events", "signals",
]  # fmt: skip


class Loss(NamedTuple):
    """One kind of data that is missing from a worker's totals or details.

    Attributes:
        kind: the cause; a worker has at most one loss of each kind.
        spans: whether spans are missing; if not, only their paths or details are missing.
        settings: the settings for the worker's next start, each as NAME=VALUE.
        amount: how many losses of this kind were counted; None for a full table, which has no counter.
        again: why the settings may not be enough; "" if they are enough.
    """

    kind: Kind
    text: str
    spans: bool = False
    settings: tuple[str, ...] = ()
    amount: int | None = None
    again: str = ""

    def __str__(self) -> str:
        names = " and ".join(setting.partition("=")[0] for setting in self.settings)
        return f"raise {names}: {self.text}" if names else self.text


def losses(reading: Reading, ledger: Ledger) -> list[Loss]:
    """Return the losses of this worker, the worst first."""
    header, process = reading.header, reading.process
    found = []
    if ledger.spans["no_lane"]:
        found.append(_without_lane(reading, ledger.spans["no_lane"]))
    if process["blocks_refused"]:
        times = plural(process["blocks_refused"], "time")
        text = f"the kernel refused memory {times}: /dev/shm or the memory cgroup is full"
        found.append(Loss("memory", text, spans=True, amount=process["blocks_refused"]))
    if ledger.rejected["room"]:
        spans = plural(ledger.rejected["room"], "span")
        text = f"{spans} not recorded: a thread had too many open at once, or the table of paths was full"
        found.append(Loss("nesting", text, spans=True, amount=ledger.rejected["room"]))
    if ledger.rejected["clock"]:
        spans = plural(ledger.rejected["clock"], "span")
        text = f"{spans} not recorded: the clock went backwards, or a given time is invalid"
        found.append(Loss("clock", text, spans=True, amount=ledger.rejected["clock"]))
    tables = (("names", process["names"], header["names"]), ("paths", process["paths"], header["paths"]))
    full = [(what, room) for what, used, room in tables if used >= room]
    needs = functools.cache(lambda: table_needs(reading, ledger))  # most workers have no full table
    if full:
        rooms = " or ".join(f"{room:,} {what}" for what, room in full)
        text = f"spans counted as 'other': the worker needs more than {rooms}"
        found.append(_loss_of("tables", text, needs(), ("names", "paths")))
    elif process["names_refused"]:
        names, room = plural(process["names_refused"], "name"), header["names"]
        marks = f", half of the {room:,} names were used (the limit for marks)" if process["names"] >= room // 2 else ""
        text = f"{names} recorded as 'other': a name was empty{marks}, or there was no memory"
        found.append(Loss("names", text, amount=process["names_refused"]))
    if refused := ledger.marks["refused"]:
        found.append(_without_mark(reading, refused, needs()))
    if amounts := sum(n * lane["amounts"] for lane, _, n in reading.alike()):
        right = "check elements, bytes, layers, durations, ids and scopes (BRICKD_STRICT=1 raises)"
        text = f"{plural(amounts, 'wrong argument')} not recorded: {right}"
        found.append(Loss("amounts", text, amount=amounts))
    if dropped := ledger.details_dropped.total():
        text = f"{plural(dropped, 'single span')} dropped; the totals are complete"
        found.append(Loss("details", text, amount=dropped))
    if refused := process["sites_refused"]:
        found.append(_without_site(reading, refused, needs()))
    if unreadable := process["tensors_refused"]:
        text = f"{plural(unreadable, 'tensor')} could not be read: on a device, or of a type that has no fingerprint"
        found.append(Loss("tensors", text, amount=unreadable))
    if untold := ledger.events_dropped[records.kind_name(_reader.KIND_SOURCE)]:  # a source waits if the ring is full
        most = f"longer than {_reader.SOURCE_MAX:,} bytes, or too many sources waited to be sent"
        found.append(Loss("sources", f"{plural(untold, 'source')} not sent: {most}", amount=untold))
    if starts := _starts_without_path(reading) if full else 0:
        text = f"{plural(starts, 'deferred start')} dropped: a table had no room for the name or the path of the brick"
        found.append(_loss_of("deferred", text, needs(), ("names", "paths"), starts))
    without = {_reader.KIND_CHECKED: refused, _reader.KIND_SOURCE: untold, _reader.KIND_DEFER: starts}
    events = ledger.events_dropped - Counter({records.kind_name(kind): n for kind, n in without.items()})
    if dropped := events.total():
        kinds = ", ".join(f"{n:,} {kind}" for kind, n in sorted(events.items()))
        found.append(_without_slots(reading, dropped, f"{plural(dropped, 'event')} dropped ({kinds})"))
    if ledger.spans["nested"]:
        text = f"{plural(ledger.spans['nested'], 'call')} from signal handlers not recorded"
        found.append(Loss("signals", text, amount=ledger.spans["nested"]))
    return found


def _without_lane(reading: Reading, spans: int) -> Loss:
    lanes = reading.header["lanes"]
    if len(reading.lanes) >= lanes:
        text = f"{plural(spans, 'span')} not recorded: the worker has more threads than {plural(lanes, 'lane')}"
        settings = _raised("lanes", lanes, _reader.LANES_MAX, reading.process["lanes_refused"])
        again = "the paths that threads without a lane need are unknown" if settings else ""
        return Loss("lanes", text, spans=True, amount=spans, settings=settings, again=again)
    if reading.process["blocks_refused"]:
        text = f"{plural(spans, 'span')} not recorded: there was no memory for a thread's lane"
        return Loss("lane-memory", text, spans=True, amount=spans)
    text = f"{plural(spans, 'span')} not recorded: they began while the segment was being opened"
    return Loss("opening", text, spans=True, amount=spans)


def _loss_of(kind: Kind, text: str, needs: TableNeeds, tables: Sequence[Table], amount: int | None = None) -> Loss:
    """Return the loss, with the settings for those `tables` that are too small."""
    settings = tuple(f"BRICKD_{table.upper()}={needs.sizes[table]}" for table in tables if table in needs.sizes)
    again = "" if needs.exact or not settings else "the values are estimates: a name refused twice counts twice"
    return Loss(kind, text, settings=settings, amount=amount, again=again)


def _without_mark(reading: Reading, marks: int, needs: TableNeeds) -> Loss:
    header, process = reading.header, reading.process
    tables = (("paths", process["paths"], header["paths"]), ("names", process["names"], header["names"]))
    halves = " or ".join(f"half of its {room:,} {what}" for what, used, room in tables if used >= room // 2)
    text = f"{plural(marks, 'mark')} not counted (launches, transfers, needs, shapes)"
    if not halves:
        why = "each was below 'other', outside of any span, in a wrong direction, or there was no memory"
        return Loss("marks", f"{text}: {why}", amount=marks)
    return _loss_of("marks", f"{text}: they may use only {halves}", needs, ("paths", "names"), marks)


def _without_site(reading: Reading, checksums: int, needs: TableNeeds) -> Loss:
    sites = reading.header["sites"]
    why = "the kernel has no name"
    if reading.process["sites"] >= sites:
        why = f"the worker needs more than {sites:,} sites for its kernels and weights"
    loss = _loss_of("sites", f"{plural(checksums, 'checksum')} dropped: {why}", needs, ("sites",), checksums)
    return loss._replace(again="more checksums may need more BRICKD_EVENTS") if loss.settings else loss


def _starts_without_path(reading: Reading) -> int:
    """Return how many deferred starts were dropped for another reason than a full ring.

    Only lanes whose ring was never more than half full are counted, because there the ring certainly had room.
    """
    half = reading.header["event_slots"] // 2
    return sum(
        n * lane["event_dropped"][_reader.KIND_DEFER] for lane, _, n in reading.alike() if lane["event_head"] <= half
    )


def _without_slots(reading: Reading, amount: int, dropped: str) -> Loss:
    slots = reading.header["event_slots"]
    room = f"{dropped}: a thread's ring holds {slots:,} slots"
    if reading.drained:
        text = f"{room}, and was full before the daemon read it"
        settings = _raised("events", slots, _EVENTS_MAX, _slots(reading))
        again = "the value is an estimate: another burst may be larger" if settings else ""
        return Loss("events", text, amount=amount, settings=settings, again=again)
    return Loss("events", f"{room}, and no daemon reads it (brickd up -d)", amount=amount)


def _slots(reading: Reading) -> int:
    """Estimate how many more slots the lane with the most dropped events would have needed.

    The estimate assumes that dropped events have the average size of the lane's other events.
    """
    return max(
        (
            sum(lane["event_dropped"]) * lane["event_head"] // max(1, lane["event_records"])
            for lane, _, _ in reading.alike()
        ),
        default=0,
    )


def _raised(what: str, room: int, most: int, refused: int) -> tuple[str, ...]:
    """Return the setting that makes room for what was refused, which is at least twice the present value.

    The value never exceeds `most`. If the present value is already `most`, return an empty tuple.
    """
    wanted = min(max(room + refused, 2 * room), TIMES_MAX * room, most)
    return (f"BRICKD_{what.upper()}={wanted}",) if room < most else ()
