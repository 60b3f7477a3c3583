"""A recording that serves as the data source of views. It takes the place of the machine.

Owns: which snapshot is shown, and the notes on the recording. Must not know: views, how chunks are stored in a file.
Invariants: A view builds the document that it would have built at the time of the snapshot. Damaged, cut or missing
data is reported.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from brickd.analysis.numerics.fingerprints import ALL_BYTES, Numerics
from brickd.analysis.timing.findings import StragglerVerdict
from brickd.analysis.timing.monitor import Lookout
from brickd.analysis.weights import verdicts
from brickd.analysis.weights.monitor import watching
from brickd.analysis.weights.replicas import judge
from brickd.analysis.weights.store import Weights
from brickd.base.timestamps import rfc3339
from brickd.base.units import plural
from brickd.datasources.world import DaemonStatus, Source
from brickd.errors import NoSuchWorker, RecordingRefused
from brickd.model.day_slots import DaySlot, SlotTables, slot
from brickd.model.kernel_sources.assembly import KernelSource as Text
from brickd.model.kernel_sources.assembly import SourceHead
from brickd.model.step_texts import StepTexts
from brickd.model.survey_snapshot import Snapshot
from brickd.model.windows import SLOTS, Window, Windows
from brickd.model.workers import Survey, Worker
from brickd.recording import recorded_fingerprints
from brickd.recording.body_codec import Beginning, RecordingCounts, Shown
from brickd.recording.chunks import Form, open_recording
from brickd.recording.file_bytes import Reads, unreported
from brickd.recording.file_index import FileIndex, RecordedEvents
from brickd.recording.recorded_segment import RecordedSegment

_REDACTED = (
    "redacted: checksums, steps, positions, streams and parameters have new keys; values of tensors and texts of"
    " kernels are omitted"
)
_VALUES = "it has statistics and sketches of tensors: they reveal tokens to anyone with the same weights"


class Backwards:
    """The snapshots of a recording, the newest first. Each snapshot is read only when it is needed, and only once."""

    def __init__(self, files: Sequence[FileIndex]) -> None:
        self._rest = (shown for file in reversed(files) for shown in file.snapshots_backwards())
        self._read: list[Shown] = []

    def first(self, count: int) -> Sequence[Shown]:
        """Return the newest `count` snapshots, or all if there are fewer."""
        self._read += itertools.islice(self._rest, max(0, count - len(self._read)))
        return self._read[:count]


def nearer(one: Snapshot | None, other: Snapshot, at_ns: int) -> Snapshot:
    """Return whichever of two snapshots is nearer to a time. If both are equally near, return the earlier one."""
    return other if one is None or abs(other.at_ns - at_ns) < abs(one.at_ns - at_ns) else one


class RecordedSources(NamedTuple):
    """The sources of kernels in these files."""

    files: Sequence[FileIndex]

    @property
    def counts(self) -> dict[str, int]:
        """Return no counts, because the recorded events contain the counts."""
        return {}

    def heads(self) -> dict[int, SourceHead]:
        """Return the heads of all sources, by hash."""
        return {hash_: head for file in self.files for hash_, head in file.sources().items()}

    def read(self, hash_: int) -> Text | None:
        """Return the source with this hash; None if no file has it."""
        return next((source for file in self.files if (source := file.source(hash_)) is not None), None)


class Replay:
    """A recording that views can use as a world. Its events are those that were logged during the recording."""

    source: Source = "recording"

    def __init__(self, files: Sequence[FileIndex], backwards: Backwards, events: RecordedEvents, back: int = 0) -> None:
        """Show the snapshot that is `back` snapshots before the last one."""
        self._files, self._backwards, self._back = files, backwards, back
        self.events = events

    @classmethod
    def of(cls, files: Sequence[FileIndex]) -> Replay:
        """Return the replay of one recording from its files, which must be in order."""
        events = RecordedEvents()
        for file in files:
            events.merge(file.events)
        return cls(files, Backwards(files), events)

    def through(self, look: Callable[[FileIndex], FileIndex]) -> Replay:
        """Return this replay, but read each file through what `look` returns for it."""
        return Replay([look(file) for file in self._files], self._backwards, self.events, self._back)

    def _last(self, count: int) -> Sequence[Shown]:
        """Return the shown snapshot and earlier ones, at most `count` in all."""
        return self._backwards.first(self._back + count)[self._back :]

    def before(self) -> Replay:
        """Return a replay that shows the previous snapshot. Raise RecordingRefused if there is no previous snapshot."""
        if len(self._last(2)) < 2:
            raise self._refused("has 1 snapshot, expected 2 to see which workers move")
        return Replay(self._files, self._backwards, self.events, self._back + 1)

    def at(self, at_ns: int) -> Replay:
        """Return a replay that ends at a time, and so shows the last snapshot until then; at least the first one."""
        first = next(self._snapshots(), None)
        until = at_ns if first is None else max(at_ns, first.at_ns)
        return Replay.of([file.until(until) for file in self._files])

    def _shown(self) -> Shown:
        for shown in self._last(1):
            return shown
        raise self._refused("has no complete snapshot")

    def _refused(self, lacks: str) -> RecordingRefused:
        """Return the refusal of a recording that has too few snapshots: it is too short, or a part of it is lost."""
        file = next((each for each in reversed(self._files) if each.end.words()), self._files[-1])
        if why := "; ".join(file.end.words()[:2]):
            return RecordingRefused(file.form.path, f"{lacks}: {why} (wait if it is still written, or record again)")
        return RecordingRefused(file.form.path, f"{lacks}: record for longer")

    # ---- the world of views

    def daemon(self) -> DaemonStatus | None:
        """Return the daemon's status at that time."""
        return self._shown().daemon

    def survey(self) -> Survey:
        """Return all workers at that time."""
        return self._shown().snapshot.survey

    def window(self, found: Survey, of: Sequence[Worker], length_ns: int) -> Window | None:
        """Return the work in the period before the shown snapshot."""
        windows = Windows()
        for shown in reversed(self._last(SLOTS + 1)[1:]):
            windows.take(shown.snapshot)
        return windows.over(of, self._shown().snapshot.now_ns, length_ns)

    def at_ns(self) -> int:
        """Return the time at which the shown snapshot was taken, in nanoseconds since 1970."""
        return self._shown().snapshot.at_ns

    def day(self, began_ns: int, ended_ns: int) -> DaySlot | None:
        """Return the work between the two snapshots that are nearest to these times.

        If one snapshot is nearest to both times, return the work between the two snapshots around the middle of the
        period.
        """
        began: Snapshot | None = None
        ended: Snapshot | None = None
        for each in self._snapshots():
            began = nearer(began, each, began_ns)
            ended = nearer(ended, each, ended_ns)
        if began is not None and ended is not None and began.at_ns < ended.at_ns:
            return slot(began, ended) if began_ns < ended.at_ns and began.at_ns <= ended_ns else None
        return next(self._around((began_ns + ended_ns) // 2), None)

    def day_slots(self, began_ns: int, ended_ns: int, *, work: bool) -> Iterator[DaySlot]:
        """Yield the work between each pair of consecutive snapshots whose midpoint is in this period.

        If there is no such pair, yield the work between the two snapshots around the middle of the period.
        """
        tables = SlotTables()
        found = False
        near = (shown.snapshot for file in self._files for shown in file.snapshots_of(began_ns, ended_ns))
        for before, after in itertools.pairwise(near):
            if before.at_ns < after.at_ns and began_ns <= (before.at_ns + after.at_ns) // 2 < ended_ns:
                found = True
                yield slot(before, after, tables)
        if not found:
            yield from self._around((began_ns + ended_ns) // 2)

    def _around(self, at_ns: int) -> Iterator[DaySlot]:
        """Yield the work between the snapshots around a time, if there are any."""
        for before, after in itertools.pairwise(self._snapshots()):
            if before.at_ns <= at_ns < after.at_ns:
                yield slot(before, after)
                return

    def _snapshots(self) -> Iterator[Snapshot]:
        return (shown.snapshot for file in self._files for shown in file.snapshots())

    def stragglers(self) -> StragglerVerdict:
        """Return the stragglers at that time."""
        lookout = Lookout(lambda *_, **__: None)  # nothing is logged, because the recording has the events of that time
        for shown in reversed(self._last(SLOTS + 1)):
            lookout.take(shown.snapshot)
        return lookout.judged()

    def alarms(self) -> None:
        """Return None, because the alarms of that time are in the events."""

    def earlier(self, at_ns: int) -> Replay:
        """Return the recording as it was at a time."""
        return self.at(at_ns)

    def past(self, at_ns: int) -> None:
        """Return None, because `earlier` returns everything."""

    def problem_book(self) -> None:
        """Return None, because a recording has no problems over time."""

    def compared(self) -> None:
        """Return None, because comparing all records would take too long."""

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """Return the recorded fingerprints and weights of these workers."""
        return self._collect(of, ALL_BYTES)

    def _collect(self, of: Sequence[Worker], bytes_max: int) -> Numerics:
        numerics = Numerics(bytes_max)
        self.add_fingerprints(of, numerics)
        return numerics

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints of workers to `numerics`, with `mark` as a prefix of the workers' uuids."""
        recorded_fingerprints.add(self._files, of, numerics, mark)

    def step_texts(self, of: Sequence[Worker]) -> StepTexts:
        """Return the texts of steps."""
        return self.numerics(of).step_texts

    def weights(self, of: Sequence[Worker]) -> Weights:
        """Return the recorded weights of these workers."""
        return self._collect(of, 0).weights

    def weighed(self, found: Survey) -> Sequence[verdicts.WeightsVerdict]:
        """Compare the weights. The records are read only if a worker watches weights."""
        of = watching(found.workers)
        return judge(self.weights(of), of) if of else ()

    def sources(self, of: Sequence[Worker]) -> RecordedSources:
        """Return the recorded sources."""
        return RecordedSources(self._files)

    def files(self) -> Sequence[str]:
        """Return the names of the segments of the recorded workers."""
        return [worker.reading.file for worker in self.survey().workers]

    @contextlib.contextmanager
    def segment(self, file: str) -> Iterator[RecordedSegment]:
        """Return the recorded segment with this name."""
        for worker in self.survey().workers:
            if worker.reading.file == file:
                yield RecordedSegment(worker.reading, self.daemon(), self._files)
                return
        raise NoSuchWorker(f"no segment {file} in the recording (brickd workers RECORDING lists the workers)")

    def details(self, uuid: str) -> None:
        """Return None, because `ring` returns all recorded slots."""

    # ---- the recording itself

    @property
    def _begun(self) -> Beginning | None:
        """Return the beginning of the recording. It is taken from the first file in which it is valid."""
        return next((file.beginning for file in self._files if file.beginning is not None), None)

    @property
    def redacted(self) -> bool:
        """Whether the recording is redacted. Checksums of a redacted recording can be compared only with each other."""
        return any(file.beginning is not None and file.beginning.redacted for file in self._files)

    @property
    def values(self) -> bool:
        """Whether the recording contains more about tensors than their checksums."""
        return any(file.beginning is not None and file.beginning.values for file in self._files)

    def now_ns(self) -> int:
        """The time of the shown snapshot, on the monotonic clock."""
        return self._shown().snapshot.now_ns

    def words(self) -> tuple[str, ...]:
        """Return the notes on the recording."""
        last = self._last(1)
        notes = [each for file in self._files for each in file.words()]
        begun = self._begun
        if self.redacted:
            notes.insert(0, _REDACTED)
        if self.values:
            notes.insert(0, _VALUES)
        if begun is not None and last:
            of = f" of {', '.join(begun.names)}" if begun.names else ""
            at = rfc3339(last[0].snapshot.at_ns)
            began = rfc3339(begun.began_at_ns)
            notes.insert(0, f"recorded{of} on {begun.host} since {began}: state at {at}")
        notes += self._not_given()
        lacking = {what: n for what, n in self._counts().not_recorded.items() if n}
        if lacking:
            counts = ", ".join(plural(n, what.removesuffix("s")) for what, n in lacking.items())
            notes.append(f"not recorded, because there was no room: {counts}")
        return tuple(notes)

    def _not_given(self) -> Iterator[str]:
        """Yield notes about files that are missing between the given files or after them."""
        numbers, last = [file.form.title.number for file in self._files], self._files[-1]
        if (between := numbers[-1] - numbers[0] + 1 - len(numbers)) > 0:
            yield f"{plural(between, 'file is', 'files are')} missing between the given files"
        if last.ending is not None and last.ending.why == "rotated":
            yield f"{last.form.path}: the recording continues in the next file"

    def _counts(self) -> RecordingCounts:
        """Return the counts at the end of the recording. If it has no end, return the last counts that are known."""
        ending = self._files[-1].ending
        if ending is not None:
            return ending.counts
        return next((shown.counts for shown in self._last(1)), RecordingCounts())

    def document(self) -> dict[str, Any]:
        """Return the description of the recording as JSON."""
        begun = self._begun
        return {
            "id": self._files[0].form.title.id.hex(),
            "host": None if begun is None else begun.host,
            "version": None if begun is None else begun.version,
            "began": None if begun is None else rfc3339(begun.began_at_ns),
            "shown": next((rfc3339(shown.snapshot.at_ns) for shown in self._last(1)), None),
            "names": [] if begun is None else list(begun.names),
            "values": None if begun is None else self.values,
            "redacted": None if begun is None else self.redacted,
            "not_recorded": self._counts().not_recorded,
            "files": [file.document() for file in self._files],
        }


@contextlib.contextmanager
def opened_files(paths: Sequence[str], reads: Reads = unreported) -> Iterator[list[Form]]:
    """Open the files of one recording, and return them in the order of their numbers. The paths may have any order.

    Raises:
        RecordingRefused: a file is not a recording, or the files belong to different recordings.
        NotPermitted: this user may not read a file.
    """
    with contextlib.ExitStack() as stack:
        forms = [stack.enter_context(open_recording(path, reads)) for path in paths]
        for form in forms:
            if form.title.id != forms[0].title.id:
                reason = f"belongs to another recording than {forms[0].path}: give the files of one recording"
                raise RecordingRefused(form.path, reason)
        forms.sort(key=lambda form: form.title.number)
        for one, other in itertools.pairwise(forms):
            if one.title.number == other.title.number:
                raise RecordingRefused(
                    other.path, f"is the same file of its recording as {one.path}: give each file once"
                )
        yield forms


@contextlib.contextmanager
def opened(paths: Sequence[str], reads: Reads = unreported) -> Iterator[Replay]:
    """Open a recording, given one or several of its files in any order; `reads` receives the progress.

    Raises: the errors of `opened_files`.
    """
    with opened_files(paths, reads) as forms:
        yield Replay.of([FileIndex(form) for form in forms])
