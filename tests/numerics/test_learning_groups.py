"""Groups of fingerprints with known numeric classes: which outputs are equal, undecided, or judged."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from checked_record import CheckedRecord, Tensor, add
from summation_orders import BIT, FAR, OTHER, THIRD, USUAL, records_of, tensor

from brickd.analysis.numerics.numeric_classes import GroupToJudge, JudgeTurns, Learning
from brickd.analysis.numerics.online_state import CLASSES_MAX, Apart, Case, KeptEvidence, ServiceSite
from brickd.shm import _reader

HERE = ServiceSite("api", "k1", 3)
APART: Apart = ((frozenset({"u0", "u1"}), frozenset({"u2", "u3", "u6"})),)
UUIDS = {worker: f"u{worker}" for worker in range(17)}


def far(number: int) -> Tensor:
    """Return an output that differs from all others by more than rounding."""
    return Tensor(1000 + number, 1.0, (0.5 * number,) * 16)


def learning(outputs: Sequence[Tensor], apart: Apart = APART, questions: int = 4) -> Learning:
    """Return workers that each have one output for the same input; each fingerprint has the number of its worker."""
    fingerprints = _reader.Fingerprints(1 << 20)
    for worker, output in enumerate(outputs):
        add(fingerprints, worker, [CheckedRecord(output, (Tensor(1000),))])
    turns = JudgeTurns(questions)
    turns.begin()
    return Learning(fingerprints, turns, UUIDS.values(), {HERE: apart} if apart else {})


def alone(*outputs: int) -> list[tuple[int, int, int, int]]:
    """Return a group in which each worker recorded its output once."""
    return [(worker, output, 1, worker) for worker, output in enumerate(outputs)]


# ---- equal outputs


def test_two_classes_count_as_one_against_a_worker_of_neither() -> None:
    """The outputs of the two classes count as one output, the more frequent of the two.

    Its newest fingerprint stands for both.
    """
    read = learning([tensor(0, USUAL), tensor(0, USUAL), tensor(0, OTHER), far(1)])
    for number in range(4):
        assert read.read(HERE, alone(1, 1, 2, 3), UUIDS, number) == GroupToJudge(
            [(0, 1, 1, 0), (1, 1, 1, 1), (2, 1, 1, 1), (3, 3, 1, 3)], whole=True
        )


def test_without_a_disagreement_all_classes_are_equal() -> None:
    found = learning([tensor(0, USUAL), tensor(0, THIRD), tensor(0, OTHER)], (*APART, *two("u0", "u1")))
    assert found.read(HERE, alone(1, 2, 3), UUIDS, 0).group == [(0, 1, 1, 0), (1, 1, 1, 0), (2, 1, 1, 0)]


def two(one: str, other: str) -> Apart:
    return ((frozenset({one}), frozenset({other})),)


def test_a_worker_that_contradicts_itself_counts_as_its_class() -> None:
    read = learning([tensor(0, USUAL), tensor(0, USUAL), tensor(0, OTHER), far(1), tensor(0, OTHER)])
    group = [*alone(1, 1, 2, 3), (4, 2, 7, 4), (4, 3, 1, 3)]
    assert read.read(HERE, group, UUIDS, 0).group == [
        *alone(1, 1),
        (2, 1, 1, 1),
        (3, 3, 1, 3),
        (4, 1, 7, 4),
        (4, 3, 1, 3),
    ]


@pytest.mark.parametrize(
    ("group", "uuids"),
    [
        (alone(1, 1), UUIDS),
        ([(0, 1, 1, 0), (1, 1, 1, 0), (1, 2, 1, 1)], UUIDS),  # worker 1 contradicts itself
        (alone(1, 2), {0: "u0"}),  # worker 1 has ended
    ],
)
def test_a_single_reliable_output_needs_no_judgement(
    group: list[tuple[int, int, int, int]], uuids: dict[int, str]
) -> None:
    found = learning([tensor(0, USUAL), tensor(0, OTHER)], apart=())
    assert found.read(HERE, group, uuids, 0) == GroupToJudge(group, whole=True)
    assert found.turns.take(HERE)


# ---- many outputs


def test_a_fifth_output_near_a_compared_one_waits_for_judgement() -> None:
    """Four outputs are compared with each other. A fifth output differs from one of them only by rounding."""
    for what, once in ((OTHER, False), (BIT, True)):
        found = learning([tensor(0, USUAL), far(1), far(2), far(3), tensor(0, what), far(4)])
        assert found.read(HERE, alone(1, 2, 3, 4, 5, 6), UUIDS, 0) == GroupToJudge(
            [*alone(1, 2, 3, 4), (5, 6, 1, 5)], whole=False, once=once
        )


def test_four_outputs_are_compared_and_sixteen_examined() -> None:
    def read(*outputs: Tensor) -> GroupToJudge:
        return learning(outputs).read(HERE, alone(*range(1, len(outputs) + 1)), UUIDS, 0)

    first, near, many = tensor(0, USUAL), tensor(0, OTHER), [far(number) for number in range(1, 16)]
    assert read(first, *many[:2], near).whole
    assert [read(first, *many[:n], near).whole for n in (3, 14, 15)] == [False, False, True]


def test_the_judged_output_is_compared_however_rare() -> None:
    """The judged output is the seventh, and is in the class of the first output."""
    outputs = [tensor(0, USUAL), far(1), far(2), far(3), far(4), far(5), tensor(0, OTHER)]
    found = learning(outputs)
    assert found.read(HERE, alone(1, 2, 3, 4, 5, 6, 7), UUIDS, 6) == GroupToJudge(
        [*alone(1, 2, 3, 4, 5, 6), (6, 1, 1, 0)], whole=True
    )
    assert found.read(HERE, alone(1, 2, 3, 4, 5, 6, 7), UUIDS, 0) == GroupToJudge(alone(1, 2, 3, 4, 5, 6), whole=False)


# ---- checks, and kept data


def test_nothing_is_judged_before_a_look_begins() -> None:
    turns = JudgeTurns()
    assert not turns.take(HERE)
    assert turns.denied


def test_a_site_may_judge_as_often_as_it_waited() -> None:
    turns = JudgeTurns(2)
    turns.wait(HERE, 0, once=False)
    turns.wait(HERE, 1, once=True)
    assert turns.begin() == [0, 1]
    assert [turns.take(HERE) for _ in range(3)] == [True, True, False]


def test_the_waiting_list_is_bounded() -> None:
    turns = JudgeTurns(2000)
    for number in range(1025):
        turns.wait(ServiceSite("api", f"k{number}", 0), number, once=False)
    assert len(turns.begin()) == 1024


@pytest.mark.parametrize(
    ("others", "known", "kept"),
    [(CLASSES_MAX - 1, (), True), (CLASSES_MAX, (), False), (CLASSES_MAX, two("a", "b"), True)],
)
def test_learned_classes_are_kept_for_a_bounded_number_of_sites(others: int, known: Apart, *, kept: bool) -> None:
    fingerprints = _reader.Fingerprints(1 << 20)
    for content in range(3):
        for worker, what in enumerate((USUAL, OTHER)):
            add(fingerprints, worker, records_of({content: what}))
    turns = JudgeTurns()
    turns.begin()
    apart: dict[ServiceSite, Apart] = {
        ServiceSite("api", f"other {number}", 0): () for number in range(others - bool(known))
    }
    if known:
        apart[HERE] = known
    found = Learning(fingerprints, turns, ["u0", "u1", "a", "b"], apart)
    assert found.read(HERE, [(0, 1, 1, 4), (1, 2, 1, 5)], UUIDS, 0).whole
    assert found.fresh == {HERE}
    assert found.apart.get(HERE, ()) == ((*known, *two("u0", "u1")) if kept else ())


@pytest.mark.parametrize(
    ("what", "apart", "explained"), [(OTHER, APART, True), (OTHER, (), False), (FAR, APART, False)]
)
def test_two_classes_explain_only_a_case_within_rounding(what: int, apart: Apart, *, explained: bool) -> None:
    against, other = (
        KeptEvidence(uuid, records_of({0: each})[0].slots(), "", "") for uuid, each in (("u0", USUAL), ("u2", what))
    )
    case = Case(1, against, other)
    assert learning((), apart).explains(HERE, case) is explained
    assert not learning((), apart).explains(HERE, case.bare())
