"""Daemons are killed at each step while workers continue, end and die. Every event is counted exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from busy_workers import MEASURED_NS, SERVICE, Loaded, loaded
from conftest import SHM
from faults import Compile, Start
from killed_daemon import DyingDaemon, dying_daemon
from running import Running, running, until

from brickd.base.paths import runtime
from brickd.model.brick_totals import bricks
from brickd.model.worker_survey import survey
from brickd.model.workers import Worker
from brickd.query.orders import Wish
from brickd.shm.segment_files import find
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

Then = Callable[[DyingDaemon], None]
ACTIONS = ("kill-before", "kill-after", "kill-half")
# The effects of a daemon on files: the system call, and its target.
STEPS = {
    ("open", "lock"),
    ("lock", "lock"),
    ("lock", "segment"),
    ("pwrite", "segment"),
    ("open", "checkpoint.new"),
    ("write", "checkpoint.new"),
    ("rename", "checkpoint"),
    ("unlink", "segment"),
    ("open", "last-day"),
    ("lock", "last-day"),
}
# the events that a daemon logs if nothing is lost
USUAL = {"daemon_started", "worker_found", "worker_ended", "worker_died", "problem"}


@dataclass
class Host:
    """A machine on which workers start and end, and daemons die.

    Attributes:
        workers: all workers that were started so far.
        killed: how often a daemon was killed, keyed by action and step.
        events: the events of all daemons, such as "break: …".
    """

    prefix: str
    start: Start
    compiled: Compile
    workers: list[Loaded] = field(default_factory=list)
    killed: Counter[tuple[str, tuple[str, str]]] = field(default_factory=Counter)
    events: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # The workers record span details, from the first daemon on.
        memory = Memory(self.prefix, wishes={SERVICE: Wish(spans=True)})
        checkpoint.save(runtime().checkpoint, checkpoint.encode(memory))
        for _ in range(4):
            self.begin()

    def begin(self) -> None:
        self.workers.append(loaded(self.start))

    def living(self) -> list[Loaded]:
        return [each for each in self.workers if each.fate == "lives"]

    def kill(self, action: str, number: int, of: str | None = None, then: Then | None = None) -> None:
        """Run a daemon until it is killed at the effect with this number.

        While the daemon runs, do something to a worker.
        """
        with dying_daemon(self.compiled, f"{action}:{number}", of) as daemon:
            if then is not None:
                then(daemon)
            daemon.over()
        effect, path = daemon.effects[-1]
        self.killed[action, (effect, "segment" if path.parent == SHM else path.name.removeprefix(self.prefix))] += 1
        self.events += daemon.events

    def one_dies(self, _: DyingDaemon) -> None:
        """Kill the oldest worker, alternately at rest and at work; then start another."""
        before = Counter(each.fate for each in self.workers)
        oldest = self.living()[0]
        oldest.kill() if before["killed"] <= before["cut"] else oldest.cut()
        self.begin()

    def one_ends(self, daemon: DyingDaemon) -> None:
        """End the oldest worker if the daemon lives long enough to notice it; then start another."""
        oldest = self.living()[0]
        if daemon.reaches("pwrite", SHM / oldest.file) and daemon.stop():
            oldest.end()
            self.begin()
            daemon.go()

    def settle(self) -> list[Worker]:
        """Run a last daemon until it has nothing left to do; return the workers that it shows then."""
        for each in self.living():
            each.rest()
        here = sorted(each.file for each in self.living())
        with running() as daemon:
            until(lambda: find(self.prefix) == here and not _waits(daemon))
            status = daemon.ask("/status")
            daemon.end()
        memory = checkpoint.load(runtime().checkpoint)
        assert memory is not None
        found = survey(self.prefix, memory.background())
        assert not found.refused
        assert sorted(each["segment"] for each in status["workers"]) == sorted(e.reading.file for e in found.workers)
        assert len({worker.name for worker in found.workers}) == len(found.workers)
        for entry, worker in zip(status["workers"], found.workers, strict=True):
            assert entry["ledger"] == worker.ledger.document()
        return found.workers

    def judge(self, found: list[Worker], *, whole: bool = True) -> None:
        """Check that every worker is shown once, with all of its work.

        Args:
            found: the workers that brickd shows.
            whole: whether every daemon could load the memory of the daemon before it.
        """
        by_file = {each.reading.file: each for each in found}
        assert len(by_file) == len(found) == len(self.workers)
        for each in self.workers:
            _judge(each, by_file[each.file], whole=whole)


def _waits(daemon: Running) -> bool:
    ledger = daemon.ask("/status")["ledger"]
    return bool(ledger["events"]["in_ring"] or ledger["details"]["in_ring"] or ledger["deferred"]["pending"])


def _judge(loaded: Loaded, worker: Worker, *, whole: bool) -> None:
    reading, reported, ledger = worker.reading, loaded.reported, worker.ledger
    assert (reading.alive, reading.ended) == (loaded.fate == "lives", loaded.fate == "ended")
    lanes = [lane for _, lane, _ in reading.lanes]
    # at most one record of each lane may be unpublished
    on_the_way = range(len(lanes) + 1) if loaded.fate == "cut" else (0,)
    rows = {(brick.name, brick.bounded): brick.row for brick in bricks([worker])}

    # Check the count of all spans, and the count of their details in all places.
    assert ledger.spans["begun"] - ledger.spans["summarized"] - ledger.spans["abandoned"] in on_the_way
    assert rows["span", False]["count"] - ledger.spans["summarized"] in on_the_way
    where = ledger.details["consumed"] + ledger.details["in_ring"] + ledger.details["lost_with_daemon"]
    assert sum(lane["span_attempts"] for lane in lanes) - where - ledger.details_dropped.total() in on_the_way

    # Check the count of all events: none is lost when a daemon dies.
    where = ledger.events["consumed"] + ledger.events["in_ring"]
    assert sum(lane["event_attempts"] for lane in lanes) - where - ledger.events_dropped.total() in on_the_way

    # Check how many deferred starts ended in each way.
    terms, dropped = Counter(reading.deferred), ledger.events_dropped
    assert terms["started"] == terms["measured"] + terms["bounded"] + terms["orphaned"]
    assert terms["started"] + dropped["defer"] <= sum(lane["event_attempts"] for lane in lanes)
    assert terms["refused"] == 0
    for bounded in (False, True):
        if ("kernel", bounded) in rows:
            assert rows["kernel", bounded]["count"] == terms["bounded" if bounded else "measured"]
    if ("kernel", False) in rows:
        assert rows["kernel", False]["total_ns"] == MEASURED_NS * terms["measured"]

    # The numbers must match the worker's own report.
    events = {
        "defer": terms["started"] + dropped["defer"],
        "measured": terms["measured"] + terms["unmatched"] + dropped["measured"],
        "finalize": terms["finalized"] + dropped["finalize"],
    }
    if loaded.fate == "cut":
        assert ledger.spans["begun"] >= reported["spans"]
        if whole:
            assert all(n >= reported[kind] for kind, n in events.items())
        return
    assert (ledger.spans["begun"], ledger.spans["summarized"]) == (reported["spans"], reported["spans"])
    assert rows["span", False]["count"] == reported["spans"]
    assert sum(lane["event_attempts"] for lane in lanes) == sum(reported[kind] for kind in events)
    if whole:
        assert events == {kind: reported[kind] for kind in events}
        assert terms["orphaned"] == 0 or dropped["finalize"]
        assert terms["late"] == 0
    else:
        assert all(n <= reported[kind] for kind, n in events.items())


@pytest.mark.slow
def test_a_daemon_killed_at_any_step_under_load_loses_no_event(worker: Start, prefix: str, compiled: Compile) -> None:
    host = Host(prefix, worker, compiled)
    for number in range(1, 79):
        host.kill(ACTIONS[number % 3], number, then={0: host.one_dies, 2: host.one_ends}.get(number % 4))
    # Effects that happen once per second, and effects that happen once in the life of a daemon.
    for action in ACTIONS:
        for of in ("open", "write", "rename"):
            host.kill(action, 2 if of != "open" else 4, of)
        for name, numbers in {"open": (1, 2, 3), "lock": (1, 2, 3), "write": (1,), "rename": (1,)}.items():
            for number in numbers:
                host.kill(action, number, name)
        for _ in range(2):
            host.kill(action, 1, "unlink", then=host.one_ends)
    assert host.killed.total() >= 100
    assert set(host.killed) == {(action, step) for action in ACTIONS for step in STEPS}
    assert {event.partition(":")[0] for event in host.events} <= USUAL
    fates = Counter(each.fate for each in host.workers)
    assert min(fates[fate] for fate in ("lives", "ended", "killed", "cut")) >= 4
    found = host.settle()
    host.judge(found)
    details = sum((each.ledger.details for each in found), Counter[str]())
    assert details["consumed"] > 0, "the workers recorded details, and daemons took some"
    assert details["lost_with_daemon"] > 0, "some daemons were killed after they had taken details"


# ---- a damaged checkpoint

DAMAGES: dict[str, Callable[[bytearray], object]] = {
    "a bit of the title": lambda content: _flip(content, 3),
    "a bit of the length": lambda content: _flip(content, content.index(b"\n") - 10),
    "a bit of the checksum": lambda content: _flip(content, content.index(b"\n") - 1),
    "the end of the first line": lambda content: _flip(content, content.index(b"\n")),
    "a bit of the body": lambda content: _flip(content, content.index(b"\n") + 1),
    "a bit in the middle": lambda content: _flip(content, len(content) // 2),
    "the last bit": lambda content: _flip(content, len(content) - 1),
    "all of it": bytearray.clear,
    "half": lambda content: content.__delitem__(slice(len(content) // 2, None)),
    "its last byte": bytearray.pop,
    "a byte too many": lambda content: content.append(0),
}


def _flip(content: bytearray, place: int) -> None:
    content[place] ^= 1


@pytest.mark.slow
def test_a_damaged_checkpoint_is_reported_until_rewritten_and_counts_nothing_twice(
    worker: Start, prefix: str, compiled: Compile
) -> None:
    def events_logged() -> int:
        return sum(event.startswith(f"break: {runtime().checkpoint}: is ") for event in host.events)

    host = Host(prefix, worker, compiled)
    host.kill("kill-after", 2, "rename")
    assert not [event for event in host.events if event.startswith("break")]
    for number, damage in enumerate(DAMAGES.values()):
        content = bytearray(runtime().checkpoint.read_bytes())
        damage(content)
        runtime().checkpoint.write_bytes(content)
        before = events_logged()
        # The daemon moves the damaged checkpoint aside and dies. The next daemon, which dies when it writes its own
        # checkpoint, must also report the damage.
        host.kill(ACTIONS[number % 3], 3, then=host.one_dies if number % 2 else None)
        host.kill("kill-before", 1, "write")
        assert events_logged() > before, "a daemon that survived logged the event"
        host.kill("kill-after", 1, "rename")
        assert runtime().checkpoint.with_name("checkpoint.refused").read_bytes() == content
    host.judge(host.settle(), whole=False)
