"""The daemon as a process: its parts, and what its API may ask of them.

Owns: the set of parts, their start and end. Must not know: the order of the loop's steps, where the state is saved,
HTTP. Invariants: a daemon that may not start changes nothing; no API request stops the loop.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

from brickd.analysis.evidence_news import About, EvidenceNews
from brickd.analysis.numerics import birth_alarms
from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import WINDOW_BYTES, Numerics
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.problem_book import Book
from brickd.analysis.timing.alarms import Alarm, Alarms
from brickd.analysis.timing.findings import StragglerVerdict
from brickd.analysis.timing.growing_memory import GrowingMemory
from brickd.analysis.timing.monitor import Lookout
from brickd.analysis.timing.slower import Slower
from brickd.analysis.timing.stuck import Stuck
from brickd.analysis.weights import verdicts
from brickd.analysis.weights.monitor import Scales, Weighing
from brickd.analysis.weights.rescans import WeightDoubts
from brickd.analysis.weights.shards import shards_of
from brickd.analysis.weights.store import Weights
from brickd.base.cpu_sharing import CpuSharing
from brickd.base.files import process
from brickd.base.open_file_limits import WORKERS_MAX
from brickd.base.paths import runtime
from brickd.base.thresholds import Thresholds
from brickd.base.units import plural
from brickd.client.other_version import installed
from brickd.daemon.collector import Collector
from brickd.daemon.epochs import EPOCH_NS, Epochs
from brickd.daemon.loop import Loop
from brickd.daemon.notify import Notifier, Target
from brickd.daemon.order_handler import OrderHandler
from brickd.daemon.problem_watch import ProblemWatch
from brickd.daemon.process_usage import Usages
from brickd.daemon.sampler import Sampler
from brickd.daemon.saving import Saver
from brickd.datasources.world import DaemonStatus, Details, Source
from brickd.errors import BrickdError, DaemonRefused, NoSuchWorker, SegmentConsumed
from brickd.model.event_log import KEPT, Log
from brickd.model.kernel_sources.files import Filed
from brickd.model.kernel_sources.store import KnownSources
from brickd.model.survey_snapshot import Takes
from brickd.model.windows import Window, Windows
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey, Worker, select
from brickd.query.orders import EndRecording, Silencing, StartRecording
from brickd.recording.library import ROOM, Shelf
from brickd.recording.ring_taps import Rings
from brickd.recording.session import Recorder, Recordings
from brickd.shm import _reader
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_files import find, prefix
from brickd.state.runtime_dir import Home


class Daemon:
    """A running daemon, for its API: any thread may call any method.

    Attributes:
        saver: writes its files.
        orders: carries out the orders of its API.
    """

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
        """Begin where the last daemon ended; workers choose new steps every `epoch_ns`.

        With `stays` False, it drains only temporarily: workers that end after it remove their own segments.
        """
        self.prefix, self.shelf = prefix(), Shelf(runtime().recordings)
        self._version = installed("brickd")  # the version of the running code, even if another one is installed later
        memory, broken = home.memory(self.prefix)
        weights, unweighed = home.weights(self.prefix)
        self._memory = memory
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
        self.saver = Saver(home, memory, weights, self.log_event)
        self._collector = Collector(
            memory,
            self.saver.keep,
            self.log_event,
            workers_max=workers_max,
            numerics=self._numerics,
            epochs=Epochs(epoch_ns),
            starve=self.saver.starve,
        )
        self._collector.roster.stays = stays
        self._loop = Loop(self._collector, self.log_event)
        self.orders = OrderHandler(self._collector, self._numerics, self.survey, self._loop.wake, self.log_event)
        self._usages, self._windows = Usages(), Windows()

        def thresholds() -> Thresholds:
            return self.orders.thresholds

        self._lookout = Lookout(self.log_event, CpuSharing().of, thresholds)
        self._recordings = Recordings(self)
        self._weighing = Weighing(weights)
        scales = Scales(self._weighing, self.log_event)
        news = EvidenceNews(
            self.compared, self._weighing, self.log_event, thresholds, memory.unproven, self._keep_unproven
        )
        detectors = (Stuck(), GrowingMemory(), Slower(self._lookout.newest))
        self._alarms = Alarms(self.log_event, thresholds, detectors)
        self._notifier = Notifier(targets, self.prefix, self.log_event)
        send = self._notifier.send if targets else None
        self._problems = ProblemWatch(self, memory, self.log_event, self._keep_soon, send)
        doubts = WeightDoubts(self._weighing, self._collector.rescans)
        takers: list[Takes] = [self._windows, self._lookout, self._alarms, scales, doubts, news, self._recordings]
        takers.append(self._problems)  # last: it uses the results of the others
        self._sampler = Sampler(self._used, takers, self._loop.log_defect)

    def log_event(self, kind: str, text: str, **of: str | None) -> None:
        """Log an event; the next daemon continues its numbers."""
        number = self.events.add(kind, text, **of).number
        with self._log_lock:  # threads of the API also log, and may arrive here out of order
            self._memory.newest_event = max(self._memory.newest_event, number)

    # ---- its life

    def start(self) -> None:
        """Start; DaemonRefused if another daemon drains these segments."""
        self._collector.look(time.monotonic_ns())
        for each in self._collector.directory.quarantined.values():
            if isinstance(each.refused, SegmentConsumed):
                raise DaemonRefused(
                    f"{process(each.refused.pid)} already drains the segments {self.prefix}*: stop it, or set"
                    " BRICKD_SHM_PREFIX to drain other workers"
                )
        self._collector.change()  # save at once, because a file from now on means that this daemon did not end cleanly
        self._collector.tick(time.monotonic_ns())
        here, gone = len(self._collector.roster.attached), len(self._collector.memory.gone)
        self.log_event(
            "daemon_started", f"drains {plural(here, 'worker')}, and keeps the totals of {gone:,} that ended or died"
        )
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
        recorder, came_round_ns = self._recordings.running, self._loop.came_round_ns
        now_ns = time.monotonic_ns()  # in this order, because the loop may finish a round at any time
        return DaemonStatus(
            self._version,
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

    def window(self, found: Survey, of: Sequence[Worker], length_ns: int) -> Window | None:
        """The work of these workers in the last `length_ns`; None: unknown."""
        return self._windows.over(of, time.monotonic_ns(), length_ns)

    def stragglers(self) -> StragglerVerdict:
        """The stragglers."""
        return self._lookout.judged().at(time.monotonic_ns())

    def alarms(self) -> tuple[Alarm, ...]:
        """The active alarms."""
        with self._collector.roster.lock:
            names = self._memory.names()
        births, for_ns = self._memory.compared.births, self.orders.thresholds.ns("nan_for")
        return *self._alarms.hold(), *birth_alarms.alarms(births, names, time.time_ns(), for_ns)

    def problem_book(self) -> Book:
        """The book of problems over time."""
        return self._problems.book()

    def compared(self) -> Compared:
        """The differences of workers, and the coverage."""
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
        """Return the records read from a worker's span rings since this daemon drains it."""
        with self._collector.roster.lock:
            held = self._collector.roster.attached.get(uuid)
        return None if held is None else Details(held.drain.recent(), held.drain.longest())

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Begin or end a silence; return the silenced problems."""
        return self._problems.silence(order)

    def test_notify(self) -> list[dict[str, Any]]:
        """Send a test to the targets of alarms; return the answer of each."""
        return self._notifier.test()

    def _keep_unproven(self, reported: Collection[About]) -> None:
        self._memory.unproven = reported
        self._keep_soon()

    def _keep_soon(self) -> None:
        """Request that the next tick saves the state."""
        with self._collector.roster.lock:
            self._collector.change()
        self._loop.wake()

    # ---- recordings

    def record(self, order: StartRecording, first: Path | None = None) -> Recorder:
        """Begin a recording in the file `first`; None: a new file in the state directory."""
        found = self.survey()
        select(found.workers, order.names, foreign=found.foreign)
        if order.until_exit and not self.lives(order.names):
            raise NoSuchWorker("no live worker to wait for: start the workers first, or use --duration")
        recorder = self._recordings.begin(order, first or self.shelf.place())
        if first is None:
            for old in self.shelf.make_room():
                text = f"{old.files[0].path}: removed with all its files: only the {ROOM} newest recordings are kept"
                self.log_event("recording_removed", text)
        return recorder

    def end_recording(self, order: EndRecording) -> None:
        """End a recording soon."""
        recorder = self._recordings.running
        if recorder is None or recorder.id != order.recording:
            raise BrickdError(f"recording {order.recording} is not running (brickd doctor lists those that have ended)")
        recorder.end("asked")

    def lives(self, names: tuple[str, ...]) -> bool:
        """Whether a worker with one of these names is drained; without names, any worker."""
        roster = self._collector.roster
        with roster.lock:
            return any(each.is_of(names) for each in roster.drained())

    def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
        """Copy the records of these rings into a spool; None: stop after all current records."""
        if spool is None:
            self._loop.tick()
        roster = self._collector.roster
        with roster.lock:
            rings.into(spool)
            roster.record(None if spool is None else rings)
        self._loop.wake()

    def down(self) -> None:
        """End the daemon soon."""
        os.kill(os.getpid(), signal.SIGTERM)  # as for every other stop
