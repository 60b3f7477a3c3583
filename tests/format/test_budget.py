"""The memory budget: which segments it limits, in which order it reads them, and what they cost."""

from __future__ import annotations

import os
import struct

import forge
import pytest
from conftest import SHM
from forge import file, put
from hypothesis import given
from hypothesis import strategies as st
from rings import rings

from brickd.errors import SegmentOverBudget
from brickd.model.survey_snapshot import EVERY_NS
from brickd.model.worker_survey import survey
from brickd.model.workers import Held
from brickd.shm import memory_budget
from brickd.shm.memory_budget import (
    MIB,
    OWNER,
    SEGMENT,
    SELDOM,
    SELDOM_NS,
    Account,
    Budget,
    Cost,
    Ration,
    cost_of,
    packed_size,
)
from brickd.shm.segment import Extent, Segment, open_segment
from brickd.shm.segment_copy import Reading

ME, OTHER = 1, 2


# ---- the limits


def test_64_usual_workers_stay_below_half_of_each_limit() -> None:
    each = cost_of(Extent(lines=32, lanes=32, names=512, paths=256, sites=64, blocks=32 * 4), detail=256 * 48)
    assert 64 * each.read < OWNER.read / 2
    assert 64 * (each.kept + each.detail) < OWNER.kept / 2
    assert each.read < SEGMENT.read / 2
    assert each.kept + each.detail < SEGMENT.kept / 2


def test_a_worker_that_uses_all_possible_paths_can_be_read() -> None:
    cost = cost_of(Extent(lines=8, lanes=8, names=65472, paths=65472, sites=2048, blocks=8 * 1023))
    assert Budget().ration(ME, cost) == (Ration.WHOLE, "")


@pytest.mark.ci
def test_64_workers_of_a_model_with_2000_paths_are_all_read() -> None:
    with file(image(paths=2000, used=2000), holes=True) as fd:
        segment, spent = Segment("model", fd), Budget()
        accounts = [Account() for _ in range(64)]
        assert sum(cost_of(segment.extent()).kept for _ in accounts) > OWNER.kept, "the unpacked readings are too large"
        assert all(len(account.read(segment, spent, 0).paths) == 2000 for account in accounts)
        assert {account.ration for account in accounts} == {Ration.WHOLE}


def test_a_reading_counts_as_packed_for_the_next_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    with file(image(paths=704, used=1), holes=True) as fd:
        segment = Segment("first", fd)
        summaries, kept = Account().read(segment, Budget(), 0).summaries, cost_of(segment.extent()).kept
        both = 2 * kept - len(summaries) + packed_size(summaries)
        monkeypatch.setattr(memory_budget, "OWNER", Cost(OWNER.read, both))
        spent = Budget()
        Account().read(segment, spent, 0)
        assert len(Account().read(segment, spent, 0).paths) == 704
        monkeypatch.setattr(memory_budget, "OWNER", Cost(OWNER.read, both - 1))
        spent = Budget()
        Account().read(segment, spent, 0)
        with pytest.raises(SegmentOverBudget, match="the limit for the segments of user"):
            Account().read(segment, spent, 0)


def test_a_segment_over_a_limit_loses_detail_then_frequency_then_everything() -> None:
    def gets(cost: Cost) -> Ration:
        return Budget().ration(ME, cost)[0]

    assert gets(SEGMENT) is Ration.WHOLE
    assert gets(Cost(0, SEGMENT.kept - 1, 1)) is Ration.WHOLE
    assert gets(Cost(0, SEGMENT.kept - 1, 2)) is Ration.NO_DETAIL
    assert gets(Cost(0, SEGMENT.kept, 1)) is Ration.NO_DETAIL
    assert gets(Cost(SEGMENT.read + 1, 0)) is Ration.SELDOM
    assert gets(Cost(SELDOM * SEGMENT.read, SEGMENT.kept, 1)) is Ration.SELDOM
    assert gets(Cost(SELDOM * (SEGMENT.read + 1), 0)) is Ration.NOTHING
    assert gets(Cost(0, SEGMENT.kept + 1)) is Ration.NOTHING


def test_a_single_look_reads_a_segment_at_once_or_not_at_all() -> None:
    assert Budget(1).ration(ME, Cost(SEGMENT.read + 1, 0))[0] is Ration.NOTHING


def test_the_reason_names_the_figure_and_the_limit() -> None:
    spent = Budget()
    assert spent.ration(ME, Cost(0, SEGMENT.kept + MIB)) == (
        Ration.NOTHING,
        "takes 113.0 MiB of memory: the limit for one segment is 112.0 MiB",
    )
    assert spent.ration(ME, Cost(SEGMENT.read, 0))[0] is spent.ration(ME, Cost(SEGMENT.read, 0))[0] is Ration.WHOLE
    assert spent.ration(ME, Cost(SELDOM * MIB, 0)) == (
        Ration.NOTHING,
        "takes 1.0 MiB to be read, and smaller ones take 2,048.0 MiB: "
        "the limit for the segments of user 1 is 2,048.0 MiB",
    )
    assert spent.ration(OTHER, SEGMENT) == (Ration.WHOLE, ""), "another user has separate limits"


COST = st.builds(
    Cost,
    st.integers(0, 2 * SELDOM * SEGMENT.read),
    st.integers(0, 2 * SEGMENT.kept),
    st.integers(0, SEGMENT.kept),
)


@given(st.lists(st.tuples(st.sampled_from([ME, OTHER]), COST), max_size=12))
def test_no_user_gets_more_than_the_limit_or_anything_from_another_users_share(asked: list[tuple[int, Cost]]) -> None:
    together, alone = Budget(), {owner: Budget() for owner in (ME, OTHER)}
    read, kept = {ME: 0, OTHER: 0}, {ME: 0, OTHER: 0}
    for owner, cost in asked:
        ration, why = together.ration(owner, cost)
        assert (ration, why) == alone[owner].ration(owner, cost)
        assert bool(why) == (ration is not Ration.WHOLE)
        if ration is not Ration.NOTHING:
            read[owner] += cost.read // (SELDOM if ration is Ration.SELDOM else 1)
            kept[owner] += cost.kept + (cost.detail if ration is Ration.WHOLE else 0)
    assert all(read[owner] <= OWNER.read and kept[owner] <= OWNER.kept for owner in (ME, OTHER))


# ---- what a segment costs


def image(paths: int = 64, lanes: int = 1, used: int = 1, names: int = 2) -> bytes:
    """Return a segment in which the first `used` paths of each lane have totals."""
    made = bytearray(forge.empty(lanes=lanes, paths=-(-paths // 64) * 64, names=-(-names // 64) * 64, sites=64))
    made += bytes(forge.header_value(made, "size") - len(made))
    put(made, "header", {"uuid": os.urandom(16), "service": b"made", "uid": os.geteuid()})
    put(made, "process", {"names": names, "paths": paths, "sites": 1})
    for name in range(names):
        put(made, "name", {"word": 0x80000001, "text": b"n"}, name)
    at = forge.regions(made)
    for lane in range(lanes):
        put(made, "lane", {"opened": 1, "begun": lane + 1, "summarized": lane + 1}, lane)
        for path in range(used):
            struct.pack_into("<Q", made, at["area"] + lane * at["stride"] + 8 * path, 2)
            put(made, "summary", {"min": 1}, path, lane)
    for path in range(paths):
        struct.pack_into("<Q", made, forge.place(made, "path", path), 1 << 63 | 1 << 16 | 0xFFFF)
    return forge.seal(made)


@pytest.mark.ci
@given(st.integers(1, 300), st.integers(1, 5), st.integers(0, 300), st.integers(2, 900))
def test_reading_a_segment_costs_no_more_than_predicted(paths: int, lanes: int, used: int, names: int) -> None:
    with file(image(paths, lanes, min(paths, used), names), holes=True) as fd:
        segment = Segment("made", fd)
        before = segment.fetched
        cost = cost_of(segment.extent())
        segment.read()
        assert segment.fetched - before <= cost.read + 16 * forge.PAGE


def test_waiting_deferred_work_and_retained_detail_have_a_cost() -> None:
    extent = Extent(1, 1, 0, 0, 0, 0)
    nothing, more = cost_of(extent), cost_of(extent, pending=1000, detail=77)
    assert (more.read, more.kept - nothing.kept, more.detail) == (nothing.read, 200_000, 77)


# ---- repeated readings


def limited(monkeypatch: pytest.MonkeyPatch, *, read: int = SEGMENT.read, kept: int = SEGMENT.kept) -> None:
    monkeypatch.setattr(memory_budget, "SEGMENT", Cost(read, kept))


def spans_begun(reading: Reading) -> int:
    return sum(lane["begun"] for _, lane, _ in reading.lanes)


def test_rarely_read_totals_stay_unchanged_for_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    with rings(lanes=64) as r:
        r.move(0, "span", 0)
        segment, account = Segment("seldom", r.fd), Account()
        limited(monkeypatch, read=cost_of(segment.extent()).read - 1)
        assert [account.read(segment, Budget(), 0).pid, account.ration] == [None, Ration.SELDOM]
        r.put("lane", 0, begun=5)
        before = segment.fetched
        assert spans_begun(account.read(segment, Budget(), SELDOM_NS - 1)) == 0
        assert segment.fetched - before < 128 * 448, "only the size of the segment's content was read"
        assert spans_begun(account.read(segment, Budget(), SELDOM_NS)) == 5
        limited(monkeypatch)
        r.put("lane", 0, begun=6)
        assert spans_begun(account.read(segment, Budget(), SELDOM_NS + 1)) == 6, "there is room for the segment again"
        limited(monkeypatch, read=cost_of(segment.extent()).read - 1)
        assert spans_begun(account.read(segment, Budget(), SELDOM_NS + 2)) == 6, "totals never decrease"
    assert SELDOM * EVERY_NS == SELDOM_NS


def test_only_a_segment_limited_beyond_its_detail_gets_detail_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detail = 1000
    with rings() as r:
        segment, account = Segment("detailed", r.fd), Account(detail=lambda: detail)
        cost = cost_of(segment.extent())
        limited(monkeypatch, kept=cost.kept + 999)

        def gets() -> Ration:
            account.read(segment, Budget(), 0)
            return account.ration

        assert gets() is Ration.NO_DETAIL
        assert "of memory" in account.why
        detail = 0
        assert gets() is Ration.NO_DETAIL
        limited(monkeypatch, read=cost.read - 1)
        assert gets() is Ration.SELDOM
        limited(monkeypatch)
        assert gets() is Ration.NO_DETAIL


@pytest.mark.ci
def test_readings_are_kept_in_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    with file(image(paths=4096, used=64), holes=True) as fd:
        segment, account = Segment("large", fd), Account()
        whole, one = segment.read(), account.read(segment, Budget(), 0)
        limited(monkeypatch, read=cost_of(segment.extent()).read - 1)
        seldom = account.read(segment, Budget(), 0)
        for reading in (one, seldom):
            assert bytes(reading.summaries) == bytes(whole.summaries)
            assert packed_size(reading.summaries) < len(whole.summaries) // 100


@pytest.mark.ci
def test_a_segment_that_grows_while_read_gets_no_more_than_predicted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = image(paths=4096, used=64)
    at, codes = forge.place(made, "process") + forge.field("process", "paths")[0], "<Q"
    limited(monkeypatch, kept=MIB)
    with file(made, holes=True) as fd:
        segment = Segment("grows", fd)

        def pending(paths: int) -> int:
            os.pwrite(fd, struct.pack(codes, paths)[: forge.field("process", "paths")[2]], at)
            return 0

        pending(0)
        # The account calls `pending` after it has measured the segment's content and before it reads the content.
        account = Account(pending=lambda: pending(4096))
        with pytest.raises(SegmentOverBudget, match=r"^grows: takes 5\.\d MiB of memory: the limit for one segment"):
            account.read(segment, Budget(), 0)
        pending(0)
        assert account.ration is Ration.WHOLE, "the next reading may find a smaller segment"
        account = Account(pending=lambda: pending(8))
        assert len(account.read(segment, Budget(), 0).paths) == 8, "the paths with room are read"


def test_growth_of_a_segment_counts_against_later_ones() -> None:
    spent, half = Budget(), OWNER.kept // 2
    assert spent.ration(ME, Cost(0, 1000))[0] is Ration.WHOLE
    assert spent.grown(ME, 1000, half) == ""
    assert spent.ration(ME, Cost(0, half + 1))[0] is Ration.NOTHING
    assert spent.ration(ME, Cost(0, half))[0] is Ration.WHOLE
    assert spent.grown(OTHER, 0, half) == ""
    assert "the limit for the segments of user 1" in spent.grown(ME, 1000, 1001)
    assert spent.grown(ME, 1000, 10) == "", "a segment that shrinks frees no room in this reading"
    assert spent.ration(ME, Cost(0, 1))[0] is Ration.NOTHING


@pytest.mark.ci
def test_a_segment_without_a_share_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    with file(image(paths=4096, used=64), holes=True) as fd:
        segment, account = Segment("large", fd), Account()
        limited(monkeypatch, kept=MIB)
        before = segment.fetched
        with pytest.raises(
            SegmentOverBudget, match=r"^large: takes 5\.\d MiB of memory: the limit for one segment is 1\.0 MiB$"
        ):
            account.read(segment, Budget(), 0)
        assert segment.fetched - before < 2 * forge.PAGE
        assert account.ration is Ration.NOTHING


# ---- a reading of all segments


def placed(prefix: str, name: str, content: bytes) -> Segment:
    """Create a file of these bytes, in which pages of zeros are holes."""
    with (SHM / f"{prefix}{name}").open("wb") as made:
        made.truncate(len(content))
        for at in range(0, len(content), forge.PAGE):
            if any(page := content[at : at + forge.PAGE]):
                made.seek(at)
                made.write(page)
    return open_segment(f"{prefix}{name}")


@pytest.mark.parametrize("names", ["abc", "cba"], ids=["most expensive last", "most expensive first"])
def test_the_most_expensive_segment_is_left_out_whatever_its_name(
    prefix: str, monkeypatch: pytest.MonkeyPatch, names: str
) -> None:
    for name, used in zip(names, (1, 65, 700), strict=True):
        with placed(prefix, name, image(paths=704, used=used)) as segment:
            cost = cost_of(segment.extent())
    monkeypatch.setattr(memory_budget, "OWNER", Cost(3 * cost.read, cost.kept * 5 // 4))
    found = survey(prefix)
    assert [each.path for each in found.refused] == [f"{prefix}{names[2]}"]
    assert "the limit for the segments of user" in found.refused[0].reason
    assert sorted(worker.reading.file for worker in found.workers) == sorted(f"{prefix}{name}" for name in names[:2])


def test_only_a_drained_segment_may_be_read_rarely(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with placed(prefix, "0", image(paths=704, used=700)) as segment:
        account = Account()
        limited(monkeypatch, read=cost_of(segment.extent()).read - 1)
        assert [each.path for each in survey(prefix).refused] == [f"{prefix}0"]
        held = Held({segment.identifier: segment}, [segment], accounts={segment.identifier: account})
        assert [worker.reading.file for worker in survey(prefix, held=held).workers] == [f"{prefix}0"]
        assert account.ration is Ration.SELDOM
