"""The codec of a recording's chunk bodies: beginning, snapshots, weights, events and end.

Owns: the format of the bodies: JSON with packed summaries; the body of weights ends with columns. Must not know: files,
when data is written. Invariants: Decoding reverses encoding. An invalid body raises ValueError. A file stores names,
paths and sites once for all readings that share them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, get_args

from brickd.analysis.weights import codec
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.tensors import Tensors
from brickd.analysis.weights.worker_tensors import Holds
from brickd.base import json_values
from brickd.base.json_values import composed, plain
from brickd.datasources.world import DaemonStatus
from brickd.errors import SegmentRefused, SegmentUnopened
from brickd.model.event_log import Event
from brickd.model.survey_snapshot import Snapshot
from brickd.model.worker_origins import ADDED_MAX, Origin
from brickd.model.workers import Survey, Usage, Worker
from brickd.shm import _reader, segment_codec
from brickd.shm.clock import HostClocks
from brickd.shm.ledger import ledger_of

# The limits of lists and bodies.
_EVENT_BYTES_MAX = 1 << 16
_OWN_BYTES_MAX = 1 << 20
_TABLES_MAX = _REFUSED_MAX = 1 << 16
_WORDS_MAX = 1 << 10
_CLOCKS_MAX = 16
_COUNTS_MAX = 64

Why = Literal["asked", "over", "exited", "left", "rotated", "daemon_ended", "full", "yielded"]


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first chunk of every file of a recording.

    Attributes:
        began_at_ns: when the recording began, since 1970.
        version: the version of the brickd that wrote the file; None if it ran from a source tree.
        prefix: the prefix of the segments' names.
        names: the names of the recorded workers and services; empty if all workers were recorded.
        spans: whether each span was recorded in detail.
        redacted: whether checksums, steps and positions were replaced by keyed hashes, and values were omitted.
        values: whether the recording has statistics, sketches and the FNV-1a checksums of tensors.
    """

    began_at_ns: int
    version: str | None
    host: str
    prefix: str
    names: tuple[str, ...] = ()
    spans: bool = False
    redacted: bool = False
    values: bool = False


@dataclass(frozen=True, slots=True)
class RecordingCounts:
    """For each kind of item, how many were recorded and how many were not; `records` counts ring slots."""

    snapshots: int = 0
    events: int = 0
    records: int = 0
    not_recorded: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RecordingEnd:
    """The last chunk of a finished file: the reason, and the counts of the recording so far.

    Attributes:
        why: why the recording ended. asked: a command ended it. over: its time was over. exited: its workers ended.
            left: its client disconnected. rotated: the recording continues in the next file. daemon_ended: the daemon
            ended. full: the only file of an automatic recording cannot take more data. yielded: a client began another
            recording, which ends an automatic one.
    """

    why: Why
    counts: RecordingCounts


# ---- encode


def frame(of: Beginning | RecordingEnd) -> bytes:
    """Encode the beginning or the end of a file."""
    return plain(asdict(of)).encode()


def event(of: Event) -> bytes:
    """Encode an event. An event without a problem has no such field, so earlier versions can read it."""
    return plain(of if of.problem is not None else of[:-1]).encode()


def tables(of: Snapshot, written: set[int]) -> bytes | None:
    """Encode those names, paths and sites of a snapshot that are not in the file yet; None if there are none.

    The ids of the encoded tables are added to `written`. If `written` is empty, the body starts new tables, and later
    snapshots do not need earlier ones.
    """
    afresh = not written
    new = segment_codec.SharedTables.over([worker.reading for worker in of.survey.workers]).without(written)
    if not (numbers := new.numbers()):
        return None
    written |= numbers
    return composed({"afresh": plain(afresh)} | new.texts()).encode()


def snapshot(
    of: Snapshot, daemon: DaemonStatus | None, counts: RecordingCounts, host: HostClocks | None = None
) -> bytes:
    """Encode a snapshot without names, paths and sites; `counts` are the counts before the snapshot."""
    survey = of.survey
    members = {
        "now_ns": of.now_ns,
        "daemon": None if daemon is None else daemon._asdict(),
        "counts": asdict(counts),
        "refused": [(error.path, error.reason, isinstance(error, SegmentUnopened)) for error in survey.refused],
        "foreign": 0,  # earlier versions counted files of other users here, and require this member
        "words": survey.words,
        "clocks": dict(survey.clocks),
        "host_clocks": host,
    }
    workers = f"[{','.join(map(_worker, survey.workers))}]"
    return composed({name: plain(value) for name, value in members.items()} | {"workers": workers}).encode()


def weights(contents: Mapping[int, bytes], tensors: Mapping[str, Tensors], workers: Mapping[str, Holds]) -> bytes:
    """Encode the state of weights, as `redact.weights` returns it."""
    return b"".join(codec.pieces(contents, tensors, workers))


def _worker(worker: Worker) -> str:
    members = {
        "name": worker.name,
        "together": worker.together,
        "usage": worker.usage and worker.usage[:2],
        "flags": worker.reading.flags,
        "asked_rate": worker.reading.asked_rate,
        "left_out": f"{worker.reading.left_out:x}",
        "added": worker.added,
    }
    return composed(
        {name: plain(value) for name, value in members.items()} | {"reading": segment_codec.written(worker.reading)}
    )


# ---- decode


@dataclass(frozen=True, slots=True)
class Shown:
    """A decoded snapshot, with the daemon's status and the counts at that time.

    `host` has the times that the machine's clocks showed at one moment; None if an earlier brickd wrote the snapshot.
    """

    snapshot: Snapshot
    daemon: DaemonStatus | None
    counts: RecordingCounts
    host: HostClocks | None = None


def read_beginning(body: bytes) -> Beginning:
    """Decode a beginning that `frame` encoded."""
    with json_values.validating():
        found = json_values.document(body, _OWN_BYTES_MAX)
        redacted = bool(found.get("redacted", False))
        return Beginning(
            json_values.whole(found["began_at_ns"]),
            json_values.optional(found["version"], json_values.text),
            json_values.text(found["host"]),
            json_values.text(found["prefix"]),
            tuple(map(json_values.text, found["names"])),
            bool(found["spans"]),
            redacted,
            # Older files do not have this member. Among them, only the redacted ones have no values.
            bool(found.get("values", not redacted)),
        )


def read_ending(body: bytes) -> RecordingEnd:
    """Decode an end that `frame` encoded."""
    with json_values.validating():
        found = json_values.document(body, _OWN_BYTES_MAX)
        if found["why"] not in get_args(Why):
            raise ValueError(f"why is {found['why']!r}, expected one of {', '.join(get_args(Why))}")
        return RecordingEnd(found["why"], _counts(found["counts"]))


def read_event(body: bytes) -> Event:
    """Decode what `event` encoded."""
    with json_values.validating():
        number, time_ns, kind, text, *whose = json_values.document(body, _EVENT_BYTES_MAX)
        kind, text = json_values.text(kind), json_values.text(text)
        # Older files have no problem, and a later brickd may add members.
        json_values.require(len(whose) >= 3, "at least 7 members", whose)
        of = (json_values.optional(each, json_values.text) for each in whose[:4])
        return Event(json_values.whole(number), json_values.whole(time_ns), kind, text, *of)


def read_tables(body: bytes) -> tuple[segment_codec.SharedTables, bool]:
    """Decode the output of `tables`; also return whether it starts new tables."""
    with json_values.validating():
        document = json_values.document(body, _reader.CHUNK_BYTES_MAX)
        for what in ("names", "paths", "sites"):
            json_values.limited(document.get(what, ()), _TABLES_MAX)
        return segment_codec.SharedTables.of(document), document.get("afresh") is True


def read_snapshot(body: bytes, at_ns: int, tables: segment_codec.SharedTables) -> Shown:
    """Decode the output of `snapshot`; `at_ns` is its time since 1970, `tables` has its tables."""
    with json_values.validating():
        found = json_values.document(body, _reader.CHUNK_BYTES_MAX)
        survey = Survey(
            [_read_worker(each, tables) for each in found["workers"]],
            [_read_refused(*each) for each in json_values.limited(found["refused"], _REFUSED_MAX)],
            words=tuple(map(json_values.text, json_values.limited(found["words"], _WORDS_MAX))),
            clocks=_read_clocks(found.get("clocks", {})),
        )
        daemon = None if found["daemon"] is None else _read_facts(found["daemon"])
        taken = Snapshot(json_values.whole(found["now_ns"]), at_ns, survey)
        host = json_values.optional(found.get("host_clocks"), HostClocks.of)
        return Shown(taken, daemon, _counts(found["counts"]), host)


def read_usage(body: bytes, at_ns: int) -> Iterator[tuple[str, int, float | None, int]]:
    """Decode only the resource use in the output of `snapshot`: worker, time, percent of one processor, memory."""
    with json_values.validating():
        for each in json_values.document(body, _reader.CHUNK_BYTES_MAX)["workers"]:
            if each["usage"] is not None:
                percent, rss = each["usage"]
                cpu = json_values.optional(percent, json_values.number)
                yield json_values.text(each["name"]), at_ns, cpu, json_values.whole(rss)


def read_weights(body: bytes) -> Weights:
    """Decode what `weights` encoded."""
    with json_values.validating():
        line, rest = codec.parted(body)
        return codec.read(json_values.document(line, _reader.CHUNK_BYTES_MAX), rest)


def _read_worker(found: dict[str, Any], tables: segment_codec.SharedTables) -> Worker:
    reading = replace(
        segment_codec.reading(found["reading"], tables),
        flags=json_values.whole(found["flags"]),
        asked_rate=json_values.whole(found.get("asked_rate", 0), most=_reader.RATE_ALL),
        left_out=json_values.bits(found.get("left_out", "0"), _reader.SITES_MAX),
    )
    usage = None
    if found["usage"] is not None:
        percent, rss = found["usage"]
        usage = Usage(json_values.optional(percent, json_values.number), json_values.whole(rss))
    added = tuple(_read_origin(*each) for each in json_values.limited(found.get("added", ()), ADDED_MAX))
    together = json_values.whole(found["together"], 1)
    return Worker(json_values.text(found["name"]), reading, ledger_of(reading), together, usage, added)


def _read_origin(uuid: Any, *numbers: Any) -> Origin:
    took, ticks, ns = map(json_values.whole, numbers)
    return Origin(json_values.text(uuid), took, ticks, ns)


def _read_clocks(found: dict[str, tuple[Any, Any]]) -> dict[int, tuple[int, int]]:
    clocks = json_values.limited(found, _CLOCKS_MAX).items()
    return {int(kind): (json_values.whole(ticks), json_values.whole(ns)) for kind, (ticks, ns) in clocks}


def _read_refused(path: Any, reason: Any, unopened: Any) -> SegmentRefused:
    return (SegmentUnopened if unopened else SegmentRefused)(json_values.text(path), json_values.text(reason))


def _read_facts(found: dict[str, Any]) -> DaemonStatus:
    return DaemonStatus(
        json_values.optional(found["version"], json_values.text),
        json_values.whole(found["pid"]),
        json_values.whole(found["started_ns"]),
        json_values.whole(found["uptime_ns"]),
        json_values.text(found["prefix"]),
        json_values.optional(found["checkpoint_problem"], json_values.text),
        json_values.whole(found["loop_still_ns"]),
        json_values.optional(found["broken"], json_values.text),
        json_values.optional(found["recording_problem"], json_values.text),
    )


def _counts(found: dict[str, Any]) -> RecordingCounts:
    counted = json_values.limited(found["not_recorded"], _COUNTS_MAX)
    lacking = {json_values.text(what): json_values.whole(n) for what, n in counted.items()}
    snapshots, events, records = (json_values.whole(found.get(name, 0)) for name in ("snapshots", "events", "records"))
    return RecordingCounts(snapshots, events, records, lacking)
