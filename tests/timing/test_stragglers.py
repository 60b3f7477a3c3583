"""Stragglers: verdicts on made-up slots, with random noise from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from slots import BRICKS, LENGTH_NS, Fleet, Made, slow, with_

from brickd.analysis.timing.findings import About, Straggler, StragglerVerdict, WaitingWorker, WorkerRow
from brickd.analysis.timing.stragglers import SLOTS, judge
from brickd.analysis.timing.worker_series import ROWS_MAX, Host, Key, Life, SlotLook, SlotSide, look
from brickd.base.cpu_sharing import Sharing
from brickd.base.timestamps import Moment, local, rfc3339
from brickd.model.worker_totals import Share, Slot

GEMM = About("api", "api/5", "moe_gemm")
SEEDS = st.integers(0, 2**32)
WAITS = Made(2_000_000, category="COLLECTIVE")


def found(judged: StragglerVerdict) -> list[About]:
    return [finding.about for finding in judged.findings]


def one(judged: StragglerVerdict) -> Straggler:
    (finding,) = judged.findings
    return finding


def slow_gemm(percent: float = 5.0, **more: object) -> Fleet:
    return Fleet(bricks=with_("moe_gemm", replace(BRICKS["moe_gemm"], factor=slow(5, percent), **more)))  # type: ignore[arg-type]


def test_a_slow_worker_is_named_with_its_brick_and_cost() -> None:
    finding = one(judge(slow_gemm().looks(6, seed=1)))
    assert finding.about == GEMM
    assert finding.category == "FFN"
    assert finding.row.excess_percent == pytest.approx(5, abs=0.5)
    # The cost of 250 calls of 12 ms in ten seconds, each of which is 5 % too long.
    assert finding.cost_ns_per_s == pytest.approx(0.05 * 12e6 * 25, rel=0.1)
    assert finding.median_ns == pytest.approx(12e6, rel=0.01)
    assert finding.rows[0] == finding.row
    assert len(finding.rows) == 8
    assert finding.confidence == "high"


@given(SEEDS, st.floats(0.0005, 0.3))
def test_a_fleet_of_equal_workers_raises_no_alarm(seed: int, noise: float) -> None:
    assert found(judge(Fleet(noise=noise).looks(6, seed))) == []


@pytest.mark.ci
@given(SEEDS, st.floats(-18, 18))
def test_a_common_load_changes_nothing(seed: int, scale: float) -> None:
    """All workers slow down together, by a different factor in each slot."""
    fleet = slow_gemm()
    noise = random.Random(seed).gauss
    slots = [fleet.slot(number, noise) for number in range(6)]
    plain = judge([look(slot, fleet.lives()) for slot in slots])
    loaded = judge([look(scaled(slot, 2 ** (scale / 18 * number)), fleet.lives()) for number, slot in enumerate(slots)])
    assert found(loaded) == found(plain)


def scaled(slot: Slot, factor: float) -> Slot:
    bricks = {
        key: tuple(replace(share, self_ns=share.self_ns * factor) for share in shares)
        for key, shares in slot.bricks.items()
    }
    return replace(slot, bricks=bricks)


@pytest.mark.ci
@given(SEEDS, st.randoms(use_true_random=False))
def test_the_order_of_workers_changes_nothing(seed: int, shuffler: random.Random) -> None:
    fleet = slow_gemm(3.0)
    noise = random.Random(seed).gauss
    plain, shuffled = [], []
    for number in range(6):
        slot = fleet.slot(number, noise)
        plain.append(look(slot, fleet.lives()))
        bricks = {key: tuple(shuffler.sample(shares, len(shares))) for key, shares in slot.bricks.items()}
        lives = dict(shuffler.sample(list(fleet.lives().items()), 8))
        shuffled.append(look(replace(slot, bricks=bricks), lives))
    one, other = judge(plain), judge(shuffled)
    assert found(one) == found(other)
    assert [f.row.score for f in one.findings] == pytest.approx([f.row.score for f in other.findings])


def test_thin_evidence_gives_no_alarm_and_is_reported() -> None:
    few_calls = slow_gemm(50.0, calls=4)
    judged = judge(few_calls.looks(6, seed=1))
    assert found(judged) == []
    (coverage,) = judged.coverage
    assert (coverage.judged, coverage.few_samples) == (3, 1)
    for slots in range(4):
        judged = judge(slow_gemm(50.0).looks(slots, seed=1))
        assert found(judged) == []
        assert judged.slots == slots < judged.slots_wanted


def test_a_slot_with_far_fewer_calls_than_usual_is_ignored() -> None:
    """The worker started, or was stopped, within the slot, so its few calls are not comparable."""
    looks = slow_gemm().looks(6, seed=1)
    few = looks[0].bricks["api", "moe_gemm"]["api/5"]._replace(calls=9, apart=0.9)
    bricks = {**looks[0].bricks, ("api", "moe_gemm"): {**looks[0].bricks["api", "moe_gemm"], "api/5": few}}
    judged = judge([replace(looks[0], bricks=bricks), *looks[1:]])
    assert one(judged).row.excess_percent == pytest.approx(5, abs=0.5)
    assert one(judged).since == looks[1].slot.began


def test_of_two_workers_none_is_named() -> None:
    fleet = Fleet(workers=2, bricks={"moe_gemm": Made(12_000_000, factor=slow(1, 50))})
    judged = judge(fleet.looks(6, seed=1))
    assert found(judged) == []
    assert [(each.judged, each.few_workers) for each in judged.coverage] == [(0, 1)]


def test_one_of_three_and_two_of_eight_workers_are_named() -> None:
    three = Fleet(workers=3, bricks={"moe_gemm": Made(12_000_000, factor=slow(1, 10))})
    assert found(judge(three.looks(6, seed=1))) == [About("api", "api/1", "moe_gemm")]
    assert one(judge(three.looks(6, seed=1))).confidence == "low"

    def two(worker: int, slot: int) -> float:
        return 1.05 if worker in (2, 6) else 1.0

    eight = Fleet(bricks=with_("moe_gemm", Made(12_000_000, factor=two)))
    assert {about.worker for about in found(judge(eight.looks(6, seed=1)))} == {"api/2", "api/6"}


def test_a_parent_is_not_blamed_for_its_child() -> None:
    """The self time of the parent is normal."""
    assert [about.brick for about in found(judge(slow_gemm(20.0).looks(6, seed=3)))] == ["moe_gemm"]


@pytest.mark.parametrize("stopped", range(6))
def test_a_worker_that_was_stopped_and_continues_is_not_named(stopped: int) -> None:
    """The worker gets SIGSTOP in a span, so the mean of one slot is very large."""

    def factor(worker: int, slot: int) -> float:
        return 2.0 if (worker, slot) == (5, stopped) else 1.0

    looks = Fleet(bricks=with_("moe_gemm", Made(12_000_000, factor=factor))).looks(6, seed=1)
    for seen in range(4, 7):
        assert found(judge(looks[:seen])) == []


def test_a_worker_that_was_stopped_hides_no_slow_one() -> None:
    def factor(worker: int, slot: int) -> float:
        return 2.0 if (worker, slot) == (1, 3) else 1.05 if worker == 5 else 1.0

    looks = Fleet(bricks=with_("moe_gemm", Made(12_000_000, factor=factor))).looks(6, seed=1)
    assert found(judge(looks)) == [GEMM]


@pytest.mark.parametrize("seed", range(20))
def test_an_unsteady_worker_is_not_called_slow(seed: int) -> None:
    """The other workers vary little, and this worker is above them in most slots by chance."""
    chance = random.Random(seed)
    times = [chance.uniform(0.8, 1.2) for _ in range(6)]

    def factor(worker: int, slot: int) -> float:
        return times[slot] if worker == 5 else 1.0

    looks = Fleet(bricks=with_("moe_gemm", Made(12_000_000, factor=factor))).looks(6, seed)
    for seen in range(4, 7):
        assert found(judge(looks[:seen])) == []


def test_a_worker_whose_calls_have_more_elements_is_passed_over() -> None:
    more = slow_gemm(12.0, elements=lambda worker: 4500 if worker == 5 else 4000)
    judged = judge(more.looks(6, seed=1))
    assert found(judged) == []
    assert [(each.finding.about, each.reason) for each in judged.passed] == [
        (GEMM, "its calls have 13 % more elements")
    ]
    little = slow_gemm(12.0, elements=lambda worker: 4040 if worker == 5 else 4000)
    assert found(judge(little.looks(6, seed=1))) == [GEMM]


def test_a_negligible_cost_is_passed_over() -> None:
    cheap = Fleet(bricks={"norm": Made(60_000, factor=slow(5, 40))}, noise=0.0001)
    judged = judge(cheap.looks(6, seed=1))
    assert found(judged) == []
    assert [each.reason for each in judged.passed] == ["the difference costs only 600 µs/s"]


def test_bricks_too_small_to_matter_are_counted() -> None:
    judged = judge(Fleet(bricks=with_("tiny", Made(1_000))).looks(6, seed=1))
    assert [(each.judged, each.small) for each in judged.coverage] == [(4, 1)]


@pytest.mark.parametrize("category", ["Wait", "IDLE"])
def test_waiting_for_work_is_counted_and_not_judged(category: str) -> None:
    idle = Fleet(bricks=with_("next_request", Made(8_000_000, category=category, factor=slow(5, 50))))
    judged = judge(idle.looks(6, seed=1))
    assert (found(judged), judged.passed) == ([], ())
    assert [(each.judged, each.unjudged) for each in judged.coverage] == [(4, 1)]


def test_every_seen_brick_is_in_exactly_one_count() -> None:
    """This includes a brick that is small in some slots, a brick in only one slot, and a brick that has only bounds."""

    def at_first(worker: int, slot: int) -> float:
        return 1.0 if slot < 2 else 0.0001

    bricks = {
        **with_("tiny", Made(1_000)),
        "rare": Made(9e6, calls=2),
        "idle": Made(9e6, category="idle"),
        "small at times": Made(9e6, factor=at_first),
    }
    looks = Fleet(bricks=bricks).looks(6, seed=1)
    noise = random.Random(1).gauss
    once = Fleet(bricks={"tiny once": Made(1_000), "wait once": Made(1_000, category="wait")}).slot(0, noise)
    bounded = frozenset({("api", "bounded"), ("api", "tiny")})
    first = look(replace(once, bounded=bounded), looks[0].lives)
    (coverage,) = judge([replace(looks[0], left={**looks[0].left, **first.left}), *looks[1:]]).coverage
    assert (coverage.judged, coverage.few_samples, coverage.few_workers) == (4, 2, 0)
    assert (coverage.small, coverage.unjudged, coverage.bounded) == (2, 2, 1)


# ---- collectives


def waiting(late: int, by: float) -> Made:
    """Return a collective in which one worker waits less than the others. `by` is the part of the usual wait that is
    missing.
    """
    return replace(WAITS, factor=lambda worker, slot: 1 - by if worker == late else 1.0)


def test_in_a_collective_the_worker_that_waits_least_is_named() -> None:
    fleet = Fleet(bricks=with_("all_reduce", waiting(5, 0.6)), noise=0.005)
    finding = one(judge(fleet.looks(6, seed=1)))
    assert finding.about == About("api", "api/5", "all_reduce")
    assert finding.outside
    # The cost of 250 waits in ten seconds, each of which is 1.2 ms shorter than the waits of other workers.
    assert finding.cost_ns_per_s == pytest.approx(25 * 1.2e6, rel=0.05)
    assert "none of its instrumented bricks explains this" in judge(fleet.looks(6, seed=1)).headlines()[0][1]


def test_the_worker_that_waits_longest_in_a_collective_is_a_victim() -> None:
    fleet = Fleet(bricks=with_("all_reduce", waiting(5, -0.9)), noise=0.005)
    assert found(judge(fleet.looks(6, seed=1))) == []


def test_a_brick_that_explains_a_wait_leads_and_the_wait_corroborates_it() -> None:
    bricks = {**slow_gemm(10.0).bricks, "all_reduce": waiting(5, 0.6)}
    finding = one(judge(Fleet(bricks=bricks).looks(6, seed=1)))
    assert (finding.about, finding.outside, finding.corroborated_by) == (GEMM, False, ("all_reduce",))


def test_a_wait_explained_by_more_work_names_no_worker() -> None:
    more = replace(BRICKS["moe_gemm"], elements=lambda worker: 4800 if worker == 5 else 4000)
    bricks = {**BRICKS, "moe_gemm": replace(more, factor=slow(5, 20)), "all_reduce": waiting(5, 0.9)}
    judged = judge(Fleet(bricks=bricks).looks(6, seed=1))
    assert found(judged) == []
    assert [each.finding.about.brick for each in judged.passed] == ["all_reduce", "moe_gemm"]
    assert "more than the others in moe_gemm" in judged.passed[0].reason


# ---- new and restarted workers


def reborn(looks: list[SlotLook], slot: int, worker: str = "api/5") -> list[SlotLook]:
    """Return the same slots. In those before this slot, another process is running under the worker's name."""
    before = Life("api", "another uuid")
    return [
        replace(each, lives={**each.lives, worker: before} if number < slot else each.lives)
        for number, each in enumerate(looks)
    ]


def test_calls_of_an_earlier_process_with_the_same_name_do_not_count() -> None:
    looks = slow_gemm(5.0).looks(6, seed=1)
    assert found(judge(reborn(looks, 2))) == [GEMM]
    assert one(judge(reborn(looks, 2))).since == looks[2].slot.began
    assert found(judge(reborn(looks, 3))) == []


def test_an_ended_worker_is_not_named() -> None:
    looks = slow_gemm(5.0).looks(6, seed=1)
    lives = {name: life for name, life in looks[-1].lives.items() if name != "api/5"}
    judged = judge([*looks[:-1], replace(looks[-1], lives=lives)])
    assert found(judged) == []
    assert judged.coverage[0].workers == 7


def test_a_new_worker_is_compared_after_enough_slots() -> None:
    fleet = slow_gemm(5.0)
    whole = fleet.looks(6, seed=1)
    for came in range(6):
        looks = [without(each, "api/5") if number < came else each for number, each in enumerate(whole)]
        assert found(judge(looks)) == ([GEMM] if came <= 2 else [])


def without(seen: SlotLook, worker: str) -> SlotLook:
    bricks = {key: {name: work for name, work in of.items() if name != worker} for key, of in seen.bricks.items()}
    return replace(seen, bricks=bricks, lives={name: life for name, life in seen.lives.items() if name != worker})


# ---- the time since when a worker is slow, and hysteresis


def test_since_is_the_first_slot_of_an_unbroken_slow_run() -> None:
    for began in range(3):
        looks = Fleet(bricks=with_("moe_gemm", Made(12e6, factor=slow(5, 8, range(began, 9))))).looks(6, seed=1)
        if found(judge(looks)):
            assert one(judge(looks)).since == looks[began].slot.began
    since = {GEMM: Moment(123, 456)}
    assert one(judge(looks, since)).since == Moment(123, 456)


def test_a_named_worker_stays_named_until_well_below_the_threshold() -> None:
    names: tuple[dict[About, Moment], ...] = ({}, {GEMM: Moment(1, 1)})
    strength = {
        percent: [bool(found(judge(slow_gemm(percent).looks(6, seed=1), named))) for named in names]
        for percent in (0.2, 1.3, 4.0)
    }
    assert strength == {0.2: [False, False], 1.3: [False, True], 4.0: [True, True]}


# ---- hostile numbers


@pytest.mark.ci
@given(st.data())
def test_no_claimed_number_breaks_the_judgement(data: st.DataObject) -> None:
    figures = st.sampled_from([0, 1, 5, 2**63, 2**64 - 1])
    times = st.one_of(figures.map(float), st.floats(0, 1e300))
    looks = []
    ran = data.draw(st.sampled_from([0.0, 1e-300, 1.0, 1e300]))
    category = data.draw(st.sampled_from(["collective", "other"]))
    for number in range(6):
        bricks = {}
        for brick in ("a", "b", "wait"):
            workers = data.draw(st.integers(0, 5))
            bricks[("api", brick)] = tuple(
                Share(f"api/{worker}", data.draw(figures), data.draw(times), data.draw(figures))
                for worker in range(workers)
            )
        length = data.draw(st.sampled_from([0, 1, LENGTH_NS]))
        slot = Slot(Moment(number, number), Moment(number + length, 2**63), bricks, {("api", "wait"): category})
        hosts = {f"api/{worker}": Host(1, ran * worker, ran) for worker in range(5)}
        looks.append(look(slot, {f"api/{worker}": Life("api", "u") for worker in range(5)}, hosts))
    judged = judge(looks)
    for finding in judged.findings:
        assert finding.document()
    assert judged.headlines() is not None


def test_a_comparison_is_bounded_and_counts_omitted_bricks() -> None:
    workers = 64
    bricks = {f"brick {n}": Made(1_000_000.0 + n) for n in range(ROWS_MAX // workers + 10)}
    (seen,) = Fleet(workers=workers, bricks=bricks).looks(1, seed=1)
    assert sum(map(len, seen.bricks.values())) == ROWS_MAX
    assert list(seen.left.values()) == ["small"] * 10


def test_more_services_need_no_more_passes_over_all_bricks() -> None:
    class Walked(dict[Key, Mapping[str, SlotSide]]):
        times = 0

        def __iter__(self) -> Iterator[Key]:
            Walked.times += 1
            return super().__iter__()

    def times(services: int) -> int:
        fleets = [Fleet(workers=1, service=f"api {n}") for n in range(services)]
        found = [seen for fleet in fleets for seen in fleet.looks(1, seed=1)]
        lives = {name: life for fleet in fleets for name, life in fleet.lives().items()}
        bricks = Walked(item for seen in found for item in seen.bricks.items())
        Walked.times = 0
        assert len(judge([replace(found[0], lives=lives, bricks=bricks)]).coverage) == services
        return Walked.times

    assert times(1) == times(50) > 0


def test_no_more_slots_count_than_are_kept() -> None:
    assert judge(Fleet().looks(9, seed=1)).slots == SLOTS


# ---- texts


def test_one_sentence_has_worker_since_brick_and_cost() -> None:
    judged = judge(replace(slow_gemm(11.0), noise=0.0001).looks(6, seed=1))
    ((finding, reported),) = judged.headlines()
    since = local(finding.since.at_ns, judged.ended.at_ns)
    assert reported == f"api/5 slow since {since}: moe_gemm +11 %, costs 33.0 ms/s"
    two = replace(judged, findings=(finding, replace(finding, about=finding.about._replace(brick="norm"))))
    assert [text for _, text in two.headlines()] == [f"{reported} (and in 1 more brick)"]


def test_a_worker_that_is_slow_everywhere_has_one_sentence() -> None:
    factor = slow(5, 10)
    fleet = Fleet(bricks={name: replace(made, factor=factor) for name, made in BRICKS.items()}, noise=0.001)
    judged = judge(fleet.looks(6, seed=1))
    assert len(judged.findings) == 3  # the bricks around these take too little self time to count
    ((_, reported),) = judged.headlines()
    assert reported.endswith(" (and in 2 more bricks)")


def test_a_finding_of_another_day_has_its_date() -> None:
    day = 86_400 * 10**9
    assert local(0, 3 * day).startswith("19")
    assert len(local(3 * day, 3 * day + 10**9)) == 5


def test_a_finding_has_its_json_document() -> None:
    document = one(judge(slow_gemm().looks(6, seed=1))).document()
    assert document["since"] == rfc3339(1_700_000_000 * 10**9)
    assert document["others"] == 7
    assert [row["worker"] for row in document["workers"]].count("api/5") == 1
    assert {"excess_percent", "score", "cost_ns_per_s", "cost_percent", "confidence"} <= set(document)


def test_numbers_in_a_document_are_rounded() -> None:
    row = WorkerRow("api/5", 1234.567, 10, 2.345, 5.4321, 6.7849)
    finding = Straggler(GEMM, "FFN", False, row, 987.654, 1_234_567.8, Moment(0, 0), "high", (row, row, row))
    assert finding.document(rows=False) == {
        "service": "api", "worker": "api/5", "brick": "moe_gemm", "category": "FFN", "outside": False,
        "mean_ns": 1235, "excess_percent": 5.43, "calls": 10, "elements_per_call": 2.3, "score": 6.78,
        "median_ns": 988, "others": 2, "cost_ns_per_s": 1_234_568, "cost_percent": 0.123, "since": rfc3339(0),
        "confidence": "high", "corroborated_by": [],
    }  # fmt: skip
    unknown = WorkerRow("api/5", 1.0, 1, 1.0).document()
    assert (unknown["excess_percent"], unknown["score"]) == (None, None)


def test_the_document_of_a_waiting_worker_has_percentages() -> None:
    waiting = WaitingWorker("api", "api/0", 0.123456, 0.0234567, Moment(0, 0), Sharing(3, 4711), throttled=0.01)
    document = waiting.document()
    assert (document["waited_percent"], document["others_percent"], document["throttled_percent"]) == (12.35, 2.35, 1.0)
    assert (document["cpu"], document["shares_with_pid"], document["since"]) == (3, 4711, rfc3339(0))
    assert waiting.text.endswith("; its cgroup was throttled 1.0 % of the time")
    alone = replace(waiting, others=None, sharing=None, throttled=0.123456).document()
    assert (alone["others_percent"], alone["cpu"], alone["throttled_percent"]) == (None, None, 12.35)


def test_a_verdict_has_findings_for_a_minute() -> None:
    judged = judge(slow_gemm().looks(6, seed=1))
    assert judged.age_ns == 0
    for age_ns, count in ((60 * 10**9 - 1, 1), (60 * 10**9, 0)):
        later = judged.at(judged.ended.now_ns + age_ns)
        assert (later.age_ns, len(later.findings)) == (age_ns, count)
