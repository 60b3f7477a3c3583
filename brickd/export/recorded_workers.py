"""The workers of a recording: names, places and clocks, read before any span.

Owns: which snapshot describes a worker. Must not know: records of rings, formats. Invariants: a worker is described by
the last snapshot that shows it alone. A snapshot in which it is merged into a sum is not used, because a sum has other
tables. Only the chunks that describe workers are read; of all other chunks, only the heads are read.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace

from brickd.base.timestamps import rfc3339
from brickd.errors import BrickdError, NoSuchWorker, RecordingRefused
from brickd.export.clock_map import ClockReadings
from brickd.export.places import Place, flags_of, places_of, valid
from brickd.export.span_rows import RecordedWorker
from brickd.model.worker_names import suggestion
from brickd.model.workers import Worker, select
from brickd.recording import body_codec
from brickd.recording.body_codec import Beginning, Shown
from brickd.recording.chunks import Chunk, Form
from brickd.recording.file_index import NameTables
from brickd.recording.mistaken_files import named_files
from brickd.recording.ring_taps import read_numbers
from brickd.shm import _reader

# For each table of names and paths, its places and flags. Most workers of a service share one table.
Tables = dict[tuple[int, int], tuple[list[Place], bytes]]


_INVALID_MAX = 10


@dataclass
class DescribedRecording:
    """The description of the workers in a recording.

    Attributes:
        workers: the workers that a snapshot describes, keyed by their id in the recording.
        others: the names of the workers that a snapshot describes but a filter excludes, keyed by their id.
        began: the beginning of the recording; None if it is damaged.
    """

    began: Beginning | None = None
    clocks: ClockReadings = field(default_factory=ClockReadings)
    workers: dict[int, RecordedWorker] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)
    snapshots: int = 0
    invalid: dict[tuple[str, int], str] = field(default_factory=dict)  # the first invalid chunks, by file and offset

    def refuse(self, form: Form, chunk: Chunk, error: ValueError) -> None:
        """Remember an invalid chunk, but only once."""
        if len(self.invalid) < _INVALID_MAX:
            self.invalid.setdefault((form.path, chunk.offset), str(error))

    @property
    def epoch_ns(self) -> int:
        """The time since 1970 minus the time of CLOCK_MONOTONIC_RAW; 0 if the recording has no clocks."""
        host = self.clocks.host
        return 0 if host is None else host.unix_ns - host.raw_ns

    def words(self) -> list[str]:
        """Describe the recording, and its invalid chunks."""
        invalid = [f"{path}: damaged from byte {offset}: {why}" for (path, offset), why in self.invalid.items()]
        if self.began is None:
            return invalid
        of = f" of {', '.join(self.began.names)}" if self.began.names else ""
        return [f"recorded{of} on {self.began.host} since {rfc3339(self.began.began_at_ns)}", *invalid]


def read(forms: Sequence[Form], names: Sequence[str] = (), bricks: Collection[str] = ()) -> DescribedRecording:
    """Read the descriptions of all workers.

    Args:
        forms: the files of one recording, in order.
        names: the names of the wanted workers and services; empty: all.
        bricks: the names of the wanted bricks; empty: all.

    Raises:
        RecordingRefused: no snapshot is complete.
        NoSuchWorker: an unknown name of a worker.
        BrickdError: no worker has a brick of this name.
    """
    found = DescribedRecording()
    numbers: dict[str, int] = {}
    described: dict[str, Worker] = {}
    threads: dict[str, dict[int, int]] = defaultdict(dict)  # by uuid and lane; of several threads, the last one
    for form in forms:
        for shown in _snapshots(form, found, numbers):
            found.snapshots += 1
            found.clocks.add(shown)
            for each in shown.snapshot.survey.workers:
                if each.together == 1:
                    described[each.reading.uuid] = _light(each)
                    known = threads[each.reading.uuid]
                    known |= {lane: row["thread"] for lane, row, _ in each.reading.lanes if row["thread"]}
    if not found.snapshots:
        why = next(iter(found.invalid.values()), "none was recorded")
        raise RecordingRefused(forms[-1].path, f"has no complete snapshot to name its spans: {why}: record again")
    tables: Tables = {}
    try:
        chosen = {each.reading.uuid for each in select(list(described.values()), names)}
    except NoSuchWorker as error:
        raise NoSuchWorker(named_files(names) + str(error)) from None
    for uuid, worker in described.items():
        if (number := numbers.get(uuid)) is None:
            continue
        if uuid not in chosen:
            found.others[number] = worker.name
        elif (made := _worker(len(found.workers), worker, found.clocks, bricks, tables, threads[uuid])) is not None:
            found.workers[number] = made
    _require_bricks(bricks, described.values())
    return found


def _snapshots(form: Form, found: DescribedRecording, numbers: dict[str, int]) -> Iterable[Shown]:
    """Yield the snapshots of a file. The ids of the workers in this file are added to `numbers`."""
    tables = NameTables(form, lambda chunk, error: found.refuse(form, chunk, error))
    wanted = _reader.CHUNK_BEGINNING, _reader.CHUNK_WORKERS, _reader.CHUNK_TABLES, _reader.CHUNK_SNAPSHOT
    for chunk in form.only(*wanted):
        try:
            if chunk.kind == _reader.CHUNK_SNAPSHOT:
                yield body_codec.read_snapshot(chunk.body, chunk.at_ns, tables.at(chunk.offset))
            else:
                _take(chunk, tables, found, numbers)
        except ValueError as error:
            found.refuse(form, chunk, error)


def _take(chunk: Chunk, tables: NameTables, found: DescribedRecording, numbers: dict[str, int]) -> None:
    match chunk.kind:
        case _reader.CHUNK_BEGINNING:
            found.began = found.began or body_codec.read_beginning(chunk.body)
        case _reader.CHUNK_WORKERS:
            for uuid, number in read_numbers(chunk.body).items():
                numbers.setdefault(uuid, number)
        case _reader.CHUNK_TABLES:
            tables.add(chunk.offset)


def _light(worker: Worker) -> Worker:
    """Return the worker without its totals, so that memory use does not grow with them."""
    return worker._replace(reading=replace(worker.reading, summaries=b"", latency=b""))


def _worker(
    number: int,
    worker: Worker,
    clocks: ClockReadings,
    bricks: Collection[str],
    tables: Tables,
    threads: dict[int, int],
) -> RecordedWorker | None:
    reading = worker.reading
    knots = clocks.map_of(reading)
    if knots is None:
        return None
    key = id(reading.names), id(reading.paths)
    if key not in tables:
        places = places_of(reading)
        tables[key] = places, flags_of(reading, places, bricks)
    places, flags = tables[key]
    return RecordedWorker(
        number=number,
        uuid=reading.uuid,
        name=valid(worker.name),
        service=valid(worker.service),
        pid=reading.pid or reading.header["pid"],
        places=places,
        flags=flags,
        knots=knots,
        tick_ns=reading.tick_ns,
        threads=threads,
    )


def _require_bricks(bricks: Collection[str], workers: Iterable[Worker]) -> None:
    """Raise an error if no worker has a brick of this name. Otherwise, the filter would silently find nothing."""
    if not bricks:
        return
    known = {valid(entry[0]) for worker in workers for entry in worker.reading.names if entry is not None}
    for name in bricks:
        if name not in known:
            raise BrickdError(f"no brick {name}: {suggestion(name, known)} (brickd bricks RECORDING lists the bricks)")
