"""The execution graph of made-up workers: the meaning of marks at any node."""

from __future__ import annotations

import contextlib
import json
import random
from collections import Counter
from typing import Any

import pytest
from forge import golden, place, segment_of
from hypothesis import given
from hypothesis import strategies as st
from made_up_workers import HOSTILE, MadeUp, named, programs

from brickd.cli.dot import dot
from brickd.errors import SegmentRefused
from brickd.model.calltree import tree_node
from brickd.model.calltree.graph_marks import SHOWN_MAX, Shape, ends, shape
from brickd.model.calltree.tree import Node, Tree, tree
from brickd.model.workers import Worker
from brickd.screens import tree_notes as screens
from brickd.screens.screen import Screen
from brickd.screens.tree import render
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import CallPath

LAUNCHED, SHAPED, NEEDS = _reader.UNIT_LAUNCHED, _reader.UNIT_SHAPED, _reader.UNIT_NEEDS
EXTENT = st.tuples(*[st.integers(1, 2**32 - 1) | st.just(1)] * 3)
SHAPES = st.builds(
    lambda known, grid, block, shared, source: Shape(grid if known else None, block if known else None, shared, source),
    st.booleans(),
    EXTENT,
    EXTENT,
    st.integers(0, 2**32 - 1),
    st.none() | st.integers(0, 2**64 - 1).map("{:016x}".format),
)


def whole(merged: Tree, *, layers: bool = False) -> dict[str, Any]:
    """Return the document of the view `tree`."""
    return {"over_ns": None, "layers": layers, "workers": 1, **merged.document()}


def nodes(made: MadeUp, *more: MadeUp, layers: bool = False) -> dict[str, Node]:
    """Return the nodes, keyed by name; names must be unique."""
    return {node.place.name: node for node in tree(named([made, *more]), layers=layers).nodes}


def launches(merged: Tree) -> int:
    return sum(node.place.kernel.launches for node in merged.nodes if node.place.kernel is not None)


# ---- texts


@given(SHAPES)
def test_a_shape_survives_formatting_and_parsing(known: Shape) -> None:
    assert shape(str(known)) == known


@pytest.mark.ci
@given(st.text() | st.from_regex(r"<<<[0-9x,]{1,30}>>> smem=[0-9]{1,12}B( @[0-9a-f]{16})?", fullmatch=True))
def test_only_text_in_the_exact_form_of_a_shape_is_a_shape(text: str) -> None:
    known = shape(text)
    assert known is None or str(known) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<<<16,256,1>>>",
        "<<<16,256>>> smem=0B",
        "<<<0,1,1>>> smem=0B",
        "<<<-1,1,1>>> smem=0B",
        "<<<016,1,1>>> smem=0B",
        "<<<4294967296,1,1>>> smem=0B",
        "<<<16x1,1,1>>> smem=0B",
        "<<<16,1,1,1>>> smem=0B",
        "<<<1,1,1>>> smem=4294967296B",
        "<<<1,1,1>>> smem=0B @CBF29CE484222325",
        "<<<1,1,1>>> smem=0B @cbf2",
        "<<<١,1,1>>> smem=0B",
        "<<<1,1,1>>> smem=0B\n",
        HOSTILE,
    ],
)
def test_an_impossible_shape_is_shown_as_its_text(text: str) -> None:
    assert shape(text) is None
    made = MadeUp()
    made.begin("norm")
    made.launch("k", text)
    made.end()
    document = whole(tree(named([made]), layers=False))
    (answer,) = document["nodes"][1]["kernel"]["shapes"]
    assert answer == dict.fromkeys(answer) | {"text": text, "launches": 1}
    assert all(line.isprintable() for line in render(document, Screen(None, False)))


@given(st.text(), st.text())
def test_transfer_ends_are_parsed_only_with_exactly_one_arrow(one: str, other: str) -> None:
    known = ends(f"{one}→{other}")
    assert known == ((one, other) if one and other and "→" not in one + other else None)


# ---- merging


@pytest.mark.ci
@given(st.lists(programs(marks=True, whole=False), max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_the_order_of_workers_changes_nothing(made: list[MadeUp], chance: random.Random, layers: bool) -> None:
    def document_of(made: list[MadeUp]) -> dict[str, Any]:
        # Two things depend on the order of the workers. Percentiles use the bucket limits of the first worker's clock,
        # and the category is the one that was declared first.
        document = whole(tree(named(made), layers=layers))
        for node in document["nodes"]:
            for key in ("p50_ns", "p90_ns", "p95_ns", "p99_ns", "category"):
                del node[key]
        return document

    one, other = document_of(made), document_of(chance.sample(made, len(made)))
    assert json.dumps(one) == json.dumps(other)
    assert dot(one) == dot(other)


@pytest.mark.ci
@given(st.lists(programs(marks=True, whole=False), max_size=4), st.booleans())
def test_launches_add_up_to_the_marks(made: list[MadeUp], layers: bool) -> None:
    def counted(unit: int) -> int:
        return sum(
            len(sums.durations)
            for each in made
            for path, sums in zip(each.paths, each.sums, strict=True)
            if path.unit == unit
        )

    merged = tree(named(made), layers=layers)
    assert launches(merged) == counted(LAUNCHED)
    assert sum(node.place.kernel.shapes.total() for node in merged.nodes if node.place.kernel) == counted(SHAPED)
    moved = [node.place.transfer for node in merged.nodes if node.place.transfer is not None]
    for unit, direction in ((6, "H2D"), (7, "D2H"), (8, "D2D")):
        assert sum(each.transfers for each in moved if each.direction == direction) == counted(unit)
    assert merged.stray == 0


@given(st.lists(programs(marks=True, whole=False), max_size=3), st.booleans())
def test_marks_change_no_time(made: list[MadeUp], layers: bool) -> None:
    merged = tree(named(made), layers=layers)
    assert merged.recorded_ns == sum(node.place.self_ns for node in merged.nodes)
    assert all((node.document()["total_ns"] is None) == node.place.timeless for node in merged.nodes)


@pytest.mark.ci
@given(st.lists(programs(marks=True, given=False, whole=False), max_size=3), st.booleans())
def test_no_time_counts_twice_on_the_critical_path(made: list[MadeUp], layers: bool) -> None:
    merged = tree(named(made), layers=layers)
    steps = merged.graph.critical.path
    assert len(set(steps)) == len(steps)
    assert merged.graph.critical.length_ns <= merged.recorded_ns
    if not any(merged.graph.needs):
        assert merged.graph.critical.length_ns == merged.recorded_ns


@st.composite
def impossible(draw: st.DrawFn) -> MadeUp:
    """Return paths that no writer makes: every unit below every other unit."""
    made = MadeUp()
    texts = st.sampled_from(["a", "b", HOSTILE, "smem=0B", "a→b", "→", "\\N", 'x" ]; evil ['])
    for _ in range(draw(st.integers(0, 25))):
        path = CallPath(
            draw(st.integers(-1, len(made.paths) - 1)),
            made._name(draw(texts)),
            draw(st.sampled_from([-1, 0, 1, 2**31 - 1])),
            draw(st.integers(0, _reader.UNITS - 1)),
        )
        made.paths.append(path)
        made.sums.append(type(made.sums[0])(durations=[draw(st.integers(0, 99))] * draw(st.integers(0, 3))))
    return made


@pytest.mark.ci
@given(st.lists(impossible(), max_size=3), st.booleans(), st.none() | st.integers(1, 3))
def test_impossible_paths_are_shown_and_counted(made: list[MadeUp], layers: bool, depth: int | None) -> None:
    merged = tree(named(made), layers=layers)
    marked: Counter[int] = Counter()
    for each in made:
        for path, sums in zip(each.paths, each.sums, strict=True):
            marked[path.unit] += len(sums.durations)
    assert launches(merged) == marked[LAUNCHED]
    assert merged.recorded_ns == sum(node.place.self_ns for node in merged.nodes)
    document = whole(tree(named(made), layers=layers, depth=depth), layers=layers)
    json.dumps(document, allow_nan=False)
    lines = [*render(document, Screen(80, False)), *screens.critical(document, Screen(80, False))]
    assert all(line.isprintable() for line in lines)
    assert dot(document).count("\n") == len(dot(document).splitlines())


def forged(image: bytes) -> dict[str, Any]:
    """Return the tree of a segment with these bytes, after rendering it in all forms."""
    with segment_of(image) as segment:
        reading = segment.read()
    document = whole(tree([Worker("api/0", reading, ledger_of(reading))], layers=True), layers=True)
    json.dumps(document, allow_nan=False)
    lines = [*render(document, Screen(80, False)), *screens.critical(document, Screen(80, False))]
    assert all(line.isprintable() for line in [*lines, *dot(document).splitlines()])
    return document


@pytest.mark.ci
@given(st.lists(st.tuples(st.sampled_from(["path", "name", "summary"]), st.integers(0, 4000), st.integers(0, 255))))
def test_a_corrupt_segment_has_a_tree_or_is_refused(changes: list[tuple[str, int, int]]) -> None:
    image = bytearray(golden("1.6"))
    for table, at, value in changes:
        image[place(image, table) + at] = value
    with contextlib.suppress(SegmentRefused):
        forged(bytes(image))


def test_a_corrupt_shape_is_shown_as_its_text() -> None:
    image = bytearray(golden("1.6"))
    at = image.index(b"<<<16,256,1>>> smem=1024B")
    lie = b'<<<-1,0,1>>>\x1b[2J"\\N]; evil'[:25]
    image[at : at + 25] = lie
    (kernel,) = [node["kernel"] for node in forged(bytes(image))["nodes"] if node["kernel"]]
    shapes = {shape["text"]: shape["grid"] for shape in kernel["shapes"]}
    assert shapes == {lie.decode(): None, "<<<16x4,32,8,2>>> smem=0B @fd931f27c2d26fa5": [16, 4, 1]}


def test_a_mark_without_an_owner_is_counted() -> None:
    made = MadeUp()
    made.mark("smem=0B", SHAPED)
    made.mark("x", NEEDS, count=2)
    launched = made.mark("k", LAUNCHED)
    made.mark("x", NEEDS, below=launched)
    document = whole(tree(named([made]), layers=False))
    assert document["stray_marks"] == 4
    assert "not shown, because their place in the tree is unknown: 4 launches, transfers and needs" in render(
        document, Screen(None, False)
    )


def test_below_a_mark_no_time_counts_but_launches_do() -> None:
    made = MadeUp()
    for path in (
        CallPath(-1, made._name("k"), -1, LAUNCHED),
        CallPath(1, made._name("time"), -1, 0),
        CallPath(2, 1, -1, LAUNCHED),
    ):
        made.paths.append(path)
        made.sums.append(type(made.sums[0])(durations=[5]))
    merged = tree(named([made]), layers=False)
    assert (launches(merged), merged.recorded_ns, [node.place.name for node in merged.nodes]) == (2, 0, ["k"])


def test_only_the_most_frequent_shapes_are_listed_and_the_rest_counted() -> None:
    made = MadeUp()
    made.begin("norm")
    for number in range(1, 101):
        for _ in range(3 if number == 50 else 1):
            made.launch("k", f"<<<{number},32,1>>> smem=0B")
    made.launch("k")
    made.end()
    document = whole(tree(named([made]), layers=False))
    kernel = document["nodes"][1]["kernel"]
    assert (kernel["launches"], len(kernel["shapes"]), kernel["hidden_shapes"]) == (103, SHOWN_MAX, 100 - SHOWN_MAX)
    assert kernel["shapes"][0]["text"] == "<<<50,32,1>>> smem=0B"
    reported = sum(each["launches"] for each in kernel["shapes"])
    assert reported + kernel["hidden_launches"] + kernel["launches_without_shape"] == 103
    (line,) = [line for line in render(document, Screen(None, False)) if "`-- k " in line]
    assert line.endswith(
        "k  <<<50,32,1>>> smem=0B 3×, <<<1,32,1>>> smem=0B 1×, <<<10,32,1>>> smem=0B 1×, "
        "…97 more shapes, 1 without shape"
    )


# ---- times


def test_a_kernel_without_a_known_time_has_none() -> None:
    made = MadeUp()
    made.begin("norm")
    made.spend(100)
    made.launch("k")
    made.end()
    node = nodes(made)["k"].document()
    assert (node["kind"], node["kernel"]["launches"], node["count"]) == ("kernel", 1, 0)
    assert {
        node[key] for key in ("total_ns", "self_ns", "share_percent", "p50_ns", "slack_ns", "flops_per_second")
    } == {None}
    (line,) = [
        each for each in render(whole(tree(named([made]), layers=False)), Screen(None, False)) if "`-- k" in each
    ]
    assert line.split() == ["-", "-", "-", "1", "-", "-", "`--", "k"]


def test_a_picture_shows_the_most_frequent_shape_and_counts_the_others() -> None:
    made = MadeUp()
    for number in (1, 2, 2, *range(3, SHOWN_MAX + 10)):
        made.launch("k", f"<<<{number},32,1>>> smem=0B")
    reported = dot(whole(tree(named([made]), layers=False)))
    assert rf'label="k\n{SHOWN_MAX + 10} launches\n<<<2,32,1>>> smem=0B\n…{SHOWN_MAX + 8} more shapes"' in reported


def test_the_slowest_kernel_is_shown_with_its_source() -> None:
    made = MadeUp()
    made.begin("norm")
    made.spend(100)
    for source in (" @000000000000000a", " @000000000000000b", " @000000000000000b", ""):
        made.launch("k", f"<<<16,256,1>>> smem=0B{source}")
    made.end()
    document = whole(tree(named([made]), layers=False))
    assert document["slowest_kernel"]["source_hash"] == "000000000000000b"
    assert (
        render(document, Screen(80, False))[-1] == "to print the source of this kernel: brickd source 000000000000000b"
    )


def test_a_shape_is_shown_completely_before_optional_figures() -> None:
    made = MadeUp()
    made.begin("decode")
    for layer in range(4):
        made.begin("RmsNorm", layer)
        made.spend(100)
        made.launch("rmsnorm_kernel", "<<<16,256,1>>> smem=1024B @42fa9355ce1d5d98", layer)
        made.end()
    made.end()
    document = whole(tree(named([made]), layers=False))
    lines = render(document, Screen(80, False))
    assert lines[0].split() == ["TOTAL", "SHARE", "SELF", "COUNT", "BRICK"]
    assert "    `-- rmsnorm_kernel  <<<16,256,1>>> smem=1024B" in lines[3]
    assert "COUNT" in render(document, Screen(60, False))[0], "the count of a launch is the last column to be omitted"
    assert render(document, Screen(90, False))[0].split() == ["TOTAL", "SHARE", "SELF", "COUNT", "LAYERS", "BRICK"]


def test_names_of_bricks_that_do_not_fit_keep_both_ends() -> None:
    made = MadeUp()
    for end in ("q_proj", "k_proj"):
        made.begin(f"model.{'decoder.' * 9}self_attention.{end}")
        made.spend(100)
        made.end()
    document = whole(tree(named([made]), layers=False))
    bricks = [line.split()[-1] for line in render(document, Screen(80, False))[1:]]
    assert {(each[:6], each[-6:]) for each in bricks} == {("model.", "q_proj"), ("model.", "k_proj")}


def test_a_shape_that_does_not_fit_removes_no_figure() -> None:
    made = MadeUp()
    made.begin("decode")
    made.spend(100)
    made.launch("vectorized_elementwise_kernel_of_a_long_name", "<<<16,256,1>>> smem=1024B")
    made.end()
    titles = render(whole(tree(named([made]), layers=False)), Screen(80, False))[0].split()
    assert titles == ["TOTAL", "SHARE", "SELF", "COUNT", "MEDIAN", "P99", "BRICK"]


def test_a_given_time_is_shown_with_its_launch() -> None:
    made = MadeUp()
    made.begin("norm")
    made.spend(100)
    made.launch("k")
    made.launch("k")
    made.give("k", 30)
    made.end()
    node = nodes(made)["k"]
    assert (node.place.kind, node.place.given, node.place.total_ns, node.place.count) == ("kernel", True, 30, 1)
    document = whole(tree(named([made]), layers=False))
    assert any(line.endswith("k  (1 of 2 timed)") for line in render(document, Screen(None, False)))
    assert "slowest kernel: k in norm, 30 ns in 1 of 2 launches" in render(document, Screen(None, False))


def test_a_bound_is_marked_and_gives_no_rate() -> None:
    made = MadeUp()
    made.begin("norm")
    made.spend(100)
    made.launch("k", "<<<1,32,1>>> smem=0B")
    made.sums[made._path("k", -1, _reader.UNIT_BOUND, None)].durations.append(30)
    made.end()
    document = whole(tree(named([made]), layers=False))
    node = document["nodes"][1]
    assert (node["kind"], node["bounded"], node["total_ns"], node["flops_per_second"]) == ("kernel", True, 30, None)
    lines = render(document, Screen(None, False))
    assert lines[2].endswith("`-- k ≤  <<<1,32,1>>> smem=0B")
    assert "slowest kernel: k in norm, ≤ 30 ns in 1 launch" in lines


def test_an_ambiguous_given_time_has_a_separate_row() -> None:
    made = MadeUp()
    made.begin("norm")
    for unit in (_reader.UNIT_H2D, _reader.UNIT_D2D):
        made.mark("a→b", unit, size_bytes=8)
    made.give("a→b", 30)
    made.end()
    merged = tree(named([made]), layers=False)
    assert [(node.place.kind, node.place.timeless, node.place.total_ns) for node in merged.nodes[1:]] == [
        ("brick", False, 30),
        ("transfer", True, 0),
        ("transfer", True, 0),
    ]


def test_a_dependency_applies_to_all_paths_of_the_same_name() -> None:
    made = MadeUp()
    made.begin("block")
    made.spend(10)
    made.launch("down")
    made.give("down", 4)
    ticks_path = made._path("down", -1, _reader.UNIT_TICKS, None)
    made.mark("block", NEEDS, below=ticks_path)
    made.end()
    merged = tree(named([made]), layers=False)
    assert [(node.place.name, [each["name"] for each in node.needs]) for node in merged.nodes] == [
        ("block", []),
        ("down", ["block"]),
    ]


def test_a_minimum_share_hides_no_node_without_a_known_time() -> None:
    made = MadeUp()
    made.begin("norm")
    made.spend(100)
    made.launch("k")
    made.begin("little")
    made.spend(1)
    made.end()
    made.end()
    merged = tree(named([made]), layers=False, least_percent=10)
    assert [node.place.name for node in merged.nodes] == ["norm", "k"]
    assert merged.nodes[0].left.nodes == 1


# ---- functions, tasks, transfers


def test_functions_show_their_definition_and_tasks_their_polls() -> None:
    made = MadeUp()
    for _ in range(5):
        made.begin("serve")
        made.spend(7)
        made.end()
    path = made._path("serve", -1, 0, None)
    made.mark("app.py", _reader.UNIT_DEFINED, layer=42, below=path)
    function = nodes(made)["serve"]
    assert (function.place.kind, function.document()["definitions"]) == ("function", [{"file": "app.py", "line": 42}])
    made.mark("serve", _reader.UNIT_ENDED, count=2, below=path)
    document = whole(tree(named([made]), layers=False))
    (node,) = document["nodes"]
    assert (node["kind"], node["task"]) == ("task", {"polls": 5, "ended": 2, "yields": 3})
    assert render(document, Screen(None, False))[1].endswith("serve (app.py:42)  5 polls, 3 yields")


def test_returned_transfers_are_reported_below_the_tree() -> None:
    made = MadeUp()
    made.begin("decode")
    made.mark("tokens→gpu0", _reader.UNIT_H2D, count=400, size_bytes=4096 * 400)
    back = made.mark("gpu0→tokens", _reader.UNIT_D2H, count=400, size_bytes=4096 * 400)
    made.mark("gpu0→tokens", _reader.UNIT_RETURNED, count=312, size_bytes=4096 * 312, below=back)
    made.end()
    document = whole(tree(named([made]), layers=False))
    (returned,) = document["returned"]
    assert (returned["returned"], returned["transfers"], returned["returned_bytes"]) == (312, 400, 4096 * 312)
    lines = render(document, Screen(None, False))
    assert lines[-1] == "tokens→gpu0→tokens in decode: 1.2M, 312 of 400 returned"
    assert any(line.endswith("D2H gpu0→tokens  1.6M, 312 of 400 returned") for line in lines)


# ---- needs


def needed(of: Tree, name: str) -> list[tuple[str | None, str]]:
    """Return the parent and the name of each node that the node with this name needs."""
    found = []
    for need in next(node for node in of.nodes if node.place.name == name).needs:
        other = None if need["id"] is None else of.nodes[need["id"]]
        above = None if other is None or other.parent is None else of.nodes[other.parent].place.name
        found.append((above, need["name"]))
    return found


def test_a_needed_name_means_the_nearest_node() -> None:
    made = MadeUp()
    for block in ("first", "second"):
        made.begin(block)
        made.begin("norm")
        made.spend(5)
        made.end()
        made.begin("mlp")
        made.begin("gemm")
        made.needs("norm")
        made.needs("sample")
        made.needs("nobody")
        made.spend(9 if block == "first" else 11)
        made.end()
        made.end()
        made.end()
    made.begin("other block")
    made.begin("sample")
    made.spend(1)
    made.end()
    made.end()
    made.begin("late")
    made.needs("norm")
    made.spend(1)
    made.end()
    merged = tree(named([made]), layers=False)
    gemms = [node for node in merged.nodes if node.place.name == "gemm"]
    for gemm in gemms:
        found = {each["name"]: each for each in gemm.needs}
        assert gemm.parent is not None
        above = merged.nodes[gemm.parent].parent
        assert merged.nodes[found["norm"]["id"]].parent == above, "the needed node is a sibling of the parent"
        assert merged.nodes[found["sample"]["id"]].place.name == "sample", (
            "without a sibling, the needed node is the first in the tree"
        )
        assert (found["nobody"]["id"], found["nobody"]["found"]) == (None, False)
    assert needed(merged, "late") == [("second", "norm")]
    document = whole(merged)
    assert [(each["name"], each["needs"]) for each in document["unresolved_needs"]] == [("gemm", "nobody")] * 2


def test_a_needed_name_prefers_the_same_layer() -> None:
    made = MadeUp()
    for layer in range(3):
        for name, time in (("norm", 10 - layer), ("mlp", 5)):
            made.begin(name, layer)
            if name == "mlp":
                made.needs("norm")
            made.spend(time)
            made.end()
    merged = tree(named([made]), layers=True)
    for node in merged.nodes:
        for need in node.needs:
            assert merged.nodes[need["id"]].layer == node.layer


def test_cyclic_dependencies_are_reported_and_terminate() -> None:
    made = MadeUp()
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        made.begin(name)
        made.needs(other)
        made.spend(10)
        made.end()
    document = whole(tree(named([made]), layers=False))
    (circle,) = document["critical_path"]["cycles"]
    assert [each["name"] for each in circle] == ["a", "b", "c"]
    assert document["critical_path"]["length_ns"] == 30
    lines = screens.critical(document, Screen(None, False))
    assert lines[-1] == "these need each other in a circle, and count as one node: a, b, c"


def test_dependencies_are_shown_after_the_name_of_a_brick() -> None:
    made = MadeUp()
    made.begin("b")
    for name in ("w", "x", "y", "z", "\x1b[2J"):
        made.needs(name)
    made.end()
    (line,) = [each for each in render(whole(tree(named([made]), layers=False)), Screen(None, False)) if " b" in each]
    assert line.endswith(r" b  needs \x1b[2J, w, x, …2 more")


def test_a_node_with_only_a_dependency_is_shown() -> None:
    made = MadeUp()
    made.begin("block")
    made.spend(5)
    made.mark("up", NEEDS, below=made._path("down", -1, 0, None))
    made.end()
    nodes = tree(named([made]), layers=False).nodes
    assert [(node.place.name, node.place.count) for node in nodes] == [
        ("block", 1),
        ("down", 0),
    ]


def test_a_node_kept_for_its_needs_keeps_its_earlier_marks() -> None:
    made = MadeUp()
    above = made._path("f", -1, 0, None)
    made.mark("f.py", _reader.UNIT_DEFINED, below=above, layer=3)
    made.mark("up", NEEDS, below=above)
    (node,) = tree(named([made]), layers=False).nodes
    assert (node.place.kind, node.place.definitions, node.place.needs) == ("function", {("f.py", 3)}, {"up": 1})


def test_needs_of_two_units_share_one_node_in_any_worker_order() -> None:
    made = []
    for units in ((0, _reader.UNIT_NODE), (_reader.UNIT_NODE, 0)):
        each = MadeUp()
        for unit in units:
            each.mark(f"up{unit}", NEEDS, below=each._path("down", -1, unit, None))
        made.append(each)
    one, other = (tree(named(order), layers=False).document()["nodes"] for order in (made, made[::-1]))
    assert one == other
    assert [(node["name"], len(node["needs"])) for node in one] == [("down", 2)]


def test_node_units_match_the_format() -> None:
    units = ("TICKS", "NS", "DEFERRED", "BOUND", "LAUNCHED", "SHAPED", "RETURNED", "NEEDS", "DEFINED", "ENDED")
    for unit in (*units, "NODE", "TASK"):
        assert getattr(tree_node, unit) == getattr(_reader, f"UNIT_{unit}")
    assert {name: getattr(_reader, f"UNIT_{name}") for name in ("H2D", "D2H", "D2D")} == {
        name: unit for unit, name in tree_node.DIRECTIONS.items()
    }


# ---- the critical path


def test_branches_with_the_same_dependency_run_in_parallel() -> None:
    made = MadeUp()
    for name, need, time in (("qkv", None, 10), ("score", "qkv", 40), ("gate", "qkv", 25), ("down", "score", 5)):
        made.begin(name)
        if need is not None:
            made.needs(need)
        if name == "down":
            made.needs("gate")
        made.spend(time)
        made.end()
    document = whole(tree(named([made]), layers=False))
    assert [step["name"] for step in document["critical_path"]["steps"]] == ["qkv", "score", "down"]
    assert {node["name"]: (node["slack_ns"], node["critical"]) for node in document["nodes"]} == {
        "qkv": (0, True),
        "score": (0, True),
        "gate": (15, False),
        "down": (0, True),
    }
    assert screens.critical(document, Screen(None, False)) == [
        "critical path: 55 ns of 80 ns recorded",
        "  OWN  SHARE  BRICK  INSIDE",
        "10 ns   18 %  qkv    -",
        "40 ns   73 %  score  -",
        " 5 ns  9.1 %  down   -",
        "SLACK  TOTAL  BRICK  INSIDE",
        "15 ns  25 ns  gate   -",
    ]


def test_slack_above_a_total_is_explained() -> None:
    made = MadeUp()
    for name, time in (("long", 40), ("short", 5), ("end", 1)):
        made.begin(name)
        if name == "end":
            made.needs("long")
            made.needs("short")
        made.spend(time)
        made.end()
    document = whole(tree(named([made]), layers=False))
    assert screens.critical(document, Screen(None, False))[-2:] == [
        "35 ns   5 ns  short  -",
        "slack is how much longer a brick may take without a longer critical path; it may exceed the total of the"
        " brick",
    ]


def test_device_time_is_not_subtracted_from_host_time() -> None:
    made = MadeUp()
    made.begin("forward")
    made.spend(100)
    made.launch("k")
    made.give("k", 70)
    made.end()
    document = whole(tree(named([made]), layers=False))
    assert document["critical_path"]["length_ns"] == 100
    assert [(node["name"], node["self_ns"], node["slack_ns"]) for node in document["nodes"]] == [
        ("forward", 30, 0),
        ("k", 70, 30),
    ]


def test_a_path_over_several_workers_is_marked_as_their_sum() -> None:
    made = MadeUp()
    made.begin("brick")
    made.spend(10)
    made.end()
    document = whole(tree(named([made, made]), layers=False))
    assert screens.critical(document | {"workers": 2}, Screen(None, False))[0] == (
        "critical path of 2 workers added up: 20 ns of 20 ns recorded"
    )


def test_a_long_path_is_shortened_and_its_rest_counted() -> None:
    made = MadeUp()
    for number in range(30):
        made.begin(f"brick {number:02}")
        made.spend(number + 1)
        made.end()
    lines = screens.critical(whole(tree(named([made]), layers=False)), Screen(None, False))
    assert len(lines) == 1 + 1 + 20 + 1 + 1
    assert "…10 more: 55 ns" in lines


def test_equal_nodes_are_sorted_by_name() -> None:
    made, again = MadeUp(), MadeUp()
    for number in range(50):
        for each, name in ((made, number), (again, 49 - number)):
            each.begin(f"brick {name:02}")
            each.launch(f"k{name:02}")
            each.spend(10)
            each.end()
    one, other = (dot(whole(tree(named([each]), layers=False))) for each in (made, again))
    assert one == other


# ---- the slowest kernel


def test_without_kernel_times_the_slowest_kernel_is_in_the_slowest_brick() -> None:
    made = MadeUp()
    for name, kernel, time in (("norm", "k1", 10), ("mlp", "k2", 90)):
        made.begin(name)
        made.launch(kernel)
        made.spend(time)
        made.end()
    document = whole(tree(named([made]), layers=False))
    slowest = document["slowest_kernel"]
    assert (slowest["name"], slowest["by"], slowest["time_ns"], slowest["inside"]) == ("k2", "brick", 90, "mlp")
    assert render(document, Screen(None, False))[-1] == (
        "slowest kernel: k2 in mlp, whose brick took 90 ns; no kernel reported a time"
    )


def test_a_kernel_outside_of_a_scope_has_a_row_and_no_time() -> None:
    made = MadeUp()
    made.launch("alone")
    document = whole(tree(named([made]), layers=False))
    assert [(node["name"], node["parent"], node["total_ns"]) for node in document["nodes"]] == [("alone", None, None)]
    assert document["slowest_kernel"] is None
