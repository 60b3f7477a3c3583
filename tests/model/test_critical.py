"""The critical path of nested, parallel and cyclic work, against an exhaustive search."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.model.calltree.critical_path import Critical, Piece, critical


def test_the_critical_path_of_no_work_is_empty() -> None:
    assert critical([]) == Critical()


def test_a_parent_and_its_children_count_once() -> None:
    found = critical([Piece(None, 10), Piece(0, 20), Piece(1, 30), Piece(0, 5)])
    assert (found.length_ns, found.path) == (65, [0, 1, 2, 3])
    assert found.slack_ns == [0, 0, 0, 0]


def test_the_work_of_one_thread_is_sequential() -> None:
    found = critical([Piece(None, 10), Piece(None, 20), Piece(None, 30)])
    assert (found.length_ns, found.path, found.slack_ns) == (60, [0, 1, 2], [0, 0, 0])


def test_parallel_work_takes_the_time_of_its_longest_branch() -> None:
    # the needs of the bricks: qkv -> (score, gate) -> down
    found = critical(
        [Piece(None, 10), Piece(None, 40, needs=(0,)), Piece(None, 25, needs=(0,)), Piece(None, 5, needs=(1, 2))]
    )
    assert (found.length_ns, found.path) == (55, [0, 1, 3])
    assert found.slack_ns == [0, 0, 15, 0]


def test_device_work_runs_parallel_to_the_host() -> None:
    found = critical([Piece(None, 10), Piece(0, 20), Piece(0, 12, aside=True), Piece(0, 13, aside=True)])
    assert (found.length_ns, found.path) == (30, [0, 1])
    assert found.slack_ns == [0, 0, 5, 5]
    longer = critical([Piece(None, 10), Piece(0, 20), Piece(0, 32, aside=True), Piece(0, 13, aside=True)])
    assert (longer.length_ns, longer.path) == (45, [2, 3])
    assert longer.slack_ns == [15, 15, 0, 0]


def test_a_dependency_between_children_orders_their_parents() -> None:
    # A piece inside the second block needs a piece inside the first, so the whole second block comes after the first.
    deep = [Piece(None, 1), Piece(0, 10), Piece(None, 2), Piece(2, 20, needs=(1,)), Piece(None, 50, needs=(0,))]
    found = critical(deep)
    assert (found.length_ns, found.path) == (61, [0, 1, 4])
    assert found.slack_ns == [0, 0, 28, 28, 0]


@pytest.mark.parametrize("needs", [((1,), (0,)), ((0,), ()), ((1,), (0, 1))])
def test_a_cycle_is_reported_and_terminates(needs: tuple[tuple[int, ...], tuple[int, ...]]) -> None:
    found = critical([Piece(None, 10, needs=needs[0]), Piece(None, 20, needs=needs[1])])
    assert found.length_ns == 30
    assert found.cycles == ([[0, 1]] if needs[0] == (1,) else [[0]])


def test_a_cycle_through_others_is_one_piece_with_their_total_time() -> None:
    found = critical(
        [
            Piece(None, 10),
            Piece(0, 1),
            Piece(None, 20, needs=(1, 3)),
            Piece(None, 30, needs=(2,)),
            Piece(None, 5, needs=(3,)),
        ]
    )
    assert found.cycles == [[2, 3]]
    assert (found.length_ns, found.path) == (66, [0, 1, 2, 3, 4])


def test_a_dependency_between_parent_and_child_is_ignored() -> None:
    found = critical([Piece(None, 10, needs=(1,)), Piece(0, 20, needs=(0,))])
    assert (found.length_ns, found.cycles) == (30, [])


@pytest.mark.ci
def test_thousands_of_nested_or_chained_pieces_are_supported() -> None:
    deep = [Piece(None, 1), *(Piece(n, 1) for n in range(10_000))]
    assert critical(deep).length_ns == 10_001
    long = [Piece(None, 1), *(Piece(None, 1, needs=(n,)) for n in range(10_000))]
    assert critical(long).length_ns == 10_001


@pytest.mark.ci
def test_dependencies_of_deeply_nested_pieces_are_found_in_few_steps() -> None:
    # Two parallel chains. An algorithm that visits each ancestor of each node would take 10^8 steps.
    one = [Piece(None, 1), *(Piece(n, 1) for n in range(10_000))]
    last = len(one) - 1
    other = [Piece(None, 1), *(Piece(len(one) + n, 1, needs=(last, n)) for n in range(10_000))]
    found = critical(one + other)
    assert (found.length_ns, found.cycles) == (20_002, [])
    circle = [Piece(None, 1, needs=(9_999,)), *(Piece(None, 1, needs=(n,)) for n in range(9_999))]
    assert len(critical(circle).cycles[0]) == 10_000


@st.composite
def works(draw: st.DrawFn, circles: bool = True) -> list[Piece]:
    pieces: list[Piece] = []
    for number in range(draw(st.integers(1, 9))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        needed = st.integers(0, 8 if circles else max(0, number - 1))
        pieces.append(
            Piece(parent, draw(st.integers(0, 20)), draw(st.booleans()), tuple(draw(st.lists(needed, max_size=2))))
        )
    return [
        piece._replace(needs=tuple(n for n in piece.needs if n < len(pieces) and (circles or n < number)))
        for number, piece in enumerate(pieces)
    ]


def plainly(pieces: list[Piece]) -> float:
    """Return the length of the critical path, found by trying every chain of pieces."""

    def ancestors(number: int) -> list[int]:
        parent = pieces[number].parent
        return [number, *([] if parent is None else ancestors(parent))]

    def siblings(number: int, needed: int) -> tuple[int, int] | None:
        for one, other in itertools.product(ancestors(number), ancestors(needed)):
            if pieces[one].parent == pieces[other].parent and (one != other or number == needed):
                if one == other and number != needed:
                    return None
                return one, other
        return None

    edges = {
        pair
        for number, piece in enumerate(pieces)
        for needed in piece.needs
        if needed not in ancestors(number)[1:] and number not in ancestors(needed)[1:]
        and (pair := siblings(number, needed)) is not None
    }  # fmt: skip

    def length(number: int | None) -> float:
        here = [n for n, piece in enumerate(pieces) if piece.parent == number]
        edge = {(a, b) for a, b in edges if a in here}
        bound = {n for pair in edge for n in pair}
        reach = {n: {n} for n in bound}
        for _ in bound:
            for a, b in edge:
                reach[a] = reach[a] | reach[b]
        alike = {n: frozenset(m for m in reach[n] if n in reach[m]) for n in bound}
        took = {group: sum(length(n) for n in group) for group in alike.values()}

        def chain(group: frozenset[int]) -> float:
            before = {alike[b] for a, b in edge if a in group} - {group}
            return took[group] + max((chain(each) for each in before), default=0)

        host = sum(length(n) for n in here if n not in bound and not pieces[n].aside)
        host += max((chain(group) for group in alike.values()), default=0)
        device = sum(length(n) for n in here if n not in bound and pieces[n].aside)
        return max(host + (0 if number is None else pieces[number].own_ns), device)

    return length(None)


@pytest.mark.ci
@given(works())
def test_the_critical_path_is_the_longest_of_all_chains(pieces: list[Piece]) -> None:
    found = critical(pieces)
    assert found.length_ns == plainly(pieces)
    assert sum(pieces[number].own_ns for number in found.path) == found.length_ns
    assert len(set(found.path)) == len(found.path)


@pytest.mark.ci
@given(works())
def test_a_piece_can_grow_by_exactly_its_slack(pieces: list[Piece]) -> None:
    found = critical(pieces)
    for number, slack in enumerate(found.slack_ns):
        assert slack >= 0
        grown = [*pieces]
        grown[number] = pieces[number]._replace(own_ns=pieces[number].own_ns + slack)
        assert critical(grown).length_ns == found.length_ns
        grown[number] = pieces[number]._replace(own_ns=pieces[number].own_ns + slack + 1)
        assert critical(grown).length_ns == found.length_ns + 1


@given(works())
def test_pieces_on_the_critical_path_have_no_slack(pieces: list[Piece]) -> None:
    found = critical(pieces)
    assert all(found.slack_ns[number] == 0 for number in found.path)


@pytest.mark.ci
@given(works(circles=False))
def test_acyclic_work_reports_no_cycle(pieces: list[Piece]) -> None:
    forward = [piece._replace(parent=None) for piece in pieces]
    assert critical(forward).cycles == []
