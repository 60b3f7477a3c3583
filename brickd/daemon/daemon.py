"""The daemon as a process: its parts, and what its API may do with them.

Owns: the set of parts, their start and end. Must not know: the order of the loop's steps, where the state is saved,
HTTP. Invariants: A daemon that is not allowed to start changes nothing. No API request stops the loop.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from brickd.analysis.evidence_news import About, EvidenceNews
from brickd.analysis.numerics.fingerprints import WINDOW_BYTES
from brickd.analysis.problem_book import Book
from brickd.analysis.weights.digests import WeightDigests
from brickd.analysis.weights.monitor import Scales
from brickd.analysis.weights.rescans import WeightDoubts
from brickd.base.files import process
from brickd.base.open_file_limits import WORKERS_MAX
from brickd.base.paths import runtime
from brickd.base.units import plural
from brickd.daemon.epochs import EPOCH_NS
from brickd.daemon.flight_recorder import FlightLimits, FlightRecorder
from brickd.daemon.live_world import LiveWorld
from brickd.daemon.notify import Notifier, Target
from brickd.daemon.problem_watch import ProblemWatch
from brickd.daemon.sampler import Sampler
from brickd.datasources.world import DaemonStatus
from brickd.errors import BrickdError, DaemonRefused, NoSuchWorker, SegmentConsumed
from brickd.model.exported_series import ExportedSeries
from brickd.model.survey_snapshot import Takes
from brickd.model.workers import select
from brickd.query.orders import EndRecording, Silencing, StartRecording
from brickd.recording.library import ROOM, FlightShelf, Shelf
from brickd.recording.ring_taps import Rings
from brickd.recording.session import Recorder, Recordings
from brickd.shm import _reader
from brickd.state.runtime_dir import Home

if TYPE_CHECKING:
    from brickd.metrics.page import MetricsPage
    from brickd.metrics.textfile import Textfile


class Daemon(LiveWorld):
    """A running daemon, as its API sees it. Any thread may call any method.

    Attributes:
        shelf: the recordings of the daemon.
        flights: the recordings that the flight recorder made.
        metrics: makes pages of metrics; None if nothing requests them.
    """

    def __init__(
        self,
        home: Home,
        *,
        workers_max: int = WORKERS_MAX,
        numerics_bytes: int = WINDOW_BYTES,
        stays: bool = True,
        epoch_ns: int = EPOCH_NS,
        targets: Sequence[Target] = (),
        serves_metrics: bool = False,
        metrics_textfile: Path | None = None,
        flight: FlightLimits | None = None,
    ) -> None:
        """Continue where the last daemon ended. Workers choose new steps every `epoch_ns`.

        If `stays` is False, this daemon drains only temporarily: workers that end later remove their own segments.
        `flight` has the limits of the flight recorder; None if there is no flight recorder.
        """
        super().__init__(home, workers_max=workers_max, numerics_bytes=numerics_bytes, epoch_ns=epoch_ns, stays=stays)
        self.shelf, self.flights = Shelf(runtime().recordings), FlightShelf(runtime().flight_recordings)
        self._recordings = Recordings(self)
        memory = self._memory
        scales = Scales(self._weighing, self.log_event)
        news = EvidenceNews(
            self.compared, self._weighing, self.log_event, self._thresholds, memory.unproven, self._keep_unproven
        )
        self._notifier = Notifier(targets, self.prefix, self.log_event)
        send = self._notifier.send if targets else None
        self._flight = None
        if flight is not None:
            failed = self._loop.log_defect
            self._flight = FlightRecorder(self.flights, self._recordings, self.log_event, failed, flight)
        record = None if self._flight is None else self._flight.take
        self._problems = ProblemWatch(self, memory, self.log_event, self._keep_soon, send, record)
        doubts = WeightDoubts(self._weighing, self._collector.rescans)
        takers: list[Takes] = [self._windows, self._lookout, self._alarms, scales, doubts, news, self._recordings]
        takers += [] if self._day is None else [self._day]
        takers.append(self._problems)  # the last taker, because it uses the results of the others
        self.metrics: MetricsPage | None = None
        self._textfile: Textfile | None = None
        if serves_metrics or metrics_textfile is not None:
            from brickd.metrics.page import MetricsPage  # here, because most daemons make no pages

            digests = WeightDigests(self._numerics.weights).of
            self.metrics = MetricsPage(self, memory.exported, self._keep_exported, digests, self.log_event)
        if self.metrics is not None and metrics_textfile is not None:
            from brickd.metrics.textfile import Textfile

            self._textfile = Textfile(metrics_textfile, self.metrics, self.log_event)
            takers.append(self._textfile)
        self._sampler = Sampler(self._used, takers, self._loop.log_defect)

    # ---- start and end

    def start(self) -> None:
        """Start; raise DaemonRefused if another daemon drains these segments."""
        self._collector.look(time.monotonic_ns())
        for each in self._collector.directory.quarantined.values():
            if isinstance(each.refused, SegmentConsumed):
                raise DaemonRefused(
                    f"{process(each.refused.pid)} already drains the segments {self.prefix}*: stop this process, or set"
                    " BRICKD_SHM_PREFIX to drain other workers"
                )
        self._collector.change()  # save at once: if this file is found later, this daemon did not end cleanly
        self._collector.tick(time.monotonic_ns())
        here, gone = len(self._collector.roster.attached), len(self._collector.memory.gone)
        self.log_event(
            "daemon_started", f"drains {plural(here, 'worker')}, and keeps the totals of {gone:,} that ended or died"
        )
        self._loop.start()
        self._notifier.start()
        if self._flight is not None:
            self._flight.start()
        self._sampler.start()

    def end(self) -> None:
        """End recordings and the loop, and wait until both have ended."""
        self._recordings.close()
        self._collector.ending.set()
        self._sampler.end()
        if self._flight is not None:
            self._flight.end()
        if self._textfile is not None:
            self._textfile.remove()
        if self._day is not None:
            self._day.end()
        self._notifier.end()
        self._loop.end()

    # ---- answers to the API

    def daemon(self) -> DaemonStatus:
        """Return the status of the daemon."""
        recorder, came_round_ns = self._recordings.running, self._loop.came_round_ns
        now_ns = time.monotonic_ns()  # read in this order, because the loop may finish a round at any time
        return DaemonStatus(
            self._build.version,
            os.getpid(),
            self._began_at_ns,
            now_ns - self._began_ns,
            self.prefix,
            self._collector.trouble or None,
            now_ns - came_round_ns,
            self._broken,
            None if recorder is None else recorder.trouble,
            tuple(self._notifier.documents()),
            self._build.sources,
            None if self._textfile is None else self._textfile.trouble,
            None if self._flight is None else self._flight.document(),
        )

    def problem_book(self) -> Book:
        """Return the book of problems over time."""
        return self._problems.book()

    def silence(self, order: Silencing) -> list[dict[str, Any]]:
        """Begin or end a silence; return the silenced problems."""
        return self._problems.silence(order)

    def test_notify(self) -> list[dict[str, Any]]:
        """Send a test to the targets of alarms; return the answer of each target."""
        return self._notifier.test()

    def _keep_unproven(self, reported: Collection[About]) -> None:
        self._memory.unproven = reported
        self._keep_soon()

    def _keep_exported(self, exported: ExportedSeries) -> None:
        self._memory.exported = exported
        self._keep_soon()

    def _keep_soon(self) -> None:
        """Make the next tick save the state."""
        with self._collector.roster.lock:
            self._collector.change()
        self._loop.wake()

    # ---- recordings

    def record(self, order: StartRecording, first: Path | None = None) -> Recorder:
        """Begin a recording in the file `first`, or in a new file in the state directory."""
        found = self.survey()
        select(found.workers, order.names, foreign=found.foreign)
        if order.until_exit and not self.lives(order.names):
            raise NoSuchWorker("no live worker to wait for: start the workers first, or use --duration")
        recorder = self._recordings.begin(order, first or self.shelf.place())
        if first is None:
            for old in self.shelf.make_room():
                text = f"{old.files[0].path}: the recording was removed: only the {ROOM} newest recordings are kept"
                self.log_event("recording_removed", text)
        return recorder

    def end_recording(self, order: EndRecording) -> None:
        """End a recording soon."""
        recorder = self._recordings.running
        if recorder is None or recorder.id != order.recording:
            raise BrickdError(f"recording {order.recording} is not running (brickd doctor lists the ended recordings)")
        recorder.end("asked")

    def lives(self, names: tuple[str, ...]) -> bool:
        """Whether a worker with one of these names is drained; without names, whether any worker is drained."""
        roster = self._collector.roster
        with roster.lock:
            return any(each.is_of(names) for each in roster.drained())

    def drain_into(self, rings: Rings, spool: _reader.Spool | None) -> None:
        """Copy the records of these rings into a spool.

        If `spool` is None, first copy all records that exist now, and then stop copying.
        """
        if spool is None:
            self._loop.tick()
        roster = self._collector.roster
        with roster.lock:
            rings.into(spool)
            roster.record(None if spool is None else rings)
        self._loop.wake()

    def down(self) -> None:
        """End the daemon soon."""
        os.kill(os.getpid(), signal.SIGTERM)  # every stop uses this signal
