"""Recordings of spans that are made by hand, so that each time and each loss is known."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import dtypes
import forge
import rings
from tapes import Written, forged

from brickd.base.json_values import plain
from brickd.model.survey_snapshot import Snapshot
from brickd.model.workers import Survey, Worker
from brickd.recording import body_codec
from brickd.recording.body_codec import Beginning, RecordingCounts
from brickd.recording.chunks import Form, open_recording
from brickd.shm import _reader, segment_codec
from brickd.shm.clock import HostClocks
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import CallPath

HOSTILE = '=x\x1b[2J"\n;\udc80é'
BEGAN_NS = 1_790_000_000_000_000_000
EPOCH_NS = BEGAN_NS - 1000  # the export adds this to a tick to get a time since 1970
OUTER, INNER, GIVEN, DEVICE = 1, 2, 3, 4  # numbers of paths
NAMES: list[tuple[str, int] | None] = [("other", 0), ("outer", 0), ("inner", 4), ("gpu", 0), ("ffn", 0)]
PATHS = [
    CallPath(-1, 0, -1, 0),
    CallPath(-1, 1, -1, 0),
    CallPath(1, 2, 3, 0),
    CallPath(1, 2, -1, _reader.UNIT_NS),
    CallPath(1, 3, -1, _reader.UNIT_DEFERRED),
]


def worker(
    name: str = "api/0",
    number: int = 1,
    names: list[tuple[str, int] | None] | None = None,
    paths: Sequence[CallPath | None] = PATHS,
    **more: Any,
) -> Worker:
    """Return a worker whose ticks are ns of CLOCK_MONOTONIC_RAW."""
    with forge.segment_of(forge.golden()) as segment:
        reading = segment.read()
    header = reading.header | {
        "uuid": bytes([number]) * 16,
        "service": name.partition("/")[0].encode(errors="surrogateescape"),
        "pid": 70 + number,
    }
    header |= {"clock": _reader.CLOCK_MONOTONIC, "paths": 65472, "names": 65472}
    summaries = bytes(len(paths) * _reader.SUMMARY_BYTES)
    fields: dict[str, Any] = {
        "names": names or list(NAMES),
        "paths": list(paths),
        "sites": [],
        "summaries": summaries,
        "pid": None,
    }
    reading = replace(reading, header=header, **fields | more)
    return Worker(name, segment_codec.compact(reading), ledger_of(reading))


def snapshot(
    *workers: Worker, clocks: dict[int, tuple[int, int]] | None = None, host: HostClocks | None = None
) -> Written:
    """Return the chunk of a snapshot."""
    clocks = {_reader.CLOCK_MONOTONIC: (1000, 1000)} if clocks is None else clocks
    taken = Snapshot.of(Survey(list(workers), [], clocks=clocks), 1000, BEGAN_NS)
    host = HostClocks(1000, BEGAN_NS, 1000) if host is None else host
    return _reader.CHUNK_SNAPSHOT, BEGAN_NS, body_codec.snapshot(taken, None, RecordingCounts(), host)


def tables(*workers: Worker) -> Written:
    """Return the chunk of the names and paths of workers."""
    taken = Snapshot.of(Survey(list(workers), []), 1000, BEGAN_NS)
    body = body_codec.tables(taken, set())
    assert body is not None
    return _reader.CHUNK_TABLES, BEGAN_NS, body


def chunk(slots: dtypes.Array, *, number: int = 1, lane: int = 0, events: bool = False, inside: int = 0) -> Written:
    """Return the chunk of some slots of a worker's ring."""
    head = struct.pack("<IIIIQ40x", number, lane, int(events), inside, 0)
    return _reader.CHUNK_RECORDS, BEGAN_NS, head + slots.tobytes()


def spans(*rows: tuple[int, int, int], sequence: int = 1, **common: int) -> dtypes.Array:
    """Return records of spans: path, start, duration; the sequences count up."""
    values = [{"path": path, "start": start, "duration": duration} for path, start, duration in rows]
    array = rings.spans(*values, **common)
    array["sequence"] = range(sequence, sequence + len(rows))
    return array


def recording(*chunks: Written, workers: Iterable[Worker] | None = None, spans: bool = True, **begun: Any) -> bytes:
    """Return a recording of workers with these chunks."""
    of = [worker()] if workers is None else list(workers)
    began = Beginning(BEGAN_NS, "1", "host", "brickd-", spans=spans, **begun)
    numbers = {each.reading.uuid: each.reading.header["uuid"][0] for each in of}
    return forged(
        [
            (_reader.CHUNK_BEGINNING, BEGAN_NS, body_codec.frame(began)),
            (_reader.CHUNK_WORKERS, BEGAN_NS, plain(numbers).encode()),
            *([tables(*of)] if of else []),
            snapshot(*of),
            *chunks,
            (_reader.CHUNK_END, BEGAN_NS, bytes(64)),
        ]
    )


@contextmanager
def opened(folder: Path, *contents: bytes) -> Iterator[list[Form]]:
    """Write the files of a recording, and open them."""
    with ExitStack() as stack:
        forms = []
        for number, content in enumerate(contents):
            path = folder / f"made{number}.brick"
            path.write_bytes(content)
            forms.append(stack.enter_context(open_recording(str(path))))
        yield forms
