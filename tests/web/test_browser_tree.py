"""The view of the call tree, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from browser import Tab
from faults import Start
from page_workers import LAYERS, SHOWN, STEPS, WORKERS, page_workers
from running import Running
from sandbox import apart

from brickd.base import units

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

NODES = 10_000


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)


def described(tab: Tab) -> dict[str, str]:
    """Return the texts about the selected node, by their terms."""
    terms = tab.main.locator("#node dt").all_inner_texts()
    return dict(zip(terms, tab.main.locator("#node dd").all_inner_texts(), strict=True))


def pressed(tab: Tab, *keys: str) -> None:
    """Press keys in the picture."""
    tab.page.get_by_role("application").focus()
    for key in keys:
        tab.page.keyboard.press(key)


def test_the_arrows_go_to_children_siblings_and_parents(tab: Tab) -> None:
    tab.open("tree")
    pressed(tab, "ArrowDown")
    assert described(tab)["Node"] == "brick step"
    pressed(tab, "ArrowDown")
    assert described(tab)["Node"] == f"brick {SHOWN}"
    assert described(tab)["Count"] == str(WORKERS * STEPS * LAYERS)
    pressed(tab, "ArrowUp", "ArrowRight")
    assert described(tab)["Node"] == "brick late"
    pressed(tab, "ArrowRight")
    assert described(tab)["Node"] == "brick late", "it has no next sibling"
    pressed(tab, "ArrowLeft", "ArrowLeft")
    assert described(tab)["Node"] == "brick step"


def test_a_bound_is_never_shown_as_a_measurement(tab: Tab) -> None:
    tab.open("tree")
    pressed(tab, "ArrowDown", "ArrowRight")
    assert described(tab)["Total"].startswith("≤ ")
    assert tab.main.get_by_text("≤ an upper bound, not a measurement").is_visible()


def test_a_link_restores_the_zoom_and_the_search(tab: Tab, tabs: Callable[..., Tab]) -> None:
    tab.open("tree")
    pressed(tab, "ArrowDown", "ArrowDown", "Enter")
    tab.wait()
    tab.main.get_by_label("Find nodes").fill("inner")
    tab.wait()
    assert json.loads(tab.choices["zoom"])[0] == "brick:step"
    other = tabs()
    other.open(tab.place)
    assert other.main.get_by_label("Find nodes").input_value() == "inner"
    assert other.main.get_by_role("navigation", name="Zoom").get_by_role("button").all_inner_texts() == [
        *("all", "step", SHOWN)
    ]
    assert other.main.get_by_text("1 node found:").is_visible()


def test_escape_and_the_trail_zoom_out(tab: Tab) -> None:
    tab.open("tree")
    pressed(tab, "ArrowDown", "ArrowDown", "Enter")
    pressed(tab, "Escape")
    tab.wait()
    assert json.loads(tab.choices["zoom"]) == ["brick:step"]
    tab.main.get_by_role("navigation", name="Zoom").get_by_role("button", name="all").click()
    tab.wait()
    assert "zoom" not in tab.choices


def test_a_zoom_into_a_node_that_no_longer_exists_shows_the_nearest_one_above(tab: Tab) -> None:
    for zoom in ('["brick:step","brick:gone"]', '["brick:step",7]'):
        tab.open(f"tree?zoom={zoom}")
        assert described(tab)["Node"] == "brick step"
    for zoom in ("[", "null", "7", '["nothing"]'):
        tab.open(f"tree?zoom={zoom}")
        assert "Node" not in described(tab)


def test_the_share_of_nested_matches_counts_once(tab: Tab, module_daemon: Running) -> None:
    document = module_daemon.ask("/tree?over=start")
    outer = next(each for each in document["nodes"] if "<" in each["name"])
    tab.open("tree?find=n")  # only in `inner`, and in the name of the brick around it
    share = units.percent(100 * outer["total_ns"] / document["recorded_ns"])
    assert tab.main.get_by_text("nodes found").inner_text() == f"2 nodes found: {share} of the time"
    tab.open("tree?find=late")
    assert tab.main.get_by_text("1 node found").inner_text().startswith("1 node found: ≤ ")


def test_the_table_has_every_node_and_its_figures(tab: Tab, module_daemon: Running) -> None:
    tab.open("tree?layers=separate")
    nodes = module_daemon.ask("/tree?layers=true")["nodes"]
    tab.main.get_by_text("Nodes as a table").click()
    rows = tab.main.get_by_role("table").locator("tbody tr")
    assert rows.count() == len(nodes) > 2 + LAYERS
    assert rows.locator("th").all_text_contents() == [
        "  " * each["depth"] + each["name"].replace(each["name"], SHOWN if "<" in each["name"] else each["name"])
        for each in nodes
    ]


ARRANGED = """async ([nodes, width]) => {
    const { arranged, boxes, found } = await import("/web/flame.js");
    const { root, items } = arranged(nodes, 0);
    const { drawn, missing, rows } = boxes(root, width);
    return { missing, rows, boxes: drawn.map(({ item, left, wide, row }) => [item.node?.name ?? "", left, wide, row]) };
}"""


def made(*nodes: tuple[int | None, int | None]) -> list[dict[str, Any]]:
    """Return nodes of a document, from the parent and the total of each."""
    return [
        {"kind": "brick", "name": str(number), "parent": parent, "total_ns": total, "order": number}
        for number, (parent, total) in enumerate(nodes)
    ]


def test_boxes_lie_in_their_parents_in_the_order_of_recording(tab: Tab) -> None:
    tab.open("tree")
    nodes = made((None, 100), (0, 30), (0, 50), (2, 25), (None, 100))
    nodes[1]["order"] = 9
    found = tab.page.evaluate(ARRANGED, [nodes, 200])
    assert (found["missing"], found["rows"]) == (0, 3 + 1)
    assert sorted(found["boxes"]) == [
        *(["", 0, 200, 0], ["0", 0, 100, 1], ["1", 50, 30, 2], ["2", 0, 50, 2], ["3", 0, 25, 3], ["4", 100, 100, 1]),
    ]


def test_a_box_is_as_wide_as_its_children_together(tab: Tab) -> None:
    tab.open("tree")
    nodes = made((None, 10), (0, 30), (0, 50), (None, None), (3, 20))
    found = {name: wide for name, _, wide, _ in tab.page.evaluate(ARRANGED, [nodes, 100])["boxes"]}
    assert found == {"": 100, "0": 80, "1": 30, "2": 50, "3": 20, "4": 20}


def test_nodes_narrower_than_a_pixel_are_counted_with_all_below_them(tab: Tab) -> None:
    tab.open("tree")
    nodes = made((None, 1000), (0, 9), (1, 9), (2, 1), (0, 10), (None, None))
    found = tab.page.evaluate(ARRANGED, [nodes, 100])
    assert found["missing"] == 4
    assert {name for name, *_ in found["boxes"]} == {"", "0", "4"}


def test_of_ten_thousand_nodes_no_more_are_drawn_than_fit(tab: Tab) -> None:
    tab.open("tree")
    nodes = made((None, NODES), *((0, 1) for _ in range(NODES - 1)))
    found = tab.page.evaluate(ARRANGED, [nodes, 100])
    assert [name for name, *_ in found["boxes"]] == ["", "0"]
    assert found["missing"] == NODES - 1
