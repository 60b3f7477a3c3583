"""The daemon's memory: dead workers with removed segments, sums, data for readings, older checkpoints."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
from test_forgotten_workers import read

from brickd.errors import CheckpointRefused
from brickd.model.background import Background
from brickd.model.deferred import Deferred
from brickd.model.deferred_overlay import laid_over, lifted, overlay
from brickd.model.retained_workers import Cursor, RetainedTotals, RetainedWorker
from brickd.query.orders import Wish
from brickd.shm import sampling
from brickd.shm.ledger import ledger_of
from brickd.shm.removed_workers import OTHERS, RemovedWorker, WorkerCounts
from brickd.state import checkpoint, daemon_state
from brickd.state.daemon_state import Memory

ONE, TWO, THREE, FOUR = (f"{number:016x}{number:016x}" for number in (1, 2, 3, 4))


def gone(uuid: str, name: str = "api/0") -> RetainedTotals:
    return RetainedTotals(name, read(uuid))


def removed(uuid: str, spans: int, *, took: str = "") -> RemovedWorker:
    counts = WorkerCounts(spans=spans)
    return RemovedWorker(uuid, took, "api", -1, "", 0, 10, 20, False, 1, counts)


def restarted(before: Memory) -> Memory:
    return checkpoint.decode(checkpoint.encode(before))


def document(before: Memory) -> dict[str, Any]:
    found: dict[str, Any] = json.loads("".join(before.pieces()))
    return found


# ---- workers whose segments are removed


def test_the_newest_buried_uuids_are_kept_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_state, "BURIED_MAX", 3)
    here = Memory("brickd-")
    here.bury("a", "b")
    here.bury("b", "a", "c")
    assert here.buried == ["a", "b", "c"]
    here.bury("d", "a")
    assert here.buried == ["b", "c", "d"]
    assert restarted(here).buried == ["b", "c", "d"]
    monkeypatch.setattr(daemon_state, "BURIED_MAX", 2)
    with pytest.raises(ValueError, match="2"):
        Memory.of(document(here))


def test_removal_records_of_buried_or_continued_segments_are_not_folded() -> None:
    here = Memory("brickd-", buried=[ONE])
    assert here.fold([removed(ONE, 5), removed(TWO, 7), removed(THREE, 9, took=FOUR[:16])]) == [
        removed(TWO, 7),
        removed(THREE, 9, took=FOUR[:16]),
    ]
    assert here.fold([removed(FOUR, 3)]) == [], "the worker continued in the third segment"
    assert here.fold([], {TWO[:16]}) == []
    assert (list(here.removed.alone), here.buried) == ([THREE], [ONE, TWO]), "a drained segment continues the lost one"


def test_the_record_of_a_segment_continued_by_a_dead_worker_is_not_folded() -> None:
    goes_on = gone(TWO)
    goes_on.reading.process["took"] = int.from_bytes(bytes.fromhex(ONE)[:8], "little")
    here = Memory("brickd-", gone={TWO: goes_on})
    assert here.fold([removed(ONE, 5)]) == []
    assert here.removed.alone == {}


def test_merging_a_worker_keeps_the_rest_of_its_removal_record() -> None:
    here, one = Memory("brickd-"), gone(ONE)
    shown = ledger_of(one.reading).counts()
    here.fold([removed(ONE, shown.spans + 5), removed(TWO, 3)])
    here.add_up(one)
    assert here.buried == [ONE]
    assert list(here.removed.alone) == [TWO]
    (left,) = here.removed.sums.values()
    assert (left.workers, left.counts) == (1, WorkerCounts(spans=5))
    assert here.fold([removed(ONE, shown.spans + 9)]) == []


@pytest.mark.parametrize("workers", [1, 2])
def test_dropped_totals_count_as_removed_together_with_their_record(workers: int) -> None:
    here, one = Memory("brickd-"), gone(ONE)
    one.workers = workers
    shown = ledger_of(one.reading).counts()
    here.fold([removed(ONE, shown.spans + 5)])
    here.drop(one)
    assert here.removed.sums["api", True] == RemovedWorker.several("api", True, workers, shown)
    assert here.buried == ([ONE] if workers == 1 else [])
    assert (list(here.removed.alone) == []) == (workers == 1)


def test_the_removal_record_of_a_shown_worker_is_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("brickd.shm.removed_workers.ALONE_MAX", 1)
    here = Memory("brickd-", known={ONE: RetainedWorker()}, gone={TWO: gone(TWO)})
    here.fold([removed(uuid, 3) for uuid in (ONE, TWO, THREE, FOUR)])
    here.limit_removed()
    assert (list(here.removed.alone), here.buried) == ([ONE, TWO, FOUR], [THREE])


# ---- sums


def test_services_beyond_the_limit_are_merged_but_a_known_one_stays_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_state, "OLDER_MAX", 2)
    here = Memory("brickd-")
    clock = read(ONE).clock
    into = [here.add_up(gone(ONE).of_service(service)) for service in ("a", "b", "c", "b", "d")]
    assert [*here.older] == [f"a/{clock}", f"b/{clock}", f"/{clock}"]
    assert [(each.name, each.reading.service, each.workers) for each in here.older.values()] == [
        ("a", "a", 1),
        ("b/older", "b", 2),
        (f"{OTHERS}/older", OTHERS, 2),
    ]
    assert into[-2:] == [here.older[f"b/{clock}"], here.older[f"/{clock}"]]


def test_merged_totals_have_an_aggregate_name_and_all_spans() -> None:
    one, other = gone(ONE, "api/0"), gone(TWO, "api/1")
    both = one.and_(other)
    assert (both.name, both.workers, both.reading.uuid) == ("api/older", 2, ONE)
    assert (both.reading.header["index"], both.reading.coordinates) == (-1, "")
    assert ledger_of(both.reading).spans["begun"] == 2 * ledger_of(one.reading).spans["begun"] > 0
    assert both.and_(both).workers == 4


# ---- data that readings need


def test_names_include_only_single_named_workers() -> None:
    known = {ONE: RetainedWorker("api/0"), TWO: RetainedWorker()}
    here = Memory("brickd-", known=known, gone={THREE: gone(THREE, "api/2"), FOUR: gone(FOUR, "")})
    here.older["api/TSC"] = one = gone(f"{5:032x}", "api/5")
    assert here.names() == {ONE: "api/0", THREE: "api/2", one.reading.uuid: "api/5"}
    one.workers = 2
    assert here.names() == {ONE: "api/0", THREE: "api/2"}
    assert here.background().names == here.names() | {one.reading.uuid: "api/5"}


def test_background_files_belong_to_drained_workers() -> None:
    here = Memory("brickd-", known={ONE: RetainedWorker(file=(1, 2)), TWO: RetainedWorker()}, gone={THREE: gone(THREE)})
    found = here.background()
    assert (found.files, found.overlays) == ({ONE: (1, 2)}, {})
    assert found.begun == {uuid[:16]: uuid for uuid in (ONE, TWO, THREE)}


def test_a_lost_segment_is_found_by_the_first_half_of_its_uuid() -> None:
    found = Memory("brickd-", known={ONE: RetainedWorker()}).background()
    assert found.before(int.from_bytes(bytes.fromhex(ONE)[:8], "little")) == ONE
    assert found.before(int.from_bytes(bytes.fromhex(TWO)[:8], "little")) is None
    zero = Background(begun={"00" * 8: "0" * 32})
    assert zero.before(0) is None, "the segment took over no totals"


def deferring(started: int) -> Deferred:
    work = Deferred()
    work.counts["started"] = started
    return work


def test_deferred_work_comes_from_the_segment_or_its_lost_predecessor() -> None:
    known = {ONE: RetainedWorker(deferred=deferring(1)), TWO: RetainedWorker(deferred=deferring(2))}
    dead = RetainedTotals("api/2", laid_over(read(THREE), overlay(deferring(3))))
    found = Memory("brickd-", known=known, gone={THREE: dead}).background()

    def started(uuid: str, before: str | None) -> int | None:
        over = found.overlay(uuid, before)
        return None if over is None else over.counts["started"]

    assert [started(ONE, before) for before in (None, TWO, THREE)] == [1, 1, 1]
    assert [started(FOUR, before) for before in (None, ONE, TWO, THREE)] == [None, 1, 2, 3]
    assert lifted(dead.reading).counts == {"started": 3}


# ---- checkpoints


def test_changing_a_memory_leaves_its_copy_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    here = Memory("brickd-", known={ONE: RetainedWorker()}, gone={TWO: gone(TWO)}, wishes={"api": Wish()})
    here.removed.fold([removed(THREE, 3)])
    copy = here.copy()
    for of in (here.known, here.gone, here.wishes, here.removed.alone):
        of.clear()
    here.older["api/TSC"] = gone(FOUR)
    assert [len(of) for of in (copy.known, copy.gone, copy.wishes, copy.removed.alone, copy.older)] == [1, 1, 1, 1, 0]


def test_a_worker_restored_from_a_checkpoint_has_everything_known_about_it() -> None:
    cursors = [Cursor(1, 2, 3, 4, 5), Cursor(0, 0, 0, 0, 2**64 - 1)]
    before = Memory(
        "brickd-", known={ONE: RetainedWorker("api/0", cursors, Deferred(), 2**65, (3, 4))}, newest_event=2**62
    )
    before.closed = False
    after = restarted(before)
    (known,) = after.known.values()
    assert (known.name, known.cursors, known.finalizes_dropped, known.file) == ("api/0", cursors, 2**64 - 1, (3, 4))
    assert (after.newest_event, after.closed) == (2**62, False)
    written = document(before)
    assert written["known"][ONE][3] == os.geteuid(), "earlier versions of brickd expect this key"
    del written["known"][ONE][5]
    assert Memory.of(written).known[ONE].file is None
    for uid, fits in ((-1, True), (-2, False), (2**32 - 1, True), (2**32, False)):
        written["known"][ONE][3] = uid
        if fits:
            assert Memory.of(written).known[ONE].cursors == cursors
        else:
            with pytest.raises(ValueError, match=str(uid)):
                Memory.of(written)


def test_values_missing_in_an_older_checkpoint_get_the_defaults_of_their_time() -> None:
    written = document(Memory("brickd-", wishes={"api": Wish(spans=True)}))
    assert Memory.of(written).wishes == {"api": Wish(spans=True)}
    for later in ("removed", "compared", "sources"):
        del written[later]
    written["wishes"]["api"] = [False, True]
    older = Memory.of(written)
    assert older.wishes == {"api": Wish(off=True, fingerprints=sampling.DEFAULT, sites=())}
    assert (older.removed.alone, older.compared.findings) == ({}, {})


@pytest.mark.parametrize(
    ("what", "value"),
    [("newest_event", 2**62 + 1), ("newest_event", -1), ("closed", 1), ("prefix", 7), ("buried", [7])],
)
def test_an_invalid_memory_is_refused(what: str, value: object) -> None:
    with pytest.raises(ValueError, match=r"expected|not"):
        Memory.of(document(Memory("brickd-")) | {what: value})


def test_a_saved_setting_names_no_more_sites_than_a_command_may() -> None:
    assert Wish.of([True, False, "all", ["x"] * 64]).sites == ("x",) * 64
    with pytest.raises(ValueError, match="64"):
        Wish.of([True, False, "all", ["x"] * 65])
    wanted = {"spans": "off", "recording": "on", "fingerprints": sampling.DEFAULT, "sites": [sampling.ALL]}
    assert Wish().document() == wanted
    assert Wish(sites=("mlp.*",)).document()["sites"] == ["mlp.*"]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_merged_totals_hold_at_least_one_worker(workers: int) -> None:
    written = Memory("brickd-", gone={ONE: RetainedTotals("api/0", read(ONE), workers)})
    if workers:
        assert restarted(written).gone[ONE].workers == workers
    else:
        with pytest.raises(CheckpointRefused):
            restarted(written)
