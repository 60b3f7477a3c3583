"""`brickd tree` from the command line, and trees of made-up workers."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import MadeUp, named, programs
from verbs import brickd, document, started

from brickd.base import escape
from brickd.model.calltree.tree import Node, Tree, tree
from brickd.screens.screen import Screen
from brickd.screens.tree import render
from brickd.shm import _reader

DEPTH = st.none() | st.integers(1, 4)
SPANS = """
for _ in range(2):
    with brick.span("request"):
        for number in range(3):
            with brick.layer(number), brick.span("attention", category="attention"):
                with brick.span("softmax"): pass
        with brick.span("sample"): pass
pause()
"""


def shape(answer: dict[str, Any], *keys: str) -> list[tuple[Any, ...]]:
    return [tuple(node[key] for key in ("depth", "name", *keys)) for node in answer["nodes"]]


def test_the_tree_is_merged_over_workers_and_layers(worker: Start) -> None:
    for _ in range(2):
        started(worker, SPANS, BRICKD_SERVICE="api")
    answer = document("tree")
    nodes = answer["nodes"]
    assert sorted(shape(answer, "count", "layers", "category")) == [
        (0, "request", 4, 0, "other"),
        (1, "attention", 12, 3, "attention"),
        (1, "sample", 4, 0, "other"),
        (2, "softmax", 12, 3, "other"),
    ]
    (request,) = (node for node in nodes if node["parent"] is None)
    assert (request["share_percent"], request["total_ns"]) == (100, answer["recorded_ns"])
    assert sum(node["self_ns"] for node in nodes) == pytest.approx(answer["recorded_ns"], abs=len(nodes))
    assert document("tree", "api/0")["nodes"][0]["count"] == 2


def test_layers_can_be_shown_separately(worker: Start) -> None:
    started(worker, SPANS)
    answer = document("tree", "--layers")
    assert sorted(shape(answer, "layer", "count"), key=str) == [
        (0, "request", None, 2),
        *((1, f"Layer {number}", number, 0) for number in range(3)),
        (1, "sample", None, 2),
        *((2, "attention", number, 2) for number in range(3)),
        *((3, "softmax", number, 2) for number in range(3)),
    ]
    titles = brickd("tree", "--layers").stdout.splitlines()[0].split()
    assert titles == ["TOTAL", "SHARE", "SELF", "COUNT", "MEDIAN", "P99", "LAYER", "BRICK"]


def test_an_open_span_contains_the_spans_that_ended_below_it(worker: Start) -> None:
    program = """
    with brick.span("loop"):
        for _ in range(3):
            with brick.span("step"): pass
        with brick.span("never ended"):
            pause()
    """
    started(worker, program)
    answer = document("tree")
    assert shape(answer, "count", "share_percent", "p50_ns")[0] == (0, "loop", 0, 100, None)
    assert [node["name"] for node in answer["nodes"]] == ["loop", "step"]
    assert answer["nodes"][0]["total_ns"] == answer["nodes"][1]["total_ns"] == answer["recorded_ns"]


def test_recursion_that_resembles_a_cycle_is_a_tree(worker: Start) -> None:
    program = """
    a, b = brick.brick("a"), brick.brick("b")
    def call(depth):
        with (a, b)[depth % 2]:
            if depth < 50: call(depth + 1)
    call(0)
    pause()
    """
    started(worker, program)
    answer = document("tree")
    assert shape(answer, "count") == [(0, "a", 26), (1, "b", 25)]
    assert answer["nodes"][0]["total_ns"] == pytest.approx(answer["recorded_ns"], abs=2)


@pytest.mark.ci
def test_a_chain_of_thousands_fits_the_screen(worker: Start) -> None:
    program = """
    brick.init(paths=4096, names=4096)
    chain = [brick.brick(f"brick {number}") for number in range(3000)]
    for each in chain: each.start()
    for each in reversed(chain): each.stop()
    pause()
    """
    started(worker, program)
    assert [node["depth"] for node in document("tree")["nodes"]] == list(range(3000))
    lines = brickd("tree", COLUMNS="80").stdout.splitlines()
    assert len(lines) == 3001
    assert max(map(escape.width, lines)) <= 80
    assert lines[-1].endswith(" …2999 `-- brick 2999")


@pytest.mark.ci
def test_spans_without_a_path_are_other_at_the_root_and_count_once(worker: Start) -> None:
    program = """
    brick.init(paths=1024)
    with brick.span("request"):
        for number in range(1500):
            with brick.span(f"brick {number}"): pass
    pause()
    """
    started(worker, program)
    answer = document("tree")
    roots = [node for node in answer["nodes"] if node["parent"] is None]
    assert {node["name"]: node["count"] for node in roots} == {"request": 1, "other": 1500 - 1022}
    assert len(answer["nodes"]) == 1024
    assert roots[0]["total_ns"] == pytest.approx(answer["recorded_ns"], abs=2)
    assert len(brickd("tree").stdout.splitlines()) == 1025


def test_a_worker_without_spans_has_no_tree(worker: Start) -> None:
    started(worker, "brick.init()\npause()")
    assert brickd("tree").stdout == "no spans yet\n"


def test_an_invalid_depth_or_share_is_refused() -> None:
    for arguments, wanted in (
        (["--min", "nan"], "a number of 0 to 100"),
        (["--depth", "0"], "a whole number of 1 or more"),
    ):
        ended = brickd("tree", *arguments)
        assert (ended.returncode, ended.stdout) == (2, "")
        assert wanted in ended.stderr


# ---- made-up workers


def route(of: Tree, node: Node) -> tuple[tuple[str, int | None, bool], ...]:
    steps: list[tuple[str, int | None, bool]] = []
    at: int | None = node.number
    while at is not None:
        steps.append((of.nodes[at].place.name, of.nodes[at].layer, of.nodes[at].place.given))
        at = of.nodes[at].parent
    return tuple(reversed(steps))


def bricks(of: Tree) -> list[Node]:
    return [node for node in of.nodes if node.place.kind != "layer"]


def outside_layers(of: Tree, node: Node) -> tuple[tuple[str, int | None, bool], ...]:
    """Return the path to a node, without the nodes of layers."""
    return tuple(step for step in route(of, node) if not step[0].startswith("Layer "))


def drawn(made: MadeUp, width: int | None = None, depth: int | None = None) -> list[str]:
    merged = tree(named([made]), layers=False, depth=depth)
    return render({"over_ns": None, "layers": False, "workers": 1, **merged.document()}, Screen(width, False))


def test_a_tree_is_drawn_with_ascii_branches_and_its_figures() -> None:
    made = MadeUp()
    for _ in range(2):
        made.begin("request")
        for layer in range(3):
            made.begin("attention", layer)
            made.begin("softmax", layer)
            made.spend(1000)
            made.end()
            made.end()
        made.begin("sample")
        made.begin("top_k")
        made.spend(500)
        made.end()
        made.spend(1500)
        made.end()
        made.end()
    assert drawn(made) == [
        "  TOTAL  SHARE    SELF  COUNT  MEDIAN     P99  LAYERS  BRICK",
        "10.0 µs  100 %    0 ns      2  5.0 µs  5.0 µs       -  request",
        " 6.0 µs   60 %    0 ns      6  1.0 µs  1.0 µs       3  |-- attention",
        " 6.0 µs   60 %  6.0 µs      6  1.0 µs  1.0 µs       3  |   `-- softmax",
        " 4.0 µs   40 %  3.0 µs      2  2.0 µs  2.0 µs       -  `-- sample",
        " 1.0 µs   10 %  1.0 µs      2  500 ns  500 ns       -      `-- top_k",
    ]
    assert drawn(made, width=60, depth=2) == [
        "  TOTAL  SHARE    SELF  COUNT  LAYERS  BRICK",
        "10.0 µs  100 %    0 ns      2       -  request",
        " 6.0 µs   60 %    0 ns      6       3  |-- attention",
        "                6.0 µs                 |   `-- …1 more",
        " 4.0 µs   40 %  3.0 µs      2       -  `-- sample",
        "                1.0 µs                     `-- …1 more",
    ]


def test_a_node_below_the_deepest_branch_shows_its_depth() -> None:
    made = MadeUp()
    for depth in range(30):
        made.begin(f"brick {depth}")
    for _ in range(30):
        made.spend(1)
        made.end()
    levels = {80: 7, None: 24}
    for width, drawn_levels in levels.items():
        lines = drawn(made, width)
        begins = lines[0].index("BRICK")
        assert [line[begins:] for line in lines[drawn_levels:][1:4]] == [
            " " * 4 * (drawn_levels - 1) + f"`-- brick {drawn_levels}",
            f"…{drawn_levels + 1} ".rjust(4 * (drawn_levels - 1)) + f"`-- brick {drawn_levels + 1}",
            f"…{drawn_levels + 2} ".rjust(4 * (drawn_levels - 1)) + f"`-- brick {drawn_levels + 2}",
        ]


@pytest.mark.ci
@given(st.lists(programs(), max_size=4))
def test_a_node_has_the_records_of_its_paths(made: list[MadeUp]) -> None:
    counts, own = Counter[object](), Counter[object]()
    for each in made:
        given_inside = Counter[int]()
        for path, sums in zip(each.paths, each.sums, strict=True):
            if path.unit == _reader.UNIT_NS and path.parent >= 0:
                given_inside[path.parent] += sum(sums.durations)
        for number, sums in enumerate(each.sums):
            steps, at = [], number
            while at >= 0:
                path = each.paths[at]
                name = next(text for text, its in each.numbers.items() if its == path.name)
                steps.append((name, path.layer if path.layer >= 0 else None, path.unit == _reader.UNIT_NS))
                at = path.parent
            tick_ns = 1.0 if each.paths[number].unit == _reader.UNIT_NS else each.tick_ns
            place = tuple(reversed(steps))
            counts[place] += len(sums.durations)
            own[place] += max((sum(sums.durations) - sums.child) * tick_ns - given_inside[number], 0)  # type: ignore[assignment]
    merged = tree(named(made), layers=True)
    assert {outside_layers(merged, node): node.place.count for node in merged.nodes if node.place.count} == +counts
    assert Counter({outside_layers(merged, node): node.place.self_ns for node in bricks(merged)}) == own


@pytest.mark.ci
@given(st.lists(programs(given=False, room=False), max_size=4), st.booleans())
def test_self_times_add_up_to_the_totals_of_the_roots(made: list[MadeUp], layers: bool) -> None:
    merged = tree(named(made), layers=layers)
    own = sum(node.place.self_ns for node in merged.nodes)
    roots = [node for node in merged.nodes if node.parent is None]
    assert own == merged.recorded_ns == sum(node.place.total_ns for node in roots)
    highest = [node for node in bricks(merged) if len(outside_layers(merged, node)) == 1]
    assert own == sum(row["total_ns"] for node in highest if (row := node.place.row) is not None)


@pytest.mark.ci
@given(st.lists(programs(given=False, room=False, whole=False), max_size=4), st.booleans())
def test_self_times_add_up_while_spans_are_open(made: list[MadeUp], layers: bool) -> None:
    merged = tree(named(made), layers=layers)
    own = sum(node.place.self_ns for node in merged.nodes)
    assert own == merged.recorded_ns == sum(node.place.total_ns for node in merged.nodes if node.parent is None)


@pytest.mark.ci
@given(st.lists(programs(whole=False), max_size=4))
def test_merging_layers_changes_no_sum(made: list[MadeUp]) -> None:
    def sums(merged: Tree) -> dict[object, tuple[float, ...]]:
        result: dict[object, tuple[float, ...]] = {}
        for node in bricks(merged):
            place = tuple((name, given) for name, _, given in outside_layers(merged, node))
            row, before = node.place.row, result.get(place, (0, 0, 0))
            assert row is not None
            result[place] = (before[0] + row["count"], before[1] + row["self_ns"], before[2] + row["total_ns"])
        return result

    folded, apart = tree(named(made), layers=False), tree(named(made), layers=True)
    assert folded.recorded_ns == apart.recorded_ns
    assert sums(folded) == sums(apart)
    assert all(len(node.place.layers) <= 1 for node in apart.nodes)


@pytest.mark.ci
@given(st.lists(programs(), max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_workers_changes_nothing(made: list[MadeUp], chance: random.Random, layers: bool) -> None:
    def documents_of(made: list[MadeUp]) -> list[dict[str, Any]]:
        # Two things depend on the order of the workers. Percentiles use the bucket limits of the first worker's clock,
        # and the category is the one that was declared first.
        without = ("p50_ns", "p90_ns", "p95_ns", "p99_ns", "category")
        documents = [node.document() for node in tree(named(made), layers=layers).nodes]
        return [{key: value for key, value in node.items() if key not in without} for node in documents]

    assert documents_of(made) == documents_of(chance.sample(made, len(made)))


@pytest.mark.ci
@given(st.lists(programs(whole=False), max_size=3), st.booleans(), DEPTH, st.sampled_from([0, 0.1, 0.3, 1]))
def test_hidden_nodes_are_accounted_for(made: list[MadeUp], layers: bool, depth: int | None, least: float) -> None:
    whole = tree(named(made), layers=layers)
    cut = tree(named(made), layers=layers, depth=depth, least_percent=100 * least)
    routes = [route(whole, node) for node in whole.nodes]
    large = {
        place
        for place, node in zip(routes, whole.nodes, strict=True)
        if node.place.total_ns >= least * node.recorded_ns
    }
    wanted = [
        place
        for place in routes
        if (depth is None or len(place) <= depth) and all(place[: n + 1] in large for n in range(len(place)))
    ]
    assert [route(cut, node) for node in cut.nodes] == wanted
    hidden = [cut.left, *(node.left for node in cut.nodes)]
    assert len(cut.nodes) + sum(left.nodes for left in hidden) == len(whole.nodes)
    own = sum(node.place.self_ns for node in cut.nodes) + sum(left.self_ns for left in hidden)
    assert own == cut.recorded_ns == whole.recorded_ns


@pytest.mark.ci
@given(st.lists(programs(whole=False), max_size=3), st.booleans(), DEPTH, st.none() | st.integers(0, 120))
def test_a_drawing_has_a_line_per_node_and_fits_the_screen(
    made: list[MadeUp], layers: bool, depth: int | None, width: int | None
) -> None:
    merged = tree(named(made), layers=layers, depth=depth)
    document = {"over_ns": None, "layers": layers, "workers": 1, **merged.document()}
    nodes = document["nodes"]
    lines = render(document, Screen(width, False))
    assert len(lines) == 1 + len(nodes) + sum(node["hidden_nodes"] > 0 for node in nodes)
    assert all(line.isprintable() for line in lines)
    if width is not None and nodes:
        assert max(map(escape.width, lines)) <= width
    for node in nodes:
        children = [each["total_ns"] for each in nodes if each["parent"] == node["id"]]
        assert children == sorted(children, reverse=True)


def test_given_times_are_marked_and_not_part_of_their_parents() -> None:
    made = MadeUp(tick_ns=2.0)
    made.begin("forward")
    made.spend(100)
    made.give("on the GPU", 50)
    made.end()
    made.begin("loop")
    made.give("on the GPU", 7)
    nodes = {(node.place.name, node.parent): node for node in tree(named([made]), layers=False).nodes}
    assert [
        (node.place.name, node.place.given, node.place.total_ns, node.place.self_ns) for node in nodes.values()
    ] == [
        ("forward", False, 200, 150),
        ("on the GPU", True, 50, 50),
        ("loop", False, 0, 0),
        ("on the GPU", True, 7, 7),
    ]
    assert ["given" in line for line in drawn(made)[1:]] == [False, True, False, True]
