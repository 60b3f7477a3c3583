"""The tables and lists of the page: their period, and what stays when new figures come, in a browser."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import Any

import pytest
from browser import Tab
from faults import Start
from page_workers import page_workers
from running import Running
from sandbox import apart

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)


def redrawn(tab: Tab) -> None:
    """Draw the documents again, as when new ones come, without a change of the focus."""
    tab.page.evaluate("document.getElementById('theme').click()")


def test_the_next_command_of_a_problem_stays_selected(tab: Tab, module_daemon: Running) -> None:
    tab.open("overview")
    (problem,) = module_daemon.ask("/status")["problems"]
    tab.main.get_by_text(problem["command"]).evaluate("(code) => getSelection().selectAllChildren(code)")
    redrawn(tab)
    assert tab.page.evaluate("String(getSelection())") == problem["command"]


def test_a_button_of_the_trail_keeps_the_focus_and_zooms_out(tab: Tab) -> None:
    tab.open('tree?zoom=["brick:step"]')
    everything = tab.main.get_by_role("navigation", name="Zoom").get_by_role("button", name="all")
    everything.focus()
    redrawn(tab)
    assert everything.evaluate("(button) => button === document.activeElement")
    tab.page.keyboard.press("Enter")
    tab.wait()
    assert "zoom" not in tab.choices


# Shows a table, gives a row the focus and selects its name, and shows the table with new figures.
TABLE = """async ([before, after]) => {
    const { Table } = await import("/web/table.js");
    const opened = [];
    const columns = [
        { title: "Name", text: (row) => row.name, value: (row) => row.name },
        { title: "Figure", number: true, node: (row) => row.figure, value: (row) => row.figure },
    ];
    const options = { key: (row) => row.name, open: (row) => opened.push(row.figure), sort: "Figure" };
    const table = new Table("Test", columns, options);
    document.getElementById("main").replaceChildren(table.element);
    const rows = (figures) => Object.entries(figures).map(([name, figure]) => ({ name, figure }));
    const row = (name) => [...table.body.children].find((each) => each.firstChild.textContent === name);
    table.show(rows(before));
    row("a").focus();
    const [old, text] = [row("a"), row("a").firstChild.firstChild];
    getSelection().selectAllChildren(row("a").firstChild);
    table.show(rows(after));
    const found = {
        shown: [...table.body.children].map((each) => [...each.children].map((cell) => cell.textContent)),
        numbers: [...table.body.children].map((each) => each.dataset.at),
        same: old === row("a") && text === row("a").firstChild.firstChild,
        focused: document.activeElement?.firstChild?.textContent,
        selected: String(getSelection()),
    };
    row("a").click();
    return { ...found, opened };
}"""


def test_a_row_with_new_figures_keeps_the_focus_and_the_selected_text(modules: Tab) -> None:
    before, after = {"b": 3, "a": 2, "gone": 1}, {"c": 9, "b": 3, "a": 5}
    found = modules.page.evaluate(TABLE, [before, after])
    assert found["shown"] == [["c", "9"], ["a", "5"], ["b", "3"]]
    assert found["numbers"] == ["0", "1", "2"]
    assert found["focused"] == "a"
    assert found["same"]
    assert found["opened"] == [5], "a click opens the row as it is now"


def test_a_row_at_its_old_place_stays_selected(modules: Tab) -> None:
    found = modules.page.evaluate(TABLE, [{"b": 3, "a": 2}, {"b": 4, "a": 1, "c": 0}])
    assert found["shown"] == [["b", "4"], ["a", "1"], ["c", "0"]]
    assert (found["selected"], found["focused"], found["same"]) == ("a", "a", True)


# Shows a long table, scrolls it, and returns the numbers of the rows that Tab reaches.
SCROLLED = """async () => {
    const { Table } = await import("/web/table.js");
    const table = new Table("Test", [{ title: "Name", text: (row) => row }], { key: (row) => row });
    document.getElementById("main").replaceChildren(table.element);
    table.show(Array.from({ length: 1000 }, (_, n) => `row ${n}`));
    const reached = () => [...table.body.querySelectorAll("tr[tabindex='0']")].map((row) => row.dataset.at);
    const before = reached();
    table.element.scrollTop = 500 * 28;
    table.element.dispatchEvent(new Event("scroll"));
    return [before, reached()];
}"""


def test_tab_reaches_the_first_visible_row_of_a_long_table_that_is_scrolled(modules: Tab) -> None:
    assert modules.page.evaluate(SCROLLED) == [["0"], ["500"]]


SORTED = """async () => {
    const { Table } = await import("/web/table.js");
    const value = (row) => (row === "-" ? null : row);
    const columns = [{ title: "N", number: true, text: String, value }];
    const table = new Table("Test", columns, { key: (row) => row, sort: "N" });
    const shown = () => [...table.body.children].map((row) => row.textContent);
    table.show([2, "-", 1, 3]);
    const down = shown();
    table.heads[0].firstChild.click();
    return [down, shown()];
}"""


def test_a_row_without_a_value_comes_last_in_both_orders(modules: Tab) -> None:
    assert modules.page.evaluate(SORTED) == [["3", "2", "1", "-"], ["1", "2", "3", "-"]]


PERIODS: list[tuple[dict[str, Any], str]] = [
    ({"from": None, "to": None, "over_ns": None}, "since the start"),
    ({"from": None, "to": None, "over_ns": 59_000_000_000}, "last 59.0 s"),
    (
        {"from": "2026-07-01T05:52:01.5Z", "to": "2026-07-01T05:52:11.5Z", "over_ns": 10_000_000_000},
        "05:52:01 to 05:52:11 UTC",
    ),
    (
        {"from": "2026-07-01T23:59:55Z", "to": "2026-07-02T00:00:05Z", "over_ns": 10_000_000_000},
        "2026-07-01 23:59:55 UTC to 2026-07-02 00:00:05 UTC",
    ),
]


def answered(tab: Tab, view: str, at: int, document: dict[str, Any]) -> None:
    """Answer requests for a view at a time with this document."""
    tab.page.route(re.compile(rf"/v1/{view}\?at=%40{at}\b"), lambda route: route.fulfill(json=document))


def test_every_table_of_bricks_has_the_period_of_its_document(tab: Tab, module_daemon: Running) -> None:
    for view in ("status", "bricks", "tree"):
        document = module_daemon.ask(f"/{view}")
        for at, (period, _) in enumerate(PERIODS, start=1):
            answered(tab, view, at, {**document, **period})
    for at, (_, text) in enumerate(PERIODS, start=1):
        for view, start in (("overview", "Bricks with"), ("bricks", "4 rows of 4"), ("tree", "Time in each node")):
            tab.open(f"{view}?at={at}")
            caption = tab.main.locator("caption, p").filter(has_text=start)
            assert caption.inner_text().endswith(f", {text}")


def test_a_past_time_asks_for_its_own_period_and_offers_no_other(tab: Tab, module_daemon: Running) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    at = int(time.time()) - 1
    for view in ("bricks", "tree", "workers"):
        for now in (True, False):
            tab.open(f"{view}?over=60s" + ("" if now else f"&at={at}"))
            choices = tab.main.locator(".choices label").filter(has_text=re.compile("^(Time|Colour) "))
            assert choices.count() == 1 + (view == "workers")
            assert [each.is_visible() for each in choices.all()] == [now] * choices.count(), view
    over = [("at=" in each, "over=" in each) for each in asked if "/v1/bricks?" in each or "/v1/tree?" in each]
    assert set(over) == {(False, True), (True, False)}
    tab.open("bricks?over=nonsense")
    assert not tab.page.locator("#notice").is_visible(), "a link with an unknown period shows all"
