"""The daemon compares rows with histories by the rules of rows; only equal histories and lineages are compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from checked_record import CheckedRecord, Tensor
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_workers import MadeUp
from test_histories_compared import HISTORY, INNER, OUTER, Fleet, record, right, wrong
from test_rows import doubts

from brickd.analysis.evidence_verdicts import Comparisons, EvidenceVerdict, verdicts
from brickd.analysis.numerics import online_codec, row_workers
from brickd.analysis.numerics.announce import headlines
from brickd.analysis.numerics.comparison import EvidenceClass, Party, compare
from brickd.analysis.numerics.coverage import SiteState, services, sites
from brickd.analysis.numerics.evidence import recall
from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.numerics.online_state import Compared, ServiceSite, SiteCounts
from brickd.model.worker_names import KnownNames
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import SiteKey
from brickd.shm.sites import Tier
from brickd.views.numerics_summary import about

HERE = ServiceSite("api", "k1", 3, Tier.HISTORY)
INSIDE = HERE._replace(kernel="k2")
ROWS = _reader.CHECKED_ROWS | _reader.CHECKED_STATELESS | _reader.CHECKED_STEP


def worker() -> Worker:
    reading = MadeUp(service="api").reading()
    return Worker("api/0", reading, ledger_of(reading))


def verdict(compared: Compared, tier: Tier = Tier.HISTORY) -> EvidenceVerdict:
    found = verdicts(Comparisons(compared, (), None), [worker()])
    return next(each for each in found if each.evidence == tier.evidence)


def differing(workers: int = 3, rows: int = 4, steps: int = 4) -> Fleet:
    """Let the last worker compute other rows than all others."""
    fleet = Fleet(workers)
    for row in range(rows):
        for number in range(workers):
            output = wrong if number == workers - 1 else right
            fleet.each(number, record(output(row), row, step=row % steps))
    return fleet


# ---- what is compared


def test_equal_rows_after_equal_histories_prove_the_service_equal() -> None:
    fleet = Fleet(3)
    fleet.healthy((0, 1, 2))
    found = fleet.look()
    assert (found.findings, found.sites[HERE]) == ({}, SiteCounts("other", 12, met=12))
    by_history = verdict(found)
    assert (by_history.verdict, by_history.looked_at, by_history.compared) == ("equal", 12, 12)
    assert (by_history.recorded, by_history.command) == (True, None)
    for tier in (Tier.TENSORS, Tier.ROWS):
        assert (verdict(found, tier).verdict, verdict(found, tier).looked_at) == ("unproven", 0)
    assert not found.latest, "this is the time of the last comparison by input"


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        ({"lineage": 2}, "lineage"),
        ({"params": 2}, "context"),
        ({"backend": 2}, "context"),
        ({"token": 2}, "lineage"),
    ],
    ids=lambda each: next(iter(each)) if isinstance(each, dict) else each,
)
def test_rows_that_were_computed_in_another_way_are_counted_and_never_compared(
    other: dict[str, int], reason: str
) -> None:
    fleet = Fleet(2)
    fleet.healthy((0,))
    fleet.each(1, *(record(wrong(row), row, step=row, **other) for row in range(4)))
    found = fleet.look()
    assert (found.findings, found.row_doubts, found.sites[HERE].met) == ({}, {}, 0)
    by_history = verdict(found)
    assert (by_history.verdict, dict(by_history.not_comparable)) == ("unproven", {reason: 8})
    assert by_history.why is not None
    assert by_history.why.startswith("0 of 8 rows compared: 8 ")
    assert by_history.command == "brickd coverage api"


def test_rows_after_other_tokens_are_alone() -> None:
    fleet = Fleet(2)
    fleet.healthy((0,), range(4))
    fleet.faulty(1, range(10, 13))
    found = fleet.look()
    assert (verdict(found).verdict, dict(verdict(found).not_comparable)) == ("unproven", {"alone": 7})
    assert verdict(found).why == "0 of 7 rows had a counterpart"


def test_a_lineage_of_one_worker_is_alone_only_if_no_other_worker_has_the_history() -> None:
    """A worker computes the same tokens twice, and another one only once; the third computes other tokens."""
    fleet = Fleet(3)
    fleet.each(0, record(right(1), 1, lineage=5), record(right(1), 1, lineage=6))
    fleet.each(1, record(right(1), 1, lineage=5))
    fleet.each(2, record(right(2), 2, lineage=5), record(right(2), 2, lineage=6))
    fleet.look()
    number = fleet.numerics.service_number("api")
    assert fleet.numerics.fingerprints.rows_apart(number, Tier.HISTORY) == (0, 1)
    assert fleet.numerics.fingerprints.rows_apart(number, Tier.ROWS) == (0, 0)


def test_rows_are_counted_for_one_reason_each() -> None:
    fleet = Fleet(3)
    fleet.each(0, record(right(1), 1, lineage=5), record(right(2), 2), record(right(3), 3))
    fleet.each(1, record(right(1), 1, lineage=6), record(right(2), 2, backend=2))
    fleet.each(2, record(right(4), 4))
    assert dict(verdict(fleet.look()).not_comparable) == {"alone": 2, "context": 2, "lineage": 2}


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize(("rows", "steps"), [(1, 1), (2, 2), (4, 1)])
def test_a_few_rows_that_differ_name_no_worker_and_are_not_equal(workers: int, rows: int, steps: int) -> None:
    fleet = differing(workers, rows, steps)
    found = fleet.look()
    assert (found.findings, doubts(found)) == ({}, {HERE: "few"})
    by_history = verdict(found)
    assert (by_history.verdict, dict(by_history.unknown)) == ("unproven", {"few": 1})
    n = workers * rows
    assert dict(by_history.not_comparable) == {"unjudged": n}
    assert by_history.why == (
        f"0 of {n} rows compared: {n} at sites where rows differ and are not judged; rows of 1 site unknown (1 where"
        " too few rows differ to name a worker)"
    )
    *_, later = verdicts(Comparisons(found, (), 1 << 62), [worker()])
    assert (later.evidence, dict(later.not_comparable)) == ("history", {})
    (site,) = sites(found, [worker()])
    assert site.state is SiteState.UNJUDGED


def test_a_row_that_was_wrong_once_is_not_equal_although_it_was_right_in_another_step() -> None:
    fleet = Fleet(2)
    fleet.healthy((0, 1))
    fleet.each(1, record(wrong(1), 1, step=7), record(right(1), 1, step=8))
    assert doubts(fleet.look()) == {HERE: "few"}


def test_rows_with_a_history_and_rows_without_one_are_never_compared() -> None:
    fleet = Fleet(2)
    for row in range(4):
        fleet.each(0, record(right(row), row, step=row))
        fleet.each(1, CheckedRecord(wrong(row), (Tensor(row),), step=row, position=row, valid=9, flags=ROWS))
    found = fleet.look()
    assert {place.tier: (each.fingerprints, each.met) for place, each in found.sites.items()} == {
        Tier.HISTORY: (4, 0),
        Tier.ROWS: (4, 0),
    }


def sharing(workers: int) -> Fleet:
    """Workers whose fingerprints of each tier have a window of their own, as in a daemon."""
    fleet = Fleet(numerics=Numerics(1 << 20, shares=True))
    fleet.workers = [fleet.worker(f"u{n}") for n in range(workers)]
    return fleet


def test_rows_of_too_many_workers_are_counted_and_never_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_workers, "ROW_WORKERS_MAX", 2)
    fleet = sharing(3)
    fleet.healthy((0, 1))
    fleet.faulty(2)
    fleet.each(2, CheckedRecord(right(1), (), position=1, valid=9, flags=HISTORY))
    found = fleet.look()
    assert (found.findings, found.sites[HERE].fingerprints) == ({}, 8)
    by_history = verdict(found)
    assert (by_history.looked_at, by_history.compared, dict(by_history.not_comparable)) == (13, 8, {"workers": 5})
    assert verdict(found, Tier.ROWS).looked_at == 0


def test_a_worker_takes_the_place_of_one_whose_histories_are_evicted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_workers, "ROW_WORKERS_MAX", 1)
    fleet = sharing(2)
    fleet.healthy((0,))
    fleet.healthy((1,))
    assert dict(fleet.numerics.row_workers.left_out) == {("api", Tier.HISTORY): 4}, "the first worker has rows"
    fleet.numerics.forget(["u0"])
    fleet.healthy((1,))
    assert fleet.numerics.extent("api", Tier.HISTORY).end == 8


def test_nan_in_a_row_with_a_history_is_not_counted_as_a_birth_again() -> None:
    fleet = Fleet(1)
    fleet.each(0, record(replace(right(1), nan=3), 1))
    assert not fleet.numerics.fingerprints.births()


# ---- verdicts


def test_a_worker_that_differs_in_the_last_bit_is_named_with_its_site() -> None:
    fleet = differing()
    (finding,) = fleet.look().findings.values()
    assert (finding.place, set(finding.outliers), finding.cases) == (HERE, {"u2"}, 1)
    ((kind, text, of),) = fleet.logged
    assert (kind, of["worker"], of["service"]) == ("diverged", "api/2", "api")
    assert text.startswith("api/2 differs from the others: rows with equal histories of k1 layer 3, relative error ")
    assert text.endswith("; it began there or in a cache: its input rows were equal")
    assert fleet.look().findings[HERE].cases == 1, "nothing new has arrived"
    assert verdict(fleet.watch.compared).verdict == "diverged"
    assert verdict(fleet.watch.compared, Tier.ROWS).verdict == "unproven"


@pytest.mark.parametrize(("rows", "steps", "named"), [(3, 2, True), (2, 2, False), (9, 1, False)])
def test_only_three_rows_in_two_steps_name_a_worker(rows: int, steps: int, *, named: bool) -> None:
    found = differing(rows=rows, steps=steps).look()
    assert [set(each.outliers) for each in found.findings.values() if each.outliers] == [{"u2"}] * named


def test_workers_may_have_a_small_set_of_outputs_if_they_share_one() -> None:
    """Another neighbour in the batch may choose another kernel."""
    fleet = differing()
    fleet.healthy((2,))
    fleet.faulty(0)
    assert not fleet.look().findings


def test_two_workers_disagree() -> None:
    fleet = differing(2)
    (finding,) = fleet.look().findings.values()
    assert (dict(finding.outliers), sorted(finding.named)) == ({}, ["u0", "u1"])
    assert fleet.logged[0][1].startswith("api/1 and api/0 disagree: rows with equal histories of k1 layer 3")


def test_the_site_where_it_began_leads_although_a_later_site_was_recorded_first() -> None:
    fleet = Fleet(3)
    for row in range(4):
        for number, output in ((0, right(row)), (1, right(row)), (2, wrong(row))):
            other = row if number < 2 else 500 + row
            fleet.each(number, record(output, row, step=row, site=INNER, given=other))
            fleet.each(number, record(output, row, step=row, site=OUTER))
    found = fleet.look()
    assert list(found.findings) == [INSIDE, HERE]
    names = {f"u{n}": f"api/{n}" for n in range(3)}
    assert [each.place for each in about(found, [], partial=False)] == [HERE, INSIDE]
    ((finding, text),) = headlines(found.findings.values(), KnownNames(names), 0)
    assert finding.place == HERE
    assert text.endswith("its input rows were equal (and at 1 more site)")
    assert [text.partition("histories of ")[2].partition(" ")[0] for _, text, _ in fleet.logged] == ["k1", "k2"]
    assert fleet.logged[1][1].endswith("; it began earlier: its input rows already differ")


def test_a_difference_by_row_leads_because_it_certainly_began_at_its_site() -> None:
    fleet = differing()
    fleet.look()
    for row in range(4):
        for number in range(3):
            output = Tensor(9, sketch=(0.5, *(0.0,) * 15)) if number == 2 else right(row)
            fleet.each(number, CheckedRecord(output, (Tensor(row),), site=INNER, step=row, position=1, flags=ROWS))
    found = fleet.look()
    assert [place.tier for place in found.findings] == [Tier.HISTORY, Tier.ROWS]
    ((finding, _),) = headlines(found.findings.values(), KnownNames({}), 0)
    assert finding.place.tier is Tier.ROWS


def contradicting(
    workers: Iterable[int], send: Callable[[int, Tensor, int], None], rows: int = 4, *, alike: bool = False
) -> None:
    """Let each of these workers send two outputs for each row, which no other worker has unless they are `alike`."""
    for number in workers:
        for row in range(rows):
            for time in (1, 2):
                of = time if alike else 10 * (number + 1) + time
                send(number, Tensor(100 * of + row, sketch=(float(of), *(0.0,) * 15)), row)


def test_if_most_workers_contradict_themselves_no_worker_is_named_and_nothing_is_proven() -> None:
    fleet = Fleet(3)
    contradicting((0, 1), lambda number, output, row: fleet.each(number, record(output, row, step=row)))
    fleet.faulty(2)
    found = fleet.look()
    assert (found.findings, doubts(found)) == ({}, {HERE: "unsteady"})
    by_history = verdict(found)
    assert (by_history.verdict, by_history.compared, dict(by_history.unknown)) == ("unproven", 0, {"unsteady": 1})
    assert by_history.why is not None
    assert by_history.why.endswith("; rows of 1 site unknown (1 where most workers contradict themselves)")
    assert not verdict(found, Tier.ROWS).unknown
    (site,) = sites(found, [worker()])
    assert site.state is SiteState.UNREPEATED


@pytest.mark.parametrize("evidence", [EvidenceClass.ROW, EvidenceClass.HISTORY])
@pytest.mark.parametrize(("rows", "diverged"), [(2, True), (3, False)])
def test_diff_has_the_daemons_rule_of_workers_that_contradict_themselves(
    evidence: EvidenceClass, rows: int, *, diverged: bool
) -> None:
    """Below three rows with contradictions, the workers count as steady."""
    fleet = Fleet(3)

    def send(number: int, output: Tensor, row: int) -> None:
        of = record(output, row, step=row)
        if evidence == EvidenceClass.ROW:
            of = CheckedRecord(output, (Tensor(row),), step=row, position=1, flags=ROWS)
        fleet.each(number, of)

    contradicting((0, 1), send, rows, alike=True)
    for row in range(9):
        for number in range(3):
            far = Tensor(700 + row, sketch=(7.0, *(0.0,) * 15))
            send(number, far if number == 2 and row > 4 else right(row), 100 + row)
    found = fleet.compare(evidence)
    assert (found.diverged > 0, "unsteady" in found.not_comparable) == (diverged, not diverged)
    assert bool(fleet.look().findings) == diverged
    assert bool(fleet.watch.compared.row_doubts) == (not diverged)


# ---- over a restart, and in memory


def test_a_verdict_survives_the_daemons_end() -> None:
    before = differing().look()
    document = json.loads("".join(online_codec.encode(before)))
    saved = online_codec.decode(document)
    assert (saved.findings, saved.sites, saved.recent) == (before.findings, before.sites, before.recent)
    assert HERE in saved.findings
    assert ("api", Tier.HISTORY) in saved.recent
    again = Fleet(3, before=saved)
    again.healthy((0, 1))
    assert set(again.look().findings[HERE].outliers) == {"u2"}
    assert not again.logged, "a known finding is not reported again"


def test_a_checkpoint_of_an_older_daemon_has_no_histories() -> None:
    fleet = differing()
    document = json.loads("".join(online_codec.encode(fleet.look())))
    del document["recent_histories"]
    assert ("api", Tier.HISTORY) not in online_codec.decode(document).recent
    for kernel in (["k1", "else"], ["k1", "history", "history"], []):
        broken = {**document, "sites": [["api", kernel, 3, "other", *[0] * 7]]}
        with pytest.raises(Exception):  # noqa: B017, PT011
            online_codec.decode(broken)


def test_evidence_is_recalled_and_one_row_of_a_known_outlier_is_enough() -> None:
    found = differing().look()
    later = Fleet(3)
    later.each(2, record(wrong(1), 1))
    later.healthy((0, 1), (1,))
    assert later.compare().diverged == 0
    window = later.numerics.about([each.uuid for each in later.workers])
    recall(window, replace(found, oldest={}), dict.fromkeys(("u0", "u1", "u2"), ""))
    parties = [Party(f"api/{n}", each.number) for n, each in enumerate(window.producers.values())]
    compared = compare(window, parties, EvidenceClass.HISTORY)
    assert (compared.outlier, compared.diverged >= 1) == (2, True)


def test_evidence_is_recalled_if_histories_were_evicted_and_other_fingerprints_were_not() -> None:
    found = differing().look()
    window, shards = Numerics(), dict.fromkeys(("u0", "u1", "u2"), "")
    recall(window, found, shards)
    assert window.fingerprints.end == 0, "all histories are still in the window"
    recall(window, replace(found, oldest={**found.oldest, ("api", Tier.HISTORY): 1 << 63}), shards)
    assert window.fingerprints.end > 0


def test_many_rows_with_histories_evict_neither_whole_tensors_nor_other_rows() -> None:
    fleet = sharing(1)
    fleet.each(0, CheckedRecord(right(1), (Tensor(1),)))
    fleet.each(0, CheckedRecord(right(1), (Tensor(1),), position=1, flags=ROWS))
    fleet.workers[0].receive(b"".join(record(right(row), row).slots() for row in range(5_000)))
    extents = [fleet.numerics.extent("api", tier) for tier in Tier]
    assert [extent.end for extent in extents] == [1, 1, 5_000]
    assert [extent.first > 0 for extent in extents] == [False, False, True]
    assert fleet.look().oldest.keys() == {("api", tier) for tier in Tier}
    fleet.numerics.forget(["u0"])
    assert [fleet.numerics.extent("api", tier).end for tier in Tier] == [0, 0, 0]


def test_coverage_counts_rows_with_histories_apart_from_other_rows() -> None:
    found = differing().look()
    (seen,) = services(found, [worker()])
    assert (seen.histories.fingerprints, seen.histories.met, seen.histories_differ) == (12, 12, 1)
    assert (seen.rows.fingerprints, seen.rows_differ, seen.counts.fingerprints, seen.differ) == (0, 0, 0, 0)
    (site,) = sites(found, [worker()])
    assert (site.place, site.state) == (HERE, SiteState.DIFFERS)


def test_a_site_that_only_records_rows_with_histories_is_listed_once() -> None:
    known = worker()
    reading = replace(known.reading, sites=[SiteKey(1, 3, 0)])
    place = HERE._replace(kernel=reading.name(1))
    found = Compared(1, sites={place: SiteCounts("other", 5, met=5)})
    (site,) = sites(found, [known._replace(reading=reading)])
    assert (site.place, site.state) == (place, SiteState.COMPARED)


# ---- a worker that lies about its histories

ROW, OUTPUT, STEP, LINEAGE = st.integers(0, 5), st.integers(0, 2), st.integers(0, 3), st.sampled_from((9, 9, 1))
LIES = st.lists(st.tuples(ROW, OUTPUT, STEP, LINEAGE, st.sampled_from((0, 0, 2**32 - 1))), max_size=40)
SHARED = st.lists(st.tuples(ROW, STEP), max_size=20)
OUTPUTS = (right, wrong, lambda row: Tensor(4000 + row))


@settings(max_examples=100, deadline=None)
@given(SHARED, SHARED, LIES, st.integers(0, 2), st.integers(2, 3))
def test_a_worker_that_lies_about_its_histories_gets_no_healthy_worker_named(
    one: list[tuple[int, int]],
    other: list[tuple[int, int]],
    lies: list[tuple[int, int, int, int, int]],
    at: int,
    workers: int,
) -> None:
    """The worker that lies knows the histories of all others. With two workers, none is blamed alone."""
    fleet = Fleet(workers)
    liar = min(at, workers - 1)
    honest = [number for number in range(workers) if number != liar]
    for number, rows in zip(honest, (one, other), strict=False):
        for row, step in rows:
            fleet.each(number, record(right(row), row, step=10 * number + step))
    for row, output, step, lineage, token in lies:
        fleet.each(liar, record(OUTPUTS[output](row), row, lineage=lineage, step=step, token=token))
    found = fleet.look()
    blamed = {uuid for each in found.findings.values() for uuid in each.outliers}
    assert blamed <= ({f"u{liar}"} if workers > 2 else set())
    assert fleet.compare().outlier in ((None, liar) if workers > 2 else (None,))


def test_one_of_two_workers_is_never_blamed_alone_even_if_the_other_contradicts_itself() -> None:
    fleet = Fleet(2)
    fleet.healthy((0,), range(8))
    contradicting((1,), lambda number, output, row: fleet.each(number, record(output, row, step=row)), 8)
    found = fleet.look()
    assert all(not each.outliers for each in found.findings.values())
    assert fleet.compare().outlier is None


def test_a_worker_that_repeats_a_history_with_new_outputs_has_at_most_eight_of_them_compared() -> None:
    fleet = Fleet(2)
    fleet.each(0, *(record(Tensor(n), 1, step=n) for n in range(500)))
    fleet.healthy((1,), (1,))
    number = fleet.numerics.fingerprints.end - 1
    assert len(fleet.numerics.fingerprints.group(number)) == 8 + 1  # BRICK_ROW_OUTPUTS_MAX
    assert not fleet.look().findings, "these are the rows of one history only"


def test_random_histories_take_bounded_memory_and_each_is_counted() -> None:
    fleet = sharing(2)
    fleet.healthy((1,))
    made = [record(Tensor(n), (n * 0x9E3779B97F4A7C15) % 2**64, lineage=n, token=2**32 - 1) for n in range(2_000)]
    batch = b"".join(each.slots() for each in made)
    for _ in range(10):
        fleet.workers[0].receive(batch)
    _, first, end = fleet.numerics.extent("api", Tier.HISTORY)
    assert (end, end - first < 4_000) == (20_004, True)
    found = fleet.look()
    assert (found.sites[HERE].fingerprints, found.sites[HERE].met, found.findings) == (20_004, 0, {})


def test_a_record_of_a_history_with_every_flag_is_refused_or_compared_with_its_own_kind() -> None:
    fleet = Fleet(2)
    for flags in range(256):
        fleet.each(0, CheckedRecord(wrong(1), (Tensor(1),), position=1, valid=9, flags=flags | HISTORY))
    fleet.healthy((1,), (1,))
    found = fleet.look()
    assert not found.findings
    assert {place.tier for place in found.sites} == {Tier.HISTORY}
