"""Through deferred work, checkpoints and restarts, the daemon's loop accounts for every event.

The seed determines the order of the events, so `simulate(seed, folder)` repeats it.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import dtypes
import pytest
import simulation
from conftest import SHM
from removals import records
from sandbox import PREFIX
from simulation import Killed, World, Writer

from brickd.daemon import admission, collector, ring_passes
from brickd.daemon.attachment import Attached, Stage
from brickd.daemon.collector import Collector
from brickd.daemon.roster import Roster
from brickd.model import retained_workers, worker_survey
from brickd.model.deferred import Deferred
from brickd.model.retained_workers import Cursor, RetainedTotals, RetainedWorker
from brickd.model.workers import Worker
from brickd.shm import _reader, removed_file
from brickd.shm.clock import Now
from brickd.shm.duplicates import Twin, original
from brickd.shm.removed_workers import Removals, RemovedWorker, uncounted
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import SegmentFile, find
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

SEEDS = 150  # the number of seeds within which each mutant must be caught


def simulate(seed: int, folder: Path, *, damage: float = 0.0) -> World:
    """Run the events of a seed, stop all faults, and check the accounts."""
    chance = random.Random(seed)
    path = folder / "checkpoint"
    path.unlink(missing_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        world = World(f"{PREFIX}sim-{uuid.uuid4().hex[:8]}-", path, patch, chance)
        faults = world.faults
        faults.kill = chance.choice((0.0, 0.02, 0.1))
        faults.tear = chance.choice((0.0, 0.0, 0.02))
        faults.full = chance.choice((0.0, 0.0, 0.2))
        faults.refuse = chance.choice((0.0, 0.0, 0.3))
        world.slow, world.damage = chance.random() < 0.3, damage
        try:
            world.worker()
            world.run(chance.randint(5, 60))
            world.settle()
            judge(world)
        finally:
            world.close()
    return world


def judge(world: World) -> None:
    refused = world.faults.refused
    quarantined = [logged for logged in world.logged if logged[0] == "quarantined"]
    assert refused or all(world.copies.intersection(re.findall(r"[^\s:,]+", text)) for _, _, text in quarantined), (
        "only copies and their originals are refused"
    )
    broken = [logged for logged in world.logged if logged[0] == "break"]
    assert not broken or world.damaged or world.copies_drained, "an earlier copy has fewer records than were read"
    survey = world.survey()
    found = {each.reading.uuid: each for each in survey.workers}
    removed = {each.uuid: each.counts.spans for each in survey.removed}
    assert not records(world.prefix), "the checkpoint has all records"
    left = set(find(world.prefix)) - world.copies
    alive = {each.file for each in world.writers if each.alive and not each.removed}
    assert left >= alive if refused else left == alive
    before = Counter[bytes]()  # the spans that are shown for segments that a removed worker had lost
    for writer in world.writers:
        worker, counted = found.pop(writer.uuid.hex(), None), removed.pop(writer.uuid.hex(), 0)
        if writer.goes_on is not None:
            assert not counted, "the successor has the worker's totals"
            if worker is not None:
                assert writer.heir.reaped, "the worker is counted in its successor"
                assert worker.ledger.spans["begun"] <= writer.begun
                before[writer.heir.uuid] += worker.ledger.spans["begun"]
        elif worker is None and (writer.reaped or counted):
            assert world.damaged or counted + before[writer.uuid] == writer.begun, "each span is shown or removed"
        elif writer.vanished and worker is None:
            continue
        elif world.damaged:
            judge_after_a_break(writer, worker)
        else:
            assert worker is not None, "the totals of every dead worker are shown"
            assert worker.ledger.spans["begun"] + counted == writer.begun
            # if the daemon reads a copy of the segment, only the count of begun spans is compared
            if worker.reading.file not in world.copies:
                judge_worker(world, writer, worker)
    assert not found
    assert not removed


def judge_after_a_break(writer: Writer, worker: Worker | None) -> None:
    """Check the accounts after a checkpoint was lost.

    What only the checkpoint had is lost, too. But the totals in a segment are counted, and only once.
    """
    assert worker is not None or not writer.alive
    counts = Counter(worker.reading.deferred) if worker is not None else Counter()
    assert counts["started"] <= len(writer.history.starts)
    assert counts["started"] == sum(counts[term] for term in ("measured", "bounded", "orphaned", "pending"))
    assert counts["finalized"] <= len(writer.history.syncs)


def judge_worker(world: World, writer: Writer, worker: Worker) -> None:
    reading, history, counts = worker.reading, writer.history, Counter(worker.reading.deferred)
    assert (reading.alive, reading.ended) == (writer.alive, writer.ended)
    rows = {
        (path.name, path.unit): row
        for path, row in zip(reading.paths, dtypes.summaries(reading.summaries), strict=True)
        if path is not None
    }
    # Check the count of all spans, and the count of their details in all places.
    assert rows[2, _reader.UNIT_TICKS]["count"] == writer.spans
    details, events = worker.ledger.document()["details"], worker.ledger.document()["events"]
    wanted, written = (sum(lane[name] for _, lane, _ in reading.lanes) for name in ("span_attempts", "event_attempts"))
    unpublished = range(1 if writer.alive else len(writer.lanes) + 1)
    assert wanted - sum(details["dropped"].values()) - _accounted(details) in unpublished
    assert written - sum(events["dropped"].values()) - _accounted(events) in unpublished
    folded = world.folded[reading.uuid] + world.now_folding(reading.uuid)
    assert details["consumed"] == folded
    # Check how many deferred starts ended in each way.
    assert counts["started"] <= len(history.starts) if writer.uncertain else counts["started"] == len(history.starts)
    assert counts["started"] == counts["measured"] + counts["bounded"] + counts["orphaned"] + counts["pending"]
    assert counts["refused"] == 0
    assert counts["orphaned" if writer.alive else "pending"] == 0 or writer.dropped.get(_reader.KIND_FINALIZE)
    if writer.dropped.get(_reader.KIND_FINALIZE) or writer.uncertain:
        return
    measured, bound = rows.get((1, _reader.UNIT_DEFERRED)), rows.get((1, _reader.UNIT_BOUND))
    reported = history.measurements
    assert counts["measured"] + counts["unmatched"] == len(reported)
    if writer.slow:  # if threads publish late, brickd cannot tell in which order their deferred work began
        return
    assert measured is not None
    assert (measured["count"], measured["total"]) == (len(reported), sum(reported.values()))
    count, parts, latencies = history.expected()
    assert (counts["bounded"], counts["late"]) == (count, 0)
    if bound is not None:
        assert (bound["count"], bound["total"], bound["elements"], bound["bytes"]) == (count, parts, count, 2 * count)
        assert sum(row["total"] for row in dtypes.summaries(reading.latency)) == latencies


def _accounted(terms: dict[str, int]) -> int:
    return terms["consumed"] + terms["in_ring"] + terms["lost_with_daemon"]


@pytest.mark.ci
@pytest.mark.parametrize(
    "seeds", [pytest.param(range(n, n + 10), marks=[pytest.mark.ci] if n else []) for n in range(0, 50, 10)], ids=str
)
def test_every_event_counts_once_whatever_dies(seeds: range, tmp_path: Path) -> None:
    for seed in seeds:
        simulate(seed, tmp_path)


@pytest.mark.ci
def test_saving_to_a_full_disk_is_retried_once_a_second(tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        world = World(f"{PREFIX}sim-{uuid.uuid4().hex[:8]}-", tmp_path / "checkpoint", patch, random.Random(1))
        try:
            world.faults.full = 1.0
            world.worker()
            for _ in range(100):
                for _ in range(20):
                    world.writers[0].act(world.chance)
                world.tick(0.02)
            assert world.daemon is not None
            assert [each.drain.held >= ring_passes.HELD_MAX for each in world.daemon.roster.attached.values()] == [True]
            assert world.faults.effects.count("open") in (2, 3), "each file is opened at most once a second"
        finally:
            world.close()


FIRST = int(os.environ.get("TESTS_SEED", "1000"))  # scripts/nightly uses other seeds each night
SWEEPS = [range(first, first + 500) for first in range(FIRST, FIRST + 10_000, 500)]


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param(SWEEPS[0], marks=pytest.mark.slow),
        *(pytest.param(sweep, marks=pytest.mark.nightly) for sweep in SWEEPS[1:]),
    ],
    ids=str,
)
def test_every_event_counts_once_in_thousands_of_orders(seeds: range, tmp_path: Path) -> None:
    kills = 0
    for seed in seeds:
        kills += simulate(seed, tmp_path).kills
    assert kills > len(seeds)


@pytest.mark.ci
@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 500), marks=pytest.mark.nightly)], ids=str)
def test_a_damaged_checkpoint_is_a_visible_break_and_counts_nothing_twice(seeds: range, tmp_path: Path) -> None:
    worlds = [simulate(seed, tmp_path, damage=0.5) for seed in seeds]
    broken = [world for world in worlds if world.damaged]
    assert len(broken) * 12 > len(seeds)
    for world in broken:
        assert [logged for logged in world.logged if logged[0] == "break"], (
            "the daemon reports that a checkpoint was lost"
        )


# ---- mutants that the simulation must catch

Patch = pytest.MonkeyPatch


def _event_tails_before_the_checkpoint(patch: Patch) -> None:
    keep = Collector.keep

    def mutant(self: Collector, now_ns: int) -> None:
        self.passes.publish(events=True)
        keep(self, now_ns)

    patch.setattr(Collector, "keep", mutant)


def _loaded(patch: Patch, change: Callable[[Cursor], Cursor]) -> None:
    of = Memory.of.__func__  # type: ignore[attr-defined]

    def mutant(cls: type[Memory], document: dict[str, Any]) -> Memory:
        memory: Memory = of(cls, document)
        for known in memory.known.values():
            known.cursors = [change(cursor) for cursor in known.cursors]
        return memory

    patch.setattr(Memory, "of", classmethod(mutant))


def _a_cursor_one_back(patch: Patch) -> None:
    _loaded(patch, lambda c: c._replace(event=max(c.event - 1, 0), events=max(c.events - 1, 0)))


def _a_cursor_one_ahead(patch: Patch) -> None:
    _loaded(patch, lambda c: c._replace(event=c.event + 1, events=c.events + 1))


def _lost_details_are_forgotten(patch: Patch) -> None:
    _loaded(patch, lambda c: c._replace(spans_lost=0))


def _reading_starts_at_the_tails_and_not_the_cursors(patch: Patch) -> None:
    of = Memory.of.__func__  # type: ignore[attr-defined]

    def mutant(cls: type[Memory], document: dict[str, Any]) -> Memory:
        memory: Memory = of(cls, document)
        for known in memory.known.values():
            known.cursors = []
        return memory

    patch.setattr(Memory, "of", classmethod(mutant))


def _state_without_its_cursors(patch: Patch) -> None:
    pieces, before = RetainedWorker.pieces, dict[int, list[Cursor]]()

    def mutant(self: RetainedWorker) -> Iterator[str]:
        older = before.get(id(self.deferred), self.cursors)
        before[id(self.deferred)] = self.cursors
        return pieces(replace(self, cursors=older))

    patch.setattr(RetainedWorker, "pieces", mutant)


def _a_segment_is_removed_before_its_totals_are_saved(patch: Patch) -> None:
    keep = Collector.keep

    def mutant(self: Collector, now_ns: int) -> None:
        for each in self.roster.attached.values():
            if each.stage is Stage.READ:
                each.segment.unlink()
        keep(self, now_ns)

    patch.setattr(Collector, "keep", mutant)


def _the_dead_are_counted_again(patch: Patch) -> None:
    class Forgetful(dict[str, RetainedTotals]):
        def __contains__(self, key: object) -> bool:
            return False

    init = Collector.__init__

    def mutant(self: Collector, *arguments: Any) -> None:
        init(self, *arguments)
        self.memory.gone = Forgetful(self.memory.gone)

    patch.setattr(Collector, "__init__", mutant)


def _waiting_finalizes_are_not_saved(patch: Patch) -> None:
    members = Deferred.members
    patch.setattr(Deferred, "members", lambda self: members(self) | {"batches": "[[[],[]],[[],[]]]"})


def _waiting_starts_are_not_saved(patch: Patch) -> None:
    members = Deferred.members
    patch.setattr(Deferred, "members", lambda self: members(self) | {"streams": "[]"})


def _no_work_is_orphaned(patch: Patch) -> None:
    patch.setattr(Deferred, "orphan", lambda self: None)


def _the_last_records_of_the_dead_are_not_read(patch: Patch) -> None:
    drain = _reader.drain
    patch.setattr(collector, "STILL_NS", 0)
    patch.setattr(_reader, "drain", lambda drains, *bounds: drain(drains, *bounds) if bounds else (len(drains), 0, []))


def _a_checkpoint_written_in_place(patch: Patch) -> None:
    patch.setattr(checkpoint, "save", lambda path, content: path.write_bytes(content[: max(1, len(content) - 1)]))


def _a_failed_checkpoint_counts_as_saved(patch: Patch) -> None:
    save = checkpoint.save

    def mutant(path: Path, content: bytes) -> None:
        with contextlib.suppress(OSError):
            save(path, content)

    patch.setattr(checkpoint, "save", mutant)


def _live_workers_are_buried(patch: Patch) -> None:
    patch.setattr(SegmentFile, "worker", lambda self: None)


def _a_segment_that_was_lost_reports_its_own_work(patch: Patch) -> None:
    patch.setattr(Attached, "goes_on_in", lambda self, heir: None)


def _a_worker_that_continues_elsewhere_is_dead(patch: Patch) -> None:
    goes_on_in = Attached.goes_on_in

    def mutant(self: Attached, heir: Attached) -> None:
        goes_on_in(self, heir)
        self.heir = None

    patch.setattr(Attached, "goes_on_in", mutant)


def _a_worker_without_a_file_is_not_shown(patch: Patch) -> None:
    held = Roster.held
    patch.setattr(Roster, "held", lambda self: replace(held(self), drained=()))


def _a_worker_is_remembered_once_its_segment_is_removed(patch: Patch) -> None:
    last_reading = Attached.last_reading

    def mutant(self: Attached) -> Reading:
        self.segment.unlink()
        return last_reading(self)

    patch.setattr(Attached, "last_reading", mutant)


def _a_damaged_checkpoint_is_accepted(patch: Patch) -> None:
    patch.setattr(checkpoint, "decode", lambda content: Memory.of(json.loads(content.partition(b"\n")[2])))


def _records_are_emptied_before_they_are_saved(patch: Patch) -> None:
    fold = Collector._fold

    def mutant(self: Collector) -> bytes:
        content = fold(self)
        removed_file.truncate(self.memory.prefix, content)
        return content

    patch.setattr(Collector, "_fold", mutant)


def _a_record_counts_in_addition_to_its_totals(patch: Patch) -> None:
    patch.setattr(worker_survey, "uncounted", lambda removed, _, taken, settled: uncounted(removed, {}, taken, settled))


def _saved_records_are_counted_again(patch: Patch) -> None:
    def mutant(self: Removals, found: Iterable[RemovedWorker]) -> list[RemovedWorker]:
        for each in found:
            self.add(each.service, each.asked, 1, each.counts)
        return []

    patch.setattr(Removals, "fold", mutant)


def _a_checkpoint_holds_no_removed_workers(patch: Patch) -> None:
    patch.setattr(Removals, "text", lambda self: "[[],[]]")


def _a_segment_is_removed_without_a_record(patch: Patch) -> None:
    patch.setattr(simulation, "append", lambda prefix, fd: True)


def _a_copy_counts_in_addition_to_its_original(patch: Patch) -> None:
    patch.setattr(worker_survey, "_copies", lambda found, background: {})


def _the_first_of_two_dead_counts(patch: Patch) -> None:
    def mutant(files: Sequence[Twin], known: object) -> Twin | None:
        return original([each._replace(activity=0) for each in files], known)  # type: ignore[arg-type]

    patch.setattr(worker_survey, "original", mutant)
    patch.setattr(admission, "original", mutant)


MUTANTS = {
    mutant.__name__.strip("_"): mutant
    for mutant in (
        _event_tails_before_the_checkpoint,
        _a_cursor_one_back,
        _a_cursor_one_ahead,
        _lost_details_are_forgotten,
        _reading_starts_at_the_tails_and_not_the_cursors,
        _state_without_its_cursors,
        _a_segment_is_removed_before_its_totals_are_saved,
        _the_dead_are_counted_again,
        _waiting_finalizes_are_not_saved,
        _waiting_starts_are_not_saved,
        _no_work_is_orphaned,
        _the_last_records_of_the_dead_are_not_read,
        _a_checkpoint_written_in_place,
        _a_failed_checkpoint_counts_as_saved,
        _live_workers_are_buried,
        _a_segment_that_was_lost_reports_its_own_work,
        _a_worker_that_continues_elsewhere_is_dead,
        _a_worker_without_a_file_is_not_shown,
        _a_worker_is_remembered_once_its_segment_is_removed,
        _a_damaged_checkpoint_is_accepted,
        _records_are_emptied_before_they_are_saved,
        _a_record_counts_in_addition_to_its_totals,
        _saved_records_are_counted_again,
        _a_checkpoint_holds_no_removed_workers,
        _a_segment_is_removed_without_a_record,
        _a_copy_counts_in_addition_to_its_original,
        _the_first_of_two_dead_counts,
    )
}


def caught(folder: Path, damage: float) -> int | None:
    """Return the first seed that fails."""
    for seed in range(SEEDS):
        try:
            simulate(seed, folder, damage=damage)
        except Exception:  # an assertion failed, or the mutant itself raised an error
            return seed
    return None


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", MUTANTS)
def test_each_mutant_is_caught(mutant: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    MUTANTS[mutant](monkeypatch)
    assert caught(tmp_path, 0.5 if "damaged" in mutant else 0.0) is not None


@pytest.mark.ci
def test_totals_of_long_dead_workers_are_merged_without_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 2)
    world = World(f"{PREFIX}sim-{uuid.uuid4().hex[:8]}-", tmp_path / "checkpoint", monkeypatch, random.Random(7))
    try:
        for number in range(6):
            world.stop()
            world.worker()
            for _ in range(300):
                world.writers[number].act(world.chance)
            world.writers[number].end()
            world.tick(2.0)
        workers = world.survey().workers
        assert [worker.together for worker in workers] == [1, 1, 4]
        assert workers[-1].name == "sim/older"
        spans = [sum(each.spans for each in which) for which in (world.writers, world.writers[:4])]
        assert [sum(w.ledger.spans["summarized"] for w in which) for which in (workers, workers[2:])] == spans
        starts = sum(len(writer.history.starts) for writer in world.writers)
        assert sum(worker.reading.deferred["started"] for worker in workers) == starts
        for worker in workers:
            counts = Counter(worker.reading.deferred)
            ended = counts["orphaned"] + counts["measured"] + counts["bounded"]
            assert counts["started"] == ended
    finally:
        world.close()


def test_an_exception_over_one_workers_events_affects_no_other_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(f"{PREFIX}sim-{uuid.uuid4().hex[:8]}-", tmp_path / "checkpoint", monkeypatch, random.Random(3))
    world.faults.meanwhile = lambda: None
    take = Deferred.take
    try:
        for _ in range(3):
            world.worker()
        world.tick(1.0)
        assert world.daemon is not None
        bad = world.daemon.roster.attached[world.writers[0].uuid.hex()].known.deferred

        def mutant(self: Deferred, records: bytes, now: Callable[[], Now]) -> None:
            if self is bad:
                raise KeyError("made up")
            take(self, records, now)

        monkeypatch.setattr(Deferred, "take", mutant)
        for writer in world.writers:
            for _ in range(200):
                writer.act(world.chance)
            writer.finish()
        for _ in range(4):
            world.tick(1.0)
        assert [logged for logged in world.logged if logged[0] == "quarantined" and "KeyError" in logged[2]]
        found = {worker.reading.uuid: worker.reading.deferred for worker in world.survey().workers}
        for writer in world.writers[1:]:
            assert found[writer.uuid.hex()]["started"] == len(writer.history.starts)
    finally:
        world.close()


def test_deferred_work_survives_a_segment_that_was_removed_without_a_daemon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(f"{PREFIX}sim-{uuid.uuid4().hex[:8]}-", tmp_path / "checkpoint", monkeypatch, random.Random(5))
    world.faults.meanwhile = lambda: None
    try:
        world.worker()
        (lost,) = world.writers
        while len(lost.history.starts) < 5:
            lost.act(world.chance)
        lost.finish()
        world.tick(1.0)
        world.tick(1.0)
        world.stop()
        world.worker()
        world.writers[1].take_over(lost)
        os.unlink(SHM / lost.file)
        lost.die()
        world.tick(1.0)
        (worker,) = world.survey().workers
        assert worker.reading.deferred["started"] == len(lost.history.starts)
        assert not [logged for logged in world.logged if logged[0] == "worker_missed"]
    finally:
        world.close()


def test_workers_that_died_together_count_once_after_a_crash_before_their_removal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retained_workers, "GONE_MAX", 1)
    world = World(f"{PREFIX}sim-{uuid.uuid4().hex[:8]}-", tmp_path / "checkpoint", monkeypatch, random.Random(2))
    try:
        for number in range(4):
            world.worker()
            for _ in range(100):
                world.writers[number].act(world.chance)
            world.writers[number].end()
        meet = world.faults.meet

        def killed_at_the_second(effect: str) -> None:
            if world.faults.effects.count("unlink") == 1 and effect == "unlink":
                world.faults.meet = meet  # type: ignore[method-assign]
                raise Killed(effect)
            meet(effect)

        world.faults.meet = killed_at_the_second  # type: ignore[method-assign]
        while world.kills == 0:
            world.tick(2.0)
        assert len(find(world.prefix)) == 3, "one segment is removed, and three are not"
        world.tick(2.0)
        world.tick(2.0)
        assert find(world.prefix) == []
        workers = world.survey().workers
        assert sum(worker.together for worker in workers) == 4
        assert sum(w.ledger.spans["summarized"] for w in workers) == sum(each.spans for each in world.writers)
    finally:
        world.close()
