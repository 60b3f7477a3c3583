"""The window of fingerprints: it finds equal inputs with different outputs, and evicts old fingerprints."""

from __future__ import annotations

import struct
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

import dtypes
import numpy as np
import pytest
from checked_record import NUMBERS, CheckedRecord, Tensor, add
from hypothesis import given
from hypothesis import strategies as st

from brickd.shm import _reader

MiB = 1 << 20
IN, OTHER_IN = Tensor(7), Tensor(8)
INT64 = 5  # the dtype int64, which has no rounding
GOOD, BAD = Tensor(1), Tensor(2, sketch=(0.5, *(0.0,) * 15))


def record(output: Tensor, **values: int) -> CheckedRecord:
    return CheckedRecord(output, (IN,), **values)  # type: ignore[arg-type]


def test_equal_work_of_two_workers_matches_and_another_output_is_reported() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    assert add(fingerprints, 0, [record(GOOD)])[1] == []
    assert add(fingerprints, 1, [record(GOOD)])[1] == []
    assert add(fingerprints, 2, [record(BAD)])[1] == [2]
    assert sorted(fingerprints.group(2)) == [(0, 1, 1, 0), (1, 1, 1, 1), (2, 2, 1, 2)]
    assert fingerprints.counts() == [(0, NUMBERS[1], 3, 0, 3, 1, 0, 0)]


@pytest.mark.parametrize(
    "other",
    [
        CheckedRecord(BAD, (OTHER_IN,)),
        CheckedRecord(BAD, (IN, IN)),
        CheckedRecord(BAD, (IN,), site=2),
        CheckedRecord(BAD, (IN,), backend=3),
        CheckedRecord(BAD, (IN,), params=3),
        CheckedRecord(BAD, (IN,), valid=3),
        CheckedRecord(BAD, (IN,), relation=1, of=3),
        CheckedRecord(Tensor(2, shape=5), (IN,)),
        CheckedRecord(Tensor(2, dtype=13), (IN,)),
        CheckedRecord(BAD, (Tensor(7, dtype=13),)),
        CheckedRecord(BAD, (Tensor(7, shape=13),)),
        CheckedRecord(BAD),
        CheckedRecord(BAD, (Tensor(7, dtype=0),)),
    ],
)
def test_fingerprints_that_may_differ_are_never_compared(other: CheckedRecord) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [record(GOOD)])
    assert add(fingerprints, 1, [other])[1] == []
    assert {count[4:7] for count in fingerprints.counts()} == {(0, 0, 0)}


@pytest.mark.ci
def test_counts_are_differences_since_the_last_call_and_omit_unchanged_sites() -> None:
    fingerprints = _reader.Fingerprints(4 * MiB)
    add(fingerprints, 0, [record(GOOD), record(GOOD, site=2)])
    assert len(fingerprints.counts()) == 2
    assert fingerprints.counts() == []
    add(fingerprints, 1, [record(BAD)])
    assert fingerprints.counts() == [(0, NUMBERS[1], 1, 0, 2, 1, 0, 0)]
    for _ in range(2):
        add_unjudged(fingerprints, 2, [record(GOOD, site=n + 1) for n in range(900)])
    assert [counts[:3] for counts in fingerprints.counts()] == [(0, n + 1, 2) for n in range(900)]
    fingerprints.forget(1)
    assert fingerprints.counts() == []


@pytest.mark.ci
def test_every_differing_site_is_reported_within_a_few_looks() -> None:
    fingerprints, sites = _reader.Fingerprints(64 * MiB), 300
    add_unjudged(fingerprints, 0, [record(GOOD, site=n + 1) for n in range(sites)])
    reported = set[int]()
    for _ in range(3):
        add_unjudged(fingerprints, 1, [record(BAD, site=n + 1) for n in range(sites) for _ in range(4)])
        waiting = fingerprints.unlike()
        assert len(waiting) <= 128
        reported.update(found[1] for number in waiting if (found := fingerprints.read(number)) is not None)
    assert (len(reported), fingerprints.unlike_all) == (sites, 3 * 4 * sites)


@pytest.mark.ci
def test_a_site_whose_waiting_fingerprints_were_evicted_reports_newer_ones() -> None:
    fingerprints = _reader.Fingerprints(1)
    add_unjudged(fingerprints, 0, [record(GOOD)])
    add_unjudged(fingerprints, 1, [record(BAD)] * 4)
    add_unjudged(fingerprints, 0, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(100, 1100)])
    add_unjudged(fingerprints, 0, [record(GOOD)])
    add_unjudged(fingerprints, 1, [record(BAD)])
    assert fingerprints.unlike() == [fingerprints.end - 1]


def add_unjudged(fingerprints: _reader.Fingerprints, worker: int, records: Sequence[CheckedRecord]) -> None:
    """Add records that come from a thousand sites. They are not compared."""
    sites = array("Q", range(1_001))
    fingerprints.add(worker, 0, 0, sites, array("Q"), b"".join(each.slots() for each in records), True)


def test_a_forgotten_service_restarts_its_counts_and_keeps_its_fingerprints() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    for service in (1, 2):
        add(fingerprints, service, [record(GOOD)] * 3, service)
    fingerprints.forget(1)
    assert fingerprints.counts() == [(2, NUMBERS[1], 3, 0, 0, 0, 0, 0)]
    assert fingerprints.counts() == []
    assert fingerprints.end - fingerprints.first == 6
    add(fingerprints, 3, [record(GOOD)], 1)
    assert fingerprints.counts() == [(1, NUMBERS[1], 1, 0, 4, 0, 0, 0)]
    with pytest.raises(ValueError, match="the service's number must be below 2"):
        fingerprints.forget(1 << 32)


def test_muted_workers_have_no_vote_and_their_unmatched_fingerprints_count_as_evicted() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [record(BAD)] * 3)
    add(fingerprints, 1, [record(BAD)])
    add(fingerprints, 2, [record(GOOD, site=2)] * 2)
    fingerprints.mute([2, 9, 0, 1])
    assert fingerprints.group(0) == []
    assert add(fingerprints, 3, [record(GOOD)] * 2)[1] == []
    assert add(fingerprints, 4, [record(GOOD)])[1] == []
    assert sorted(fingerprints.group(0)) == [(3, 1, 2, 7), (4, 1, 1, 8)]
    assert sorted(fingerprints.counts()) == [(0, NUMBERS[1], 7, 0, 7, 0, 0, 0), (0, NUMBERS[2], 2, 0, 0, 0, 2, 0)]
    with pytest.raises(ValueError, match="item 1 is 16777216"):
        fingerprints.mute([0, 1 << 24])


def test_no_difference_is_reported_to_a_muted_or_evicted_output() -> None:
    fingerprints = _reader.Fingerprints(1)
    for outputs in ((BAD, GOOD, GOOD), (GOOD, BAD, GOOD), (GOOD, GOOD, BAD), (BAD, GOOD, BAD)):
        for worker, output in enumerate(outputs):
            add(fingerprints, worker, [record(output)])
        bad = [worker for worker, output in enumerate(outputs) if output is BAD]
        fingerprints.mute(bad)
        assert add(fingerprints, 3, [record(GOOD)])[1] == []
        assert add(fingerprints, 4, [record(BAD)])[1] == [fingerprints.end - 1]
        add(fingerprints, 5, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(100, 110)])
        add(fingerprints, 3, [record(GOOD)] * 2)
        add(
            fingerprints, 5, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(110, 270)]
        )  # so many that the bad fingerprint is evicted
        assert [row[:3] for row in fingerprints.group(fingerprints.end - 161)] == [(3, 1, 3)]
        assert add(fingerprints, 6, [record(GOOD)])[1] == []
        fingerprints.mute([3, 5, 6])


@pytest.mark.ci
def test_fingerprints_of_a_muted_worker_are_evicted_once() -> None:
    fingerprints = _reader.Fingerprints(1)
    add(fingerprints, 0, [CheckedRecord(GOOD, (IN,))] * 5)
    fingerprints.mute([0])
    add(fingerprints, 1, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(100, 1100)])
    counts = {site: counts for _, site, *counts in fingerprints.counts()}
    assert counts[NUMBERS[1]] == [5, 0, 0, 0, 5, 0]


@pytest.mark.ci
def test_a_matched_fingerprint_evicted_later_is_counted() -> None:
    fingerprints = _reader.Fingerprints(1)
    for worker in (0, 1):
        add(fingerprints, worker, [CheckedRecord(GOOD, (IN,))])
    add(
        fingerprints, 1, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(100, 1100)]
    )  # more fingerprints than the window holds
    add(fingerprints, 0, [CheckedRecord(GOOD, (IN,))] * 5)
    add(fingerprints, 1, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(1100, 2100)])
    counts = {site: counts for _, site, *counts in fingerprints.counts()}
    assert counts[NUMBERS[1]] == [7, 0, 2, 0, 5, 0]


def test_workers_of_two_services_are_never_compared() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [record(GOOD)])
    assert add(fingerprints, 1, [record(BAD)], service=1)[1] == []


def test_a_self_contradicting_worker_is_reported_with_its_last_output() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    waiting = add(fingerprints, 0, [record(Tensor(n, dtype=INT64)) for n in range(1, 9)])[1]
    assert (len(waiting), set(waiting) - set(range(1, 8))) == (4, set())
    outputs = [(output, newest) for _, output, _, newest in fingerprints.group(7)]
    assert len(outputs) == 2
    assert (8, 7) in outputs


@pytest.mark.ci
def test_the_oldest_fingerprints_are_evicted_first_and_never_compared_again() -> None:
    fingerprints = _reader.Fingerprints(1)  # the smallest window
    add(fingerprints, 0, [record(GOOD)])
    filling = [CheckedRecord(GOOD, (Tensor(n),)) for n in range(100, 1100)]
    add(fingerprints, 0, filling)
    assert fingerprints.end == 1001
    assert fingerprints.first == fingerprints.end - 1024 // 6
    assert fingerprints.read(fingerprints.first - 1) is None
    assert add(fingerprints, 1, [record(BAD)])[1] == []
    last_one = fingerprints.read(fingerprints.end - 1)
    assert last_one == (1, NUMBERS[1], record(BAD).slots())


@pytest.mark.ci
def test_a_fingerprint_evicted_before_a_match_is_counted() -> None:
    fingerprints = _reader.Fingerprints(1)
    add(fingerprints, 0, [CheckedRecord(GOOD, (Tensor(n),)) for n in (1, 1, 1, 2, 3)] + [CheckedRecord(GOOD)])
    add(fingerprints, 1, [CheckedRecord(GOOD, (Tensor(2),))])
    add(fingerprints, 1, [CheckedRecord(GOOD, (Tensor(n),), site=2) for n in range(100, 1100)])
    counts = {site: counts for _, site, *counts in fingerprints.counts()}
    assert counts[NUMBERS[1]] == [7, 1, 2, 0, 4, 0]
    assert counts[NUMBERS[2]] == [1000, 0, 0, 0, 1000 - (fingerprints.end - fingerprints.first), 0]


@pytest.mark.ci
def test_a_constantly_diverging_site_hides_no_other() -> None:
    fingerprints = _reader.Fingerprints(64 * MiB)
    crowd = [CheckedRecord(Tensor(n, dtype=INT64), (Tensor(1),), site=2) for n in range(2000)]
    others = [CheckedRecord(Tensor(n), (Tensor(1),), site=3) for n in range(2)]
    *of_the_crowd, of_another = add(fingerprints, 0, crowd + others)[1]
    assert (len(of_the_crowd), max(of_the_crowd) < 2000, of_another) == (4, True, 2001)
    assert fingerprints.unlike_all == 2000
    assert add(fingerprints, 1, [CheckedRecord(Tensor(1, dtype=INT64), (Tensor(1),), site=2)])[1] == [2002]


@pytest.mark.ci
def test_late_and_early_differences_of_a_site_are_reported_equally_often() -> None:
    fingerprints, reported = _reader.Fingerprints(64 * MiB), Counter[int]()
    add(fingerprints, 0, [record(GOOD)])
    records = record(BAD).slots() * 400
    for _ in range(200):
        fingerprints.add(1, 0, 0, NUMBERS, NUMBERS, records, True)
        reported.update((number - fingerprints.end + 400) // 100 for number in fingerprints.unlike())
    assert sum(reported.values()) == 4 * 200
    assert {150 < reported[quarter] < 250 for quarter in range(4)} == {True}, reported


@pytest.mark.ci
def test_the_number_of_waiting_differences_is_bounded() -> None:
    fingerprints = _reader.Fingerprints(64 * MiB)
    many = array("Q", range(1, 2001))
    for worker, output in enumerate((GOOD, BAD)):
        records = b"".join(record(output, site=site).slots() for site in range(2000))
        fingerprints.add(worker, 0, 0, many, many, records, True)
    assert [len(fingerprints.unlike()) for _ in range(17)] == [128] * 15 + [2000 - 15 * 128, 0]
    assert fingerprints.unlike_all == 2000


def test_without_memory_for_fingerprints_weights_are_passed_on() -> None:
    fingerprints = _reader.Fingerprints(0)
    weight = CheckedRecord(GOOD, flags=_reader.CHECKED_WEIGHT)
    assert add(fingerprints, 0, [record(GOOD), weight, record(BAD)]) == (
        len(record(GOOD).slots()) * 2 + 256,
        [],
        weight.slots(),
    )
    assert (fingerprints.end, fingerprints.counts()) == (0, [])


def test_weights_are_passed_on_and_invalid_records_refused_with_the_rest() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    weight = CheckedRecord(GOOD, flags=_reader.CHECKED_WEIGHT)
    _, unlike, weights = add(fingerprints, 0, [record(GOOD), weight, record(GOOD)])
    assert (unlike, weights, fingerprints.end) == ([], weight.slots(), 2)
    broken = record(GOOD).slots() + record(GOOD).slots()[:-64]
    assert fingerprints.add(0, 0, 0, NUMBERS, NUMBERS, broken, True)[0] == len(broken)
    assert (fingerprints.end, fingerprints.refused) == (3, 1)


def test_a_checksum_without_an_output_is_refused() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    for worker in (0, 1):
        add(fingerprints, worker, [record(Tensor(0, dtype=0))])
    assert (fingerprints.end, fingerprints.refused) == (0, 2)


def test_an_unknown_site_stops_the_call_and_can_be_added_unnamed() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    whole = record(GOOD).slots() + record(GOOD, site=60).slots()
    few = array("Q", [0, 5])
    taken, _ = fingerprints.add(0, 0, 0, few, few, whole, True)
    assert taken == len(record(GOOD).slots())
    assert fingerprints.add(0, 0, 0, few, few, whole[taken:], False)[0] == taken
    assert fingerprints.end == 2


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 4), st.integers(1, 2), st.integers(0, 1)),
        max_size=60,
    )
)
def test_groups_and_counts_match_a_dictionary(
    stream: list[tuple[int, int, int, int, int]],
) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    groups: dict[tuple[int, int, int], dict[tuple[int, int], list[int]]] = defaultdict(lambda: defaultdict(list))
    unlike: Counter[tuple[int, int]] = Counter()
    wanted = []
    for number, (worker, site, given_, output, service) in enumerate(stream):
        group = groups[service, site, given_]
        if any(other != output for _, other in group):
            wanted.append(number)
            unlike[service, site] += 1
        group[worker, output].append(number)
    reported = [
        number
        for worker, site, given_, output, service in stream
        for number in add(fingerprints, worker, [CheckedRecord(Tensor(output), (Tensor(given_),), site=site)], service)[
            1
        ]
    ]
    assert reported == wanted
    met: Counter[tuple[int, int]] = Counter()
    counted: Counter[tuple[int, int]] = Counter()
    for (service, site, _), group in groups.items():
        seen = sum(map(len, group.values()))
        counted[service, site] += seen
        met[service, site] += seen if len({worker for worker, _ in group}) > 1 else 0
        last = max(max(numbers) for numbers in group.values())
        assert sorted(fingerprints.group(last)) == sorted((*place, len(n), n[-1]) for place, n in group.items())
    assert sorted(fingerprints.counts()) == sorted(
        (service, NUMBERS[site], n, 0, met[service, site], unlike[service, site], 0, 0)
        for (service, site), n in counted.items()
    )


class Group:
    """The outputs of workers for one input, kept in plain dictionaries."""

    def __init__(self) -> None:
        # for each worker and output: how often the output came, and its newest fingerprint
        self.outputs = dict[int, dict[int, list[int]]]()

    def add(self, worker: int, output: int, number: int) -> bool:
        """Add an output; return whether it differs from another."""
        unlike = any(other != output for outputs in self.outputs.values() for other in outputs)
        outputs = self.outputs.setdefault(worker, {})
        if output not in outputs:
            times = outputs.popitem()[1][0] if len(outputs) == 2 else 0
            outputs[output] = [times, 0]
        outputs[output] = [outputs[output][0] + 1, number]
        return unlike

    def leave(self, first: int, mute: int = -1) -> None:
        left = {
            worker: {output: each for output, each in outputs.items() if each[1] >= first}
            for worker, outputs in self.outputs.items()
            if worker != mute
        }
        self.outputs = {worker: outputs for worker, outputs in left.items() if outputs}

    def rows(self) -> list[tuple[int, int, int, int]]:
        return sorted(
            (worker, output, *each)  # type: ignore[misc]
            for worker, outputs in self.outputs.items()
            for output, each in outputs.items()
        )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["say"] * 6 + ["fill", "mute"]), st.integers(0, 3), st.integers(0, 1), st.integers(1, 4)
        ),
        max_size=80,
    )
)
def test_votes_match_a_dictionary_after_evictions_and_muting(
    stream: list[tuple[str, int, int, int]],
) -> None:
    fingerprints, others = _reader.Fingerprints(1), iter(range(100, 1_000_000))
    groups, newest = (Group(), Group()), [-1, -1]
    for what, worker, which, output in stream:
        if what == "say":
            number, before = fingerprints.end, fingerprints.unlike_all
            # Old fingerprints are evicted first. Only then is this fingerprint compared with others.
            unlike = add(fingerprints, worker, [CheckedRecord(Tensor(output), (Tensor(which),))])[1]
            for group in groups:
                group.leave(fingerprints.first)
            assert unlike == [number] * groups[which].add(worker, output, number)
            assert fingerprints.unlike_all - before == len(unlike)
            newest[which] = number
        elif what == "fill":
            add(fingerprints, 9, [CheckedRecord(GOOD, (Tensor(next(others)),), site=2) for _ in range(30 * output)])
        else:
            fingerprints.mute([worker])
        for group, last in zip(groups, newest, strict=True):
            group.leave(fingerprints.first, worker if what == "mute" else -1)
            if last >= fingerprints.first:
                assert sorted(fingerprints.group(last)) == group.rows()


def test_selected_workers_are_renumbered_in_the_given_order() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    for worker in (0, 70_000, 2):
        add(fingerprints, worker, [record(GOOD), record(BAD)], worker)
    some, ends = fingerprints.select([2, 0, 9], [1, 2, 3], [5, 5, 5])
    was = [fingerprints.read(n) for n in (0, 1, 4, 5)]
    wanted = [(number, *print_[1:]) for number, print_ in zip((2, 2, 1, 1), was, strict=True) if print_ is not None]
    assert [some.read(n) for n in range(some.first, some.end)] == wanted
    assert ends == [4, 2, 0], "the window has, for each worker, the number after its last fingerprint"
    add(some, 4, [record(GOOD)], 5)
    assert fingerprints.select([], [], [])[0].end == 0
    with pytest.raises(ValueError, match="2 workers, but 1 numbers and 0 services"):
        fingerprints.select([0, 1], [1], [])


@given(st.lists(st.integers(0, 40), max_size=60), st.lists(st.integers(0, 40), unique=True))
def test_a_selection_has_all_fingerprints_of_its_workers_and_no_others(
    records_of: list[int], selected: list[int]
) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    for output, worker in enumerate(records_of):
        add(fingerprints, worker, [record(Tensor(output + 1))])
    numbers = [3 * place for place in range(len(selected))]
    some, ends = fingerprints.select(selected, numbers, [0] * len(selected))
    found = [some.read(n) for n in range(some.end)]
    wanted = [(numbers[selected.index(worker)], at) for at, worker in enumerate(records_of) if worker in selected]
    assert [each and (each[0], each[2]) for each in found] == [
        (number, record(Tensor(at + 1)).slots()) for number, at in wanted
    ]
    newest_output = {number: at + 1 for at, (number, _) in enumerate(wanted)}
    assert ends == [newest_output.get(number, 0) for number in numbers]


def test_impossible_numbers_and_lists_are_refused() -> None:
    with pytest.raises(ValueError, match="is -1, expected 0 or more"):
        _reader.Fingerprints(-1)
    fingerprints = _reader.Fingerprints(1)
    with pytest.raises(ValueError, match="below 16777216"):
        fingerprints.add(1 << 24, 0, 0, b"", b"", b"", True)
    with pytest.raises(ValueError, match="2 workers, but 'times' has 1 numbers"):
        fingerprints.match([0, 1], [0], False)


@pytest.mark.parametrize(
    ("number", "error"), [("1", TypeError), (-1, OverflowError), (2**32, ValueError), (2**64, OverflowError)]
)
def test_an_invalid_service_number_is_refused(number: object, error: type[Exception]) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [record(GOOD)])
    add(fingerprints, 0, [record(GOOD)], 2**32 - 1)
    for ask in (fingerprints.forget, lambda service: fingerprints.extent(service, 1), fingerprints.drop):
        with pytest.raises(error):
            ask(number)  # type: ignore[arg-type]
    assert len(fingerprints.counts()) == 2
    fingerprints.forget(2**32 - 1)


@pytest.mark.parametrize(
    ("since", "error", "text"),
    [
        ([0, 2**64 - 1], ValueError, "item 1 is 18446744073709551615, expected a number below 18446744073709551615"),
        ([0, -1], OverflowError, "negative"),
        ([0, 2**64], OverflowError, "too big"),
        ([0, "1"], TypeError, "integer"),
        (5, TypeError, "int"),
    ],
)
def test_an_invalid_list_of_numbers_is_refused_with_the_reason(
    since: list[int], error: type[Exception], text: str
) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    with pytest.raises(error, match=text):
        fingerprints.match([0, 1], since, False)
    assert fingerprints.match([0, 1], [0, 2**64 - 2], False)


def test_worker_numbers_have_24_bits() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 2**24 - 1, [record(GOOD)])
    with pytest.raises(ValueError, match="item 1 is 16777216, expected a number below 16777216"):
        fingerprints.mute([0, 2**24])
    assert fingerprints.group(0)
    fingerprints.mute([2**24 - 1])
    assert fingerprints.group(0) == []


def test_a_muted_worker_without_a_match_counts_as_evicted_once() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [record(GOOD)] * 3)
    assert fingerprints.counts() == [(0, NUMBERS[1], 3, 0, 0, 0, 0, 0)]
    fingerprints.mute([0])
    assert fingerprints.counts() == [(0, NUMBERS[1], 0, 0, 0, 0, 3, 0)]
    fingerprints.mute([0])
    assert fingerprints.counts() == []


@pytest.mark.parametrize(
    ("inputs", "flags", "stateful"),
    [
        ((IN,), 0, 0),
        ((IN,), _reader.CHECKED_STATELESS, 0),
        ((IN,), _reader.CHECKED_STATEFUL, 1),
        ((), _reader.CHECKED_STATEFUL, 0),
    ],
)
def test_stateful_fingerprints_are_counted_among_those_with_inputs(
    inputs: tuple[Tensor, ...], flags: int, stateful: int
) -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [CheckedRecord(GOOD, inputs, flags=flags)] * 3)
    ((*_, counted),) = fingerprints.counts()
    assert counted == 3 * stateful


@pytest.mark.ci
def test_by_default_at_most_4096_rows_are_returned() -> None:
    fingerprints = _reader.Fingerprints(64 * MiB)
    step = dtypes.dtype("checked").fields["step"][1]  # type: ignore[index]
    for worker, output in enumerate((GOOD, BAD)):
        one = CheckedRecord(output, (IN,)).slots()
        slots = bytearray(one * 4_097)
        for number in range(4_097):
            struct.pack_into("<Q", slots, number * len(one) + step, number)
        fingerprints.add(worker, 0, 0, NUMBERS, array("Q"), slots, True)
    some, all_ = (fingerprints.match([0, 1], [0, 0], False, rows_max=most) for most in (4_096, 4_097))
    assert fingerprints.match([0, 1], [0, 0], False) == some != all_


def add_sites(fingerprints: _reader.Fingerprints, service: int, first: int, count: int) -> None:
    """Add fingerprints at this number of sites."""
    whole = CheckedRecord(GOOD).slots()
    table = np.frombuffer(whole * count, dtypes.dtype("record")).copy()
    table["payload"][:: len(whole) // 64] = range(count)
    sites = array("Q", range(first, first + count))
    assert fingerprints.add(9, service, 0, sites, array("Q"), table.tobytes(), True)[0] == len(table) * 64


@pytest.mark.ci
def test_evictions_of_a_forgotten_service_count_for_no_other() -> None:
    fingerprints = _reader.Fingerprints(256 * MiB)
    add(fingerprints, 1, [record(GOOD)] * 3, 1)
    for first in range(1, 65_537, 16_384):  # so many sites that some must share a count
        add_sites(fingerprints, 2, first, 16_384)
    add(fingerprints, 3, [record(GOOD)], 3)
    fingerprints.forget(1)
    fingerprints.mute([1, 3])
    counts = {(service, site): counts for service, site, *counts in fingerprints.counts()}
    assert (1, NUMBERS[1]) not in counts
    assert counts[0, 0] == [2, 1, 0, 0, 1, 0], "the third service had no room, so nothing of it is kept"


@pytest.mark.nightly
def test_sites_beyond_the_limit_are_counted_together() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    for number in range(1_000_000 // 16_384):
        add_sites(fingerprints, 0, 1 + 16_384 * number, 16_384)
    counts = {site: prints_ for _, site, prints_, *_ in fingerprints.counts()}
    assert sum(counts.values()) == fingerprints.end == 61 * 16_384
    assert len(counts) == 65_536 + 1
    assert counts[0] == fingerprints.end - 65_536


def test_a_site_number_beyond_the_maximum_is_refused() -> None:
    fingerprints = _reader.Fingerprints(MiB)
    add(fingerprints, 0, [record(GOOD, site=2**32 - 16), record(GOOD)], named=False)
    assert (fingerprints.end, fingerprints.refused) == (0, 1)
