"""The daemon as a process: its parts, and what its API may ask of them.

Owns: the set of parts, and the locks between the API and the loop. Must not know: the order of the loop's steps, where
the memory is saved, HTTP. Invariants: a daemon that may not start changes nothing; no API request stops the loop.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import signal
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from brickd.analysis.evidence_news import About, EvidenceNews
from brickd.analysis.numerics import birth_alarms
from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import WINDOW_BYTES, Numerics
from brickd.analysis.numerics.online_state import Compared, DivergentSite
from brickd.analysis.problem_book import Book
from brickd.analysis.timing.alarms import Alarm, Alarms
from brickd.analysis.timing.findings import StragglerVerdict
from brickd.analysis.timing.growing_memory import GrowingMemory
from brickd.analysis.timing.monitor import Lookout
from brickd.analysis.timing.slower import Slower
from brickd.analysis.timing.stuck import Stuck
from brickd.analysis.weights import codec, verdicts
from brickd.analysis.weights.monitor import Scales, Weighing
from brickd.analysis.weights.rescans import WeightDoubts
from brickd.analysis.weights.shards import shards_of
from brickd.analysis.weights.store import Weights
from brickd.base.cpu_sharing import CpuSharing
from brickd.base.locks import process
from brickd.base.open_file_limits import WORKERS_MAX
from brickd.base.paths import runtime
from brickd.base.thresholds import Thresholds, assigned, assignments
from brickd.base.units import plural
from brickd.daemon.collector import Collector
from brickd.daemon.epochs import EPOCH_NS, Epochs
from brickd.daemon.loop import Loop
from brickd.daemon.notify import Notifier, Target
from brickd.daemon.problem_watch import ProblemWatch
from brickd.daemon.process_usage import Usages
from brickd.daemon.sampler import Sampler
from brickd.datasources.world import DaemonStatus, Details, Source
from brickd.errors import BrickdError, DaemonRefused, NoSuchWorker, SegmentConsumed
from brickd.model.event_log import KEPT, Log
from brickd.model.kernel_sources.files import Filed
from brickd.model.kernel_sources.store import KnownSources
from brickd.model.retained_workers import RetainedTotals
from brickd.model.survey_snapshot import Takes
from brickd.model.windows import Window, Windows
from brickd.model.worker_names import suggestion
from brickd.model.workers import Survey, Worker, select, survey
from brickd.query.orders import EndRecording, Forgetting, Obeyed, Recording, Rescanning, Setting, Silencing, Wish
from brickd.recording.library import ROOM, Shelf
from brickd.recording.ring_taps import Rings
from brickd.recording.session import Recorder, Recordings
from brickd.shm import _reader
from brickd.shm.sampling import ALL
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_files import EXHAUSTED, find, prefix
from brickd.state.runtime_dir import Home

_READ_AGAIN_NS = 30_000_000_000
_STARVED_AGAIN_NS = 60_000_000_000  # between two reports


class Daemon:
    """A running daemon, as its API sees it: every method may be called from any thread."""

    source: Source = "daemon"

    def __init__(
        self,
        home: Home,
        *,
        workers_max: int = WORKERS_MAX,
        numerics_bytes: int = WINDOW_BYTES,
        stays: bool = True,
        epoch_ns: int = EPOCH_NS,
        targets: Sequence[Target] = (),
    ) -> None:
        """Begin where the last daemon ended; workers choose other steps every `epoch_ns`.

        With `stays` False it drains only temporarily: workers that end later remove their own segments.
        """
        self.prefix, self.shelf = prefix(), Shelf(runtime().recordings)
        memory, broken = home.memory(self.prefix)
        weights, unweighed = home.weights(self.prefix)
        self._home, self._memory = home, memory
        # The numbers of a killed daemon's last events were not saved: skip them, so that no number is used twice.
        self.events = Log(memory.newest_event if memory.closed else memory.newest_event + KEPT)
        self._log_lock = threading.Lock()
        memory.closed = False
        lost = [each for each in (broken, unweighed) if each]
        self._broken = "; ".join(lost) or None
        for each in lost:
            self.log_event("break", each)
        filed = Filed(runtime().sources)
        filed.tidy()
        memory.sources.go_into(filed, self.log_event)
        self._began_ns, self._began_at_ns = time.monotonic_ns(), time.time_ns()
        self._numerics = Numerics(numerics_bytes, weights, shares=True)
        self._weights_kept, self._weights_news, self._weights_kept_ns = weights.changes, weights.news, 0
        self._shed: Callable[[], None] = lambda: None
        self._starved_ns = -_STARVED_AGAIN_NS
        self._collector = Collector(
            memory,
            self._keep,
            self.log_event,
            workers_max=workers_max,
            numerics=self._numerics,
            epochs=Epochs(epoch_ns),
            starve=self._starve,
        )
        self._collector.roster.stays = stays
        self._loop = Loop(self._collector, self.log_event)
        self._usages, self._windows = Usages(), Windows()
        self._lookout = Lookout(self.log_event, CpuSharing().of, lambda: self.thresholds)
        self._recordings = Recordings(self)
        self._weighing = Weighing(weights)
        scales = Scales(self._weighing, self.log_event)
        news = EvidenceNews(
            self.compared, self._weighing, self.log_event, lambda: self.thresholds, memory.unproven, self._keep_unproven
        )
        detectors = (Stuck(), GrowingMemory(), Slower(self._lookout.newest))
        self._alarms = Alarms(self.log_event, lambda: self.thresholds, detectors)
        self._notifier = Notifier(targets, self.prefix, self.log_event)
        send = self._notifier.send if targets else None
        self._problems = ProblemWatch(self, memory, self.log_event, self._keep_soon, send)
        doubts = WeightDoubts(self._weighing, self._collector.rescans)
        takers: list[Takes] = [self._windows, self._lookout, self._alarms, scales, doubts, news, self._recordings]
        takers.append(self._problems)  # it sees what the others found
        self._sampler = Sampler(self._used, takers, self._loop.log_defect)

    def log_event(self, kind: str, text: str, **of: str | None) -> None:
        """Log an event; the next daemon continues its numbers."""
        number = self.events.add(kind, text, **of).number
        with self._log_lock:  # threads of the API log, too, and may arrive here out of order
            self._memory.newest_event = max(self._memory.newest_event, number)

    def _keep(self, content: bytes) -> None:
        try:
            self.restore()
        except DaemonRefused as error:
            raise OSError(errno.EBUSY, str(error)) from None
        try:
            self._keep_weights()
            self._home.keep(content)
        except OSError as error:
            if error.errno in EXHAUSTED:
                self._starve()
            raise

    def sheds(self, shed: Callable[[], None]) -> None:
        """Set what closes all clients if the checkpoint or the drain lacks file descriptors."""
        self._shed = shed

    def _starve(self) -> None:
        """Close all clients, because no file descriptor is left."""
        self._shed()
        now_ns = time.monotonic_ns()
        if now_ns - self._starved_ns >= _STARVED_AGAIN_NS:
            self._starved_ns = now_ns
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            text = f"no file descriptor was left, of {most:,} that are allowed: all clients were closed"
            self.log_event("starved", text, command="brickd doctor")

    def _keep_weights(self) -> None:
        """Save the weights before the checkpoint that counts them; drop those of forgotten workers."""
        weights = self._numerics.weights
        weights.retain(self._memory.known.keys() | self._memory.gone.copy().keys())
        # If weights are only read again without a change, losing this file loses only the time of the last read.
        late = self._memory.closed or time.monotonic_ns() - self._weights_kept_ns >= _READ_AGAIN_NS
        if weights.news != self._weights_news or (late and weights.changes != self._weights_kept):
            self._home.keep_weights(codec.encode(self.prefix, weights))
            self._weights_kept, self._weights_news = weights.changes, weights.news
            self._weights_kept_ns = time.monotonic_ns()

    def restore(self) -> None:
        """Recreate a removed runtime directory; DaemonRefused if that fails."""
        if self._home.restore(self.prefix):
            self.log_event("restored", "the runtime directory had been removed: it was made and taken again")

    # ---- its life

    def start(self) -> None:
        """Start; DaemonRefused if another daemon drains these segments."""
        self._collector.look(time.monotonic_ns())
        for each in self._collector.directory.quarantined.values():
            if isinstance(each.refused, SegmentConsumed):
                raise DaemonRefused(
                    f"{process(each.refused.pid)} drains the segments {self.prefix}* already: end it, or set"
                    " BRICKD_SHM_PREFIX for other workers"
                )
        self._collector.change()  # save at once that this daemon has not ended cleanly
        self._collector.tick(time.monotonic_ns())
        here, gone = len(self._collector.roster.attached), len(self._collector.memory.gone)
        self.log_event("daemon_started", f"goes on with {plural(here, 'worker')}, and {gone:,} that are gone")
        self._loop.start()
        self._notifier.start()
        self._sampler.start()

    def end(self) -> None:
        """End recordings and the loop, and wait until they have ended."""
        self._recordings.close()
        self._collector.ending.set()
        self._sampler.end()
        self._notifier.end()
        self._loop.end()

    # ---- what the API asks

    def daemon(self) -> DaemonStatus:
        """The status of the daemon."""
        try:
            release = version("brickd")
        except PackageNotFoundError:
            release = None
        recorder, came_round_ns = self._recordings.running, self._loop.came_round_ns
        now_ns = time.monotonic_ns()  # in this order: the loop may come round at any time
        return DaemonStatus(
            release,
            os.getpid(),
            self._began_at_ns,
            now_ns - self._began_ns,
            self.prefix,
            self._collector.trouble or None,
            now_ns - came_round_ns,
            self._broken,
            None if recorder is None else recorder.trouble,
            tuple(self._notifier.documents()),
        )

    def survey(self) -> Survey:
        """All workers, as they are now."""
        return self._usages.laid_over(self._found())

    def window(self, found: Survey, of: Sequence[Worker], slots: int) -> Window | None:
        """What workers recorded lately."""
        return self._windows.over(of, time.monotonic_ns(), slots)

    def stragglers(self) -> StragglerVerdict:
        """The stragglers."""
        return self._lookout.judged().at(time.monotonic_ns())

    def alarms(self) -> tuple[Alarm, ...]:
        """The active alarms."""
        with self._collector.roster.lock:
            names = self._memory.names()
        births, for_ns = self._memory.compared.births, self.thresholds.ns("nan_for")
        return *self._alarms.hold(), *birth_alarms.alarms(births, names, time.time_ns(), for_ns)

    def problem_book(self) -> Book:
        """The book of problems over time."""
        return self._problems.book()

    def compared(self) -> Compared:
        """The differences of workers, and how much was compared."""
        return self._memory.compared

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """The recent fingerprints of some workers, and the stored evidence of their differences."""
        shards = shards_of(of)
        numerics = self._numerics.about(shards.keys())
        recall(numerics, self._memory.compared, shards)
        return numerics

    def weights(self, of: Sequence[Worker]) -> Weights:
        """The weights of some workers."""
        return self._numerics.weights.about({worker.reading.uuid for worker in of})

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """The sources of kernels."""
        return self._memory.sources

    def weighed(self, found: Survey) -> Sequence[verdicts.WeightsVerdict]:
        """The verdicts on the weights of all workers."""
        return self._weighing.judged(found.workers)

    def _used(self) -> Survey:
        """The survey, after a new look at the processes."""
        found = self._found()
        self._usages.look(found, time.monotonic_ns())
        return self._usages.laid_over(found)

    def _found(self) -> Survey:
        roster = self._collector.roster
        with roster.reading:
            with roster.lock:
                background = roster.background(time.monotonic_ns())
                held = roster.held(lambda: not self._collector.ending.is_set())
            return survey(self.prefix, background, held)

    def files(self) -> Sequence[str]:
        """All files in the directory of segments."""
        return find("")

    @contextlib.contextmanager
    def segment(self, file: str) -> Iterator[Segment]:
        """Open a segment to inspect it."""
        roster = self._collector.roster
        with roster.reading:
            with roster.lock:
                segment = roster.held().segment(file)
            if segment is not None:
                yield segment
                return
        with open_segment(file) as segment:
            yield segment

    def details(self, uuid: str) -> Details | None:
        """What was read from a worker's span rings since this daemon drains it."""
        with self._collector.roster.lock:
            held = self._collector.roster.attached.get(uuid)
        return None if held is None else Details(held.drain.recent(), held.drain.longest())

    def set(self, order: Setting) -> Obeyed:
        """Set what the workers of a service record, now and later; returns how many obey."""
        assert order.service is not None
        collector, roster = self._collector, self._collector.roster
        with roster.reading, roster.lock:
            known = {each.service for each in roster.attached.values()} | set(collector.memory.wishes)
            if order.service not in known:
                hint = suggestion(order.service, known)
                raise NoSuchWorker(f"no service {order.service}: {hint} (see brickd status)")
            before = collector.memory.wishes.get(order.service, Wish())
            wish = Wish(
                before.spans if order.spans is None else order.spans == "on",
                before.off if order.recording is None else order.recording == "off",
                order.fingerprints or before.fingerprints,
                () if ALL in order.sites else order.sites or before.sites,
            )
            here = [each.segment.thins for each in roster.of_service(order.service)]
            obeyed = Obeyed(wish, len(here), here.count(False))
            if not order.changes:
                return obeyed
            collector.memory.wishes.pop(order.service, None)
            if wish != Wish():
                collector.memory.wishes[order.service] = wish
            collector.change()
            roster.command(order.service)
        self._loop.wake()
        self.log_event("set", f"{wish.text()} for {plural(obeyed.workers, 'worker')}", service=order.service)
        return obeyed

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds of alarms."""
        return self._memory.thresholds

    def set_thresholds(self, order: Setting) -> Thresholds:
        """Change thresholds; returns all of them."""
        if order.threshold:
            self.take_thresholds(assigned(order.threshold, self.thresholds))
        return self.thresholds

    def take_thresholds(self, thresholds: Thresholds) -> None:
        """Judge by these thresholds from now on, and save them."""
        with self._collector.roster.lock:
            self._memory.thresholds = thresholds
            self._collector.change()
        self._loop.wake()
        changed = ", ".join(assignments(thresholds)) or "all of them the defaults"
        self.log_event("set", f"thresholds: {changed}")

    def rescan(self, order: Rescanning) -> list[str]:
        """Tell workers to read their weights again; returns their names."""
        select(self.survey().workers, order.names)
        roster = self._collector.roster
        with roster.reading, roster.lock:
            meant = [each for each in roster.drained() if each.heir is None and each.is_of(order.names)]
            return sorted(each.name for each in meant if each.rescan())

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Silence a problem, or lift the silence; returns the silenced problems."""
        return self._problems.silence(order)

    def test_notify(self) -> list[dict[str, Any]]:
        """Send a test to the targets of alarms; returns the answer of each."""
        return self._notifier.test()

    def _keep_unproven(self, reported: Collection[About]) -> None:
        self._memory.unproven = reported
        self._keep_soon()

    def _keep_soon(self) -> None:
        """Have the memory saved at the next tick."""
        with self._collector.roster.lock:
            self._collector.change()
        self._loop.wake()

    def forget(self, order: Forgetting) -> int:
        """Drop the totals of dead workers; returns their number."""
        collector = self._collector
        names = set(order.names)
        dead = [worker for worker in self.survey().workers if not worker.reading.alive] if names else []
        known = {worker.name for worker in dead} | {worker.service for worker in dead}
        for name in order.names:
            if name not in known:
                raise NoSuchWorker(f"no ended worker {name}: {suggestion(name, known)} (see brickd workers)")
        uuids = {worker.reading.uuid for worker in dead if worker.name in names or worker.service in names}

        def meant(gone: RetainedTotals) -> bool:
            return not names or gone.reading.uuid in uuids

        with collector.roster.lock:
            gone = [*collector.memory.gone.values(), *collector.memory.older.values()]
            living = {each.uuid for each in collector.roster.drained()}
            dropped = [each for each in gone if meant(each)]
            forgotten = {uuid for uuid, each in collector.memory.gone.items() if meant(each)}
            collector.roster.forget(forgotten)
            added_up = {key: each for key, each in collector.memory.older.items() if meant(each)}
            for key in added_up:
                collector.memory.drop(collector.memory.older.pop(key))
            if not names:
                collector.memory.removed.take_note()
            forgotten.update(self._unknown({each.reading.service for each in added_up.values()} if names else None))
            collector.change()

        def about(finding: DivergentSite) -> bool:
            named = forgotten.intersection(finding.named)
            return not living.intersection(finding.named) and bool(not names or finding.place.service in names or named)

        if collector.watch is not None:
            collector.watch.forget(forgotten, about)
        self._loop.wake()
        return sum(each.workers for each in dropped)

    def _unknown(self, services: Collection[str] | None) -> Collection[str]:
        """The producers of fingerprints without a place of their own in the memory, by service."""
        memory = self._collector.memory
        stay = memory.known.keys() | memory.gone.keys()
        left = [each for uuid, each in self._numerics.producers.copy().items() if uuid not in stay]
        return {each.uuid for each in left if services is None or each.service in services}

    # ---- recordings

    def record(self, order: Recording, first: Path | None = None) -> Recorder:
        """Begin a recording whose first file is `first`; None: a new file in the state directory."""
        found = self.survey()
        select(found.workers, order.names, foreign=found.foreign)
        if order.until_exit and not self.lives(order.names):
            raise NoSuchWorker("no live worker to wait for: start the workers first, or use --duration")
        recorder = self._recordings.begin(order, first or self.shelf.place())
        if first is None:
            for old in self.shelf.make_room():
                text = f"{old.files[0].path}: removed with all its files: {ROOM} newer recordings are kept, and no more"
                self.log_event("recording_removed", text)
        return recorder

    def end_recording(self, order: EndRecording) -> None:
        """End a recording soon."""
        recorder = self._recordings.running
        if recorder is None or recorder.id != order.recording:
            raise BrickdError(f"recording {order.recording} is not running")
        recorder.end("asked")

    def lives(self, names: tuple[str, ...]) -> bool:
        """Whether a worker of these names is drained; without names, any worker."""
        roster = self._collector.roster
        with roster.lock:
            return any(each.is_of(names) for each in roster.drained())

    def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
        """Copy the records of these rings into a spool; None: stop after all records made until now."""
        if spool is None:
            self._loop.tick()
        roster = self._collector.roster
        with roster.lock:
            rings.into(spool)
            roster.record(None if spool is None else rings)
        self._loop.wake()

    def down(self) -> None:
        """End the daemon soon."""
        os.kill(os.getpid(), signal.SIGTERM)  # like everyone else who stops it
