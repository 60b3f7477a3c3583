"""A running daemon as a data source of views.

Owns: the answers, which come from the state of the loop and from the results of snapshots. Must not know: how the
daemon starts and ends, recordings, HTTP. Invariant: no answer stops the loop.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Sequence

from brickd.analysis.numerics import birth_alarms
from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.online_state import Compared
from brickd.analysis.state_history import PastState
from brickd.analysis.timing.alarms import Alarm, Alarms
from brickd.analysis.timing.findings import StragglerVerdict
from brickd.analysis.timing.growing_memory import GrowingMemory
from brickd.analysis.timing.monitor import Lookout
from brickd.analysis.timing.slower import Slower
from brickd.analysis.timing.stuck import Stuck
from brickd.analysis.weights import verdicts
from brickd.analysis.weights.monitor import Weighing
from brickd.analysis.weights.shards import shards_of
from brickd.analysis.weights.store import Weights
from brickd.base.cpu_sharing import CpuSharing
from brickd.base.paths import runtime
from brickd.base.thresholds import Thresholds
from brickd.client.other_version import ours
from brickd.daemon.collector import Collector
from brickd.daemon.day_keeper import DayKeeper
from brickd.daemon.epochs import Epochs
from brickd.daemon.loop import Loop
from brickd.daemon.order_handler import OrderHandler
from brickd.daemon.process_usage import Usages
from brickd.daemon.saving import Saver
from brickd.datasources.world import Details, Source
from brickd.model.day_slots import DaySlot
from brickd.model.event_log import KEPT, Log
from brickd.model.kernel_sources.files import Filed
from brickd.model.kernel_sources.store import KnownSources
from brickd.model.step_texts import StepTexts
from brickd.model.windows import Window, Windows
from brickd.model.worker_survey import survey
from brickd.model.workers import Survey, Worker
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_files import find, prefix
from brickd.state.runtime_dir import Home


class LiveWorld:
    """The workers that a daemon drains. Any thread may call any method.

    Attributes:
        saver: writes the files of the daemon.
        orders: carries out the orders from the API.
    """

    source: Source = "daemon"

    def __init__(self, home: Home, *, workers_max: int, numerics_bytes: int, epoch_ns: int, stays: bool) -> None:
        """Continue from the saved state."""
        self.prefix = prefix()
        self._build = ours()  # the build of the running code, even if another one is installed later
        memory, broken = home.memory(self.prefix)
        weights, unweighed = home.weights(self.prefix)
        self._memory = memory
        # If the daemon was killed, the numbers of its last events were not saved. These numbers are skipped, so that no
        # number is used twice.
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
        self._day = DayKeeper(runtime().last_day(self.prefix), self.log_event) if stays else None
        self._lookout = Lookout(self.log_event, CpuSharing().of, self._thresholds)
        self._weighing = Weighing(weights)
        detectors = (Stuck(), GrowingMemory(), Slower(self._lookout.newest))
        self._alarms = Alarms(self.log_event, self._thresholds, detectors)

    def _thresholds(self) -> Thresholds:
        return self.orders.thresholds

    def log_event(self, kind: str, text: str, **of: str | None) -> None:
        """Log an event. The next daemon continues to number events after the last number of this one."""
        number = self.events.add(kind, text, **of).number
        with self._log_lock:  # threads of the API also log, and may get here out of order
            self._memory.newest_event = max(self._memory.newest_event, number)

    def earlier(self, at_ns: int) -> None:
        """Return None, because a daemon keeps only some facts about a past time."""

    def past(self, at_ns: int) -> PastState | None:
        """Return the workers and problems of a past time; None if they are unknown."""
        return self._memory.history.at(at_ns)

    def survey(self) -> Survey:
        """Return all workers, as they are now."""
        return self._usages.laid_over(self._found())

    def window(self, found: Survey, of: Sequence[Worker], length_ns: int) -> Window | None:
        """Return the work of these workers in the last `length_ns` nanoseconds; None if unknown."""
        return self._windows.over(of, time.monotonic_ns(), length_ns)

    def at_ns(self) -> int:
        """Return when the survey was made, in ns since 1970."""
        return time.time_ns()

    def day(self, began_ns: int, ended_ns: int) -> DaySlot | None:
        """Return the work of services in a period of the last two days; None if unknown."""
        return None if self._day is None else self._day.between(began_ns, ended_ns)

    def day_slots(self, began_ns: int, ended_ns: int, *, work: bool) -> Iterator[DaySlot]:
        """Return the slots of a period of the last two days."""
        return iter(()) if self._day is None else self._day.slots(began_ns, ended_ns, work=work)

    def stragglers(self) -> StragglerVerdict:
        """Return the stragglers."""
        return self._lookout.judged().at(time.monotonic_ns())

    def alarms(self) -> tuple[Alarm, ...]:
        """Return the active alarms."""
        with self._collector.roster.lock:
            names = self._memory.names()
        births, for_ns = self._memory.compared.births, self.orders.thresholds.ns("nan_for")
        return *self._alarms.hold(), *birth_alarms.alarms(births, names, time.time_ns(), for_ns)

    def compared(self) -> Compared:
        """Return the differences of workers, and the coverage."""
        return self._memory.compared

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """Return the recent fingerprints of some workers, and the stored evidence of their differences."""
        shards = shards_of(of)
        numerics = self._numerics.about(shards.keys())
        recall(numerics, self._memory.compared, shards)
        return numerics

    def step_texts(self, of: Sequence[Worker]) -> StepTexts:
        """Return the texts of steps."""
        return self._numerics.step_texts.copy()

    def weights(self, of: Sequence[Worker]) -> Weights:
        """Return the weights of some workers."""
        return self._numerics.weights.about({worker.reading.uuid for worker in of})

    def sources(self, of: Sequence[Worker]) -> KnownSources:
        """Return the sources of kernels."""
        return self._memory.sources

    def weighed(self, found: Survey) -> Sequence[verdicts.WeightsVerdict]:
        """Return the verdicts on the weights of all workers."""
        return self._weighing.judged(found.workers)

    def _used(self) -> Survey:
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
        """Return the names of all files in the directory of segments."""
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
        """Return the records that this daemon has drained from a worker's span rings."""
        with self._collector.roster.lock:
            held = self._collector.roster.attached.get(uuid)
        return None if held is None else Details(held.drain.recent(), held.drain.longest())
