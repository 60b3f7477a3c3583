"""The daemon's loop: finds, drains and saves segments, and removes those of dead workers.

Owns: the order of the loop's steps, so that every event counts once. Must not know: where the state is saved, queries,
signals, the time of day. A tick has these steps, in this order:

    look      open and lock new segments, and continue at the saved positions
    epoch     write the epoch by which workers choose steps, if it changed or if workers came
    canary    give the next worker of a service its order for a canary
    drain     copy and add up new records, in one call; events go to the workers' deferred work and to the sources,
              checksums go to the comparison
    publish   free the room of span rings at once, because the checkpoint does not save single spans
    judge     find dead workers, whose lock is free and whose segment does not change; drain them to the end and keep
              their totals
    keep      compare fingerprints, write complete sources into files, save the checkpoint; only then free the room
              of event rings, remove segments of dead workers, and empty the file of records of removed workers

Invariants: Ring room is freed and segments are removed only after the checkpoint contains their data. A daemon may end
at any point of a step, and the next daemon loses nothing. An invalid segment affects no other segment. Memory is
limited. Data above a limit is merged or refused, and the daemon reports this.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.watch import Watch
from brickd.analysis.numerics.watch_round import Roll
from brickd.analysis.problem import problem_id
from brickd.analysis.weights.rescans import Rescans
from brickd.base.open_file_limits import WORKERS_MAX
from brickd.base.units import SECOND, plural
from brickd.daemon.attachment import Attached, Stage
from brickd.daemon.canary_rounds import CanaryRounds
from brickd.daemon.epochs import Epochs
from brickd.daemon.ring_passes import RingPasses, Unsaved
from brickd.daemon.roster import Roster
from brickd.daemon.segment_directory import Directory
from brickd.daemon.tick_pace import IDLE_NS, Rest, rest
from brickd.errors import SegmentOverBudget
from brickd.model.event_log import LogEvent
from brickd.model.worker_names import as_argument
from brickd.shm import removed_file
from brickd.shm.memory_budget import Ration
from brickd.state.checkpoint import encode
from brickd.state.daemon_state import Memory

STILL_NS = 5 * SECOND
KEEP_NS, JUDGE_NS = SECOND, IDLE_NS
LOOK_NS = 5 * SECOND
# The time between two listings of the files is this many times the duration of a listing. So listings take at most 2 %
# of the loop's time. Another user may put 100,000 files into the directory; listing them takes 0.05 s (0.4 s the first
# time).
LOOK_RESTS = 50
# How long one tick may drain. The next tick drains the rest. A rate of 40,000 events per second fills a ring of the
# usual size in this time.
TICK_NS = SECOND // 10

_TURN_SECONDS = 0.01  # how long to wait for readers of segments, which may overlap forever
_UNSAVED = problem_id("daemon", None, "checkpoint")


class Collector:
    """The state of the loop.

    Attributes:
        passes: reads the rings.
        watch: compares fingerprints; None if they are not compared.
        canaries: the canaries that users ordered.
        trouble: why the checkpoint cannot be saved now; "" if it can.
        ending: set by another thread; then the loop leaves long work to the next daemon.
    """

    def __init__(
        self,
        memory: Memory,
        keep: Callable[[bytes], None],
        log_event: LogEvent,
        *,
        workers_max: int = WORKERS_MAX,
        numerics: Numerics | None = None,
        epochs: Epochs | None = None,
        clock: Callable[[], int] = time.monotonic_ns,
        starve: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin; no segment is drained yet.

        `keep` saves the checkpoint. `starve` frees file descriptors if there are none left to open a segment. Without
        `numerics`, fingerprints are dropped.
        """
        self.memory = memory
        self._clock = clock
        self.directory = Directory(memory.prefix, log_event, STILL_NS, clock)
        self.roster = Roster(memory, self.directory, log_event, workers_max, numerics)
        self._epochs = epochs or Epochs()
        self.canaries = CanaryRounds()
        self.roster.take_canaries = self.canaries.take
        self.trouble = ""
        self.ending = threading.Event()
        self._news: list[Callable[[], object]] = []  # events of a comparison, until its result is in the state
        self.watch = None if numerics is None else Watch(numerics, self._hold, memory.compared)
        if self.watch is not None:
            memory.compared = self.watch.compared
        self.rescans = Rescans(memory.compared.findings.values(), memory.compared.births)
        self._keep, self._log_event, self._starve = keep, log_event, starve
        self._unsaved = Unsaved()
        self.passes = RingPasses(self.roster, self._unsaved)
        self._look_due = False
        self._to_judge: list[Attached] = []
        self._looked_ns = self._judged_ns = self._kept_ns = self._look_again_ns = -(2**63)
        self._drained_ns = 0

    # ---- the tick

    def tick(self, now_ns: int, *, look: bool = False, asked: bool = False) -> Rest:
        """Do the steps that are due. Look for segments if files were added or removed, or if a user asks for it."""
        if look or now_ns - self._looked_ns >= LOOK_NS or self.directory.waits:
            self._look_due = True
        if asked:
            self._look_due, self._look_again_ns = True, now_ns
        # A reader may have opened a file that is not attached. Closing that file would release this daemon's lock on
        # it. So files are attached only while there is no reader. A reader needs little time. But if there always was a
        # reader for two intervals, wait for it to end.
        if (
            self._look_due
            and now_ns >= self._look_again_ns
            and self.roster.reading.acquire(blocking=now_ns - self._looked_ns >= 2 * LOOK_NS)
        ):
            try:
                self.look(now_ns)
            finally:
                self.roster.reading.release()
        self._epochs.move(self.roster.drained, changed=self.roster.changed)
        self.canaries.move(self.roster.drained, now_ns)
        fill = self.passes.run(self._for_a_tick())
        self.passes.publish(events=False)
        if now_ns - self._judged_ns >= JUDGE_NS:
            self._arrange(now_ns)
        self._judge(now_ns)
        due = now_ns - self._kept_ns >= KEEP_NS
        if (self._unsaved.urgent and (due or not self.trouble)) or (self._unsaved.dirty and due):
            self.keep(now_ns)
        self.roster.close(_TURN_SECONDS)
        elapsed_ns, self._drained_ns = now_ns - self._drained_ns, now_ns
        # Deferred work needs a second pass. The next tick makes it, so the next tick comes early.
        hurried = bool(self.passes.unsettled or self._to_judge) or self._look_due or self.directory.waits
        return rest(fill, elapsed_ns, hurried=hurried, spans=self.roster.wants_spans)

    def _for_a_tick(self) -> Callable[[], bool]:
        until_ns = self._clock() + TICK_NS
        return lambda: self._clock() < until_ns and not self.ending.is_set()

    def look(self, now_ns: int) -> None:
        """Find new segments, and files that were removed."""
        self._looked_ns, self._look_due = now_ns, False
        self.roster.look(now_ns, lambda: not self.ending.is_set())
        self._look_again_ns = now_ns + (1 + LOOK_RESTS) * self.directory.listing_ns
        if removed_file.look(self.memory.prefix).content:
            self._unsaved.dirty = True
        if self.directory.starved:
            self._starve()
            self._looked_ns += SECOND - LOOK_NS  # makes the next try come in one second

    # ---- judge

    def _arrange(self, now_ns: int) -> None:
        self._judged_ns = now_ns
        with self.roster.lock:
            self.roster.follow()
        self._rescan(now_ns)
        self.passes.arrange()
        self._to_judge = self.roster.drained()[::-1]

    def _rescan(self, now_ns: int) -> None:
        """Tell the workers that are named in findings to read their weights again."""
        self.rescans.look(self.memory.compared.findings)
        self.rescans.look_born(self.memory.compared.births)
        for service, why, uuids in self.rescans.due(now_ns):
            with self.roster.lock:
                meant = [each for each in self.roster.drained() if each.heir is None and each.uuid in uuids]
                names = sorted(each.name for each in meant if each.rescan())
            if names:
                text = f"{' and '.join(names)} {'reads its' if len(names) == 1 else 'read their'} weights again: {why}"
                worker = names[0] if len(names) == 1 else None
                command = f"brickd weights {as_argument(service)}"
                self._log_event("weights_rescan", text, service=service, worker=worker, command=command)

    def _judge(self, now_ns: int) -> None:
        """Look for dead workers, but no longer than a tick may take. The next tick continues."""
        goes_on = self._for_a_tick()
        while self._to_judge and goes_on():
            each = self._to_judge.pop()
            if each.stage is not Stage.DRAINED:
                continue
            if each.account.ration is not each.reported:
                self._ration(each)
            if each.activity < 0 and each.drain.breaks:
                text = f"{each.name}: where the last daemon stopped reading is lost, so deferred work may be missing"
                self._log_event("break", text, service=each.service, worker=each.name)
            if each.moved(now_ns):
                self._unsaved.dirty = True
            if self.roster.crowded or each.segment.worker() is not None:
                continue
            if each.drain.ended or now_ns - each.moved_ns >= STILL_NS:
                with self.roster.isolating(each):
                    if self.roster.bury(each):
                        self._unsaved.urgent = True

    def _ration(self, each: Attached) -> None:
        """Apply and log a worker's new ration. The ration was set by the last reading of the worker's segment."""
        before, each.reported = each.reported, each.account.ration
        if each.reported is Ration.NOTHING:
            self.roster.give_up(each, SegmentOverBudget(each.segment.name, each.account.why))
            return
        if before is Ration.WHOLE:
            each.drain.forget_details()
            self.roster.changed = True
        seldom = each.reported is Ration.SELDOM
        less = "its totals are read once a minute" if seldom else "its spans and events are not read"
        text = f"{each.name} {each.account.why}; {less}"
        self._log_event("rationed", text, service=each.service, worker=each.name, command="brickd workers")

    def _hold(self, kind: str, text: str, **about: str | None) -> None:
        """Keep an event of a comparison until the result is in the state."""
        self._news.append(functools.partial(self._log_event, kind, text, **about))

    # ---- keep

    def keep(self, now_ns: int) -> None:
        """Save the state. Only after that, free ring room and remove segments."""
        self._kept_ns = now_ns
        if self.watch is not None:
            self.memory.compared = self.watch.look(self._roll)
            while self._news:
                self._news.pop(0)()
        self.memory.sources.file()
        records = self._fold()
        with self.roster.lock:
            for each in self.roster.attached.values():
                each.known.cursors = each.cursors()
            # A watch with unfinished work must run again, even if no record arrives.
            self._unsaved.dirty = self.watch is not None and self.watch.waits
            self._unsaved.urgent = False
            memory = self.memory.copy()
        try:
            self._keep(encode(memory))
        except OSError as error:
            self._unsaved.dirty = True
            if not self.trouble:
                why = f"the checkpoint cannot be written: {error.strerror}"
                text = f"{why}; until it can be written, events stay in the rings, and segments of ended workers stay"
                self._log_event("checkpoint_failed", text, command="brickd doctor", problem=_UNSAVED)
            self.trouble = error.strerror or str(error)
            return
        if self.trouble:
            self._log_event("checkpoint_written", "the checkpoint can be written again", problem=_UNSAVED)
        self.trouble = ""
        self.passes.publish(events=True)
        if self.roster.remove_read(now_ns, self._for_a_tick()):
            self._unsaved.dirty = True
        if self.roster.crowded:
            self._unsaved.urgent = True
        if records:
            self._empty(records)

    def _fold(self) -> bytes:
        """Add the records of removed workers; return the content of their file."""
        found = removed_file.look(self.memory.prefix)
        with self.roster.lock:
            new = self.roster.fold(found.removed)
        if new:
            who = f"{plural(sum(each.counts.spans for each in new), 'span')} of {plural(len(new), 'removed worker')}"
            self._log_event(
                "workers_removed",
                f"{who} are counted as removed, because no daemon kept their totals",
                command="brickd workers",
            )
        return found.content

    def _empty(self, records: bytes) -> None:
        """After these records are saved, make room for more.

        A reader of segments reads the state first, then the file of records. So the file must not be truncated
        after the state was read and before the file is read.
        """
        self._unsaved.dirty = True  # so that the state is saved again until the file is empty
        if self.roster.reading.acquire(timeout=_TURN_SECONDS):
            try:
                if removed_file.truncate(self.memory.prefix, records):
                    with self.roster.lock:
                        self.memory.limit_removed()
            finally:
                self.roster.reading.release()

    def _roll(self) -> Roll:
        with self.roster.lock:
            gone = [*self.memory.gone.values(), *self.memory.older.values()]
            services = {each.service for each in self.roster.attached.values()}
            services = services.union(each.reading.service for each in gone)
            return Roll(self.memory.names(), services, frozenset(self.roster.attached))

    def end(self, now_ns: int) -> None:
        """Leave all work to the next daemon, and restore the workers' own settings."""
        self.passes.run(self._for_a_tick())
        self.passes.publish(events=False)
        self.memory.closed = True
        self.keep(now_ns)
        self._epochs.end(self.roster.drained())
        self.roster.release()
        with self.roster.reading:  # wait for the readers
            pass
        self.roster.close(_TURN_SECONDS)

    def change(self) -> None:
        """Note that another thread changed the memory (under the lock), and that it must be saved immediately."""
        self._unsaved.dirty = self._unsaved.urgent = True
