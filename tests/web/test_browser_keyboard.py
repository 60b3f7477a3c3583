"""Every view of the page by keyboard alone, with a visible focus, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from browser import Tab
from faults import Start
from page_workers import page_workers
from running import Running
from sandbox import apart

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

VIEWS = ("overview", "workers", "bricks", "latency", "tree", "numerics", "hang", "ledger")
MOST = 80  # parts of a view that Tab reaches


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)
    module_daemon.once("/history?over=1h", lambda document: document["slots"])


# Returns the control that has the focus; false if its focus cannot be seen.
FOCUSED = """() => {
    const at = document.activeElement;
    const { outlineStyle, outlineWidth } = getComputedStyle(at);
    const seen = at.matches(":focus-visible") && outlineStyle !== "none" && parseFloat(outlineWidth) >= 1;
    const box = at.getBoundingClientRect();
    const inside = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    return seen && inside && at;
}"""
# Returns how many visible controls there are. Of the rows of a table, Tab reaches one.
CONTROLS = """() => [...document.querySelectorAll(
        "a[href], button, input, select, summary, [tabindex='0']")]
    .filter((each) => each.checkVisibility() && !each.closest("dialog:not([open])"))"""


def pressed(tab: Tab, *keys: str) -> None:
    for key in keys:
        tab.page.keyboard.press(key)


def go(tab: Tab, role: str, name: str | None = None, *, last: bool = False) -> None:
    """Press Tab until a part of the view has the focus."""
    part = tab.main.get_by_role(role, name=name, exact=True)
    wanted = part.last if last else part.first
    for _ in range(MOST):
        pressed(tab, "Tab")
        if wanted.evaluate("(part) => part === document.activeElement"):
            assert tab.page.evaluate(FOCUSED), f"the focus of {role} {name} cannot be seen"
            return
    pytest.fail(f"Tab does not reach {role} {name}")


def to_row(tab: Tab, table: str) -> None:
    """Press Tab until the first row of a table has the focus."""
    rows = tab.main.get_by_role("table", name=table).locator("tbody tr[tabindex='0']")
    for _ in range(MOST):
        pressed(tab, "Tab")
        if rows.evaluate("(row) => row === document.activeElement"):
            assert tab.page.evaluate(FOCUSED), f"the focus of a row of {table} cannot be seen"
            return
    pytest.fail(f"Tab does not reach a row of {table}")


def row(tab: Tab) -> str:
    """Return the first cell of the row that has the focus."""
    return str(tab.page.evaluate("() => document.activeElement.closest('tr').firstChild.textContent"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_tab_reaches_every_control_and_the_focus_is_visible(tab: Tab, view: str, scheme: str) -> None:
    tab.page.emulate_media(color_scheme=scheme)
    tab.open(view)
    tab.main.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
    tab.page.evaluate("() => { window.reached = new Set(); document.activeElement.blur(); }")
    for _ in range(MOST):
        pressed(tab, "Tab")
        found = tab.page.evaluate(
            f"""() => {{
                const at = ({FOCUSED})();
                const known = window.reached.has(document.activeElement);
                window.reached.add(document.activeElement);
                const {{ outerHTML }} = document.activeElement;
                return [known || document.activeElement === document.body, Boolean(at), outerHTML];
            }}"""
        )
        if found[0]:
            break
        assert found[1], f"the focus of {found[2][:200]} cannot be seen"
    missed = tab.page.evaluate(
        f"() => ({CONTROLS})().filter((each) => !window.reached.has(each)).map((each) => each.outerHTML)"
    )
    assert missed == []


def test_the_first_key_skips_to_the_view(tab: Tab) -> None:
    tab.open("ledger")
    tab.page.evaluate("() => document.activeElement.blur()")
    pressed(tab, "Tab")
    assert tab.page.evaluate(FOCUSED), "the link that skips to the view cannot be seen"
    pressed(tab, "Enter", "Tab")
    assert tab.main.locator(":focus").count() == 1
    assert tab.place == "ledger"


def test_the_theme_and_the_times_change_by_keyboard(tab: Tab) -> None:
    tab.open("ledger")
    for name in ("one minute earlier", "dark or light"):
        tab.page.get_by_role("button", name=name).focus()
        pressed(tab, "Enter")
    assert tab.page.locator("html").get_attribute("data-theme") == "dark"
    tab.page.wait_for_function("() => location.hash.includes('at=')")
    pressed(tab, "n")
    tab.wait()
    assert tab.place == "ledger"
    tab.errors.clear()  # the daemon keeps nothing of the time before it started


def test_a_worker_of_the_overview_opens_by_keyboard(tab: Tab) -> None:
    tab.open("overview")
    to_row(tab, "Workers")
    pressed(tab, "ArrowDown", "ArrowDown", "ArrowUp")
    assert row(tab) == "api/1"
    pressed(tab, "End")
    assert row(tab) == "api/2"
    pressed(tab, "Home", "ArrowUp")
    assert row(tab) == "api/0"
    pressed(tab, "PageDown", "Enter")
    tab.wait()
    assert (tab.place.partition("?")[0], tab.choices) == ("workers", {"name": "api/2"})


def test_a_problem_leads_to_its_view_by_keyboard(tab: Tab) -> None:
    tab.open("overview")
    go(tab, "link", "numerics")
    pressed(tab, "Enter")
    tab.wait()
    assert tab.place == "numerics"


def test_tables_are_sorted_by_keyboard(tab: Tab) -> None:
    tab.open("bricks")
    heads = tab.main.get_by_role("columnheader")
    for keys, order, key in (("Enter", "descending", -1), ("Enter", "ascending", 1), ("Space", "descending", -1)):
        if order == "descending" and keys == "Enter":
            go(tab, "button", "Count")
        pressed(tab, keys)
        assert heads.filter(has_text="Count").get_attribute("aria-sort") == order
        shown = [int(text.replace(",", "")) for text in tab.main.locator("tbody td:nth-child(3)").all_text_contents()]
        assert shown == sorted(shown, key=lambda each, key=key: key * each)  # type: ignore[misc]
        assert len(set(shown)) > 1
    assert heads.filter(has_text="Self time").get_attribute("aria-sort") is None


def test_the_rows_of_bricks_are_chosen_found_and_opened_by_keyboard(tab: Tab) -> None:
    tab.open("bricks")
    go(tab, "combobox", "One row for each")
    pressed(tab, "ArrowDown")
    tab.wait()
    assert tab.choices == {"by": "worker"}
    go(tab, "searchbox", "Find bricks")
    tab.page.keyboard.type("api/2")
    tab.wait()
    to_row(tab, "4 rows of 12, since the start")
    pressed(tab, "Enter")
    tab.wait()
    assert tab.place.partition("?")[0] == "latency"


def test_the_heat_map_is_chosen_selected_and_opened_by_keyboard(tab: Tab) -> None:
    tab.open("workers")
    go(tab, "combobox", "Colour")
    pressed(tab, "ArrowDown")
    tab.wait()
    assert tab.choices == {"colour": "self"}
    go(tab, "application")
    line = tab.main.locator("[aria-live]")
    first = line.inner_text()
    pressed(tab, "ArrowDown")
    assert line.inner_text().startswith("api/1, ")
    pressed(tab, "ArrowUp")
    assert line.inner_text() == first
    pressed(tab, "End", "Home", "PageDown", "Enter")
    tab.wait()
    assert tab.place.partition("?")[0] == "latency"
    assert tab.choices["name"] == "api/2"


def test_the_cells_as_a_table_are_opened_by_keyboard(tab: Tab) -> None:
    tab.open("workers")
    summary = tab.main.locator("summary")
    for _ in range(MOST):
        pressed(tab, "Tab")
        if summary.evaluate("(part) => part === document.activeElement"):
            break
    assert tab.page.evaluate(FOCUSED)
    pressed(tab, "Enter")
    to_row(tab, "Time of each worker in each brick")
    pressed(tab, "Enter")
    tab.wait()
    assert {"name", "brick"} <= set(tab.choices)


def test_the_time_cursor_and_the_period_move_by_keyboard(tab: Tab) -> None:
    tab.open("latency")
    go(tab, "combobox", "Time")
    pressed(tab, "ArrowDown")
    tab.wait()
    assert tab.choices == {"over": "10m"}
    go(tab, "slider", "Shown time")
    pressed(tab, "Home")
    tab.page.wait_for_function("() => location.hash.includes('at=')")
    tab.wait()
    assert tab.main.get_by_role("slider").evaluate("(slider) => slider === document.activeElement")
    assert tab.main.get_by_role("slider").get_attribute("aria-valuenow") == "0"
    pressed(tab, "n")
    tab.wait()
    go(tab, "button", "earlier period")
    pressed(tab, "Enter")
    tab.page.wait_for_function("() => location.hash.includes('end=')")
    tab.wait()
    go(tab, "button", "until now")
    pressed(tab, "Enter")
    tab.wait()
    assert "end" not in tab.choices
    tab.errors.clear()  # the daemon keeps nothing of the time before it started


def test_the_flame_graph_is_folded_searched_and_zoomed_by_keyboard(tab: Tab) -> None:
    tab.open("tree")
    go(tab, "combobox", "Layers")
    pressed(tab, "ArrowDown")
    tab.wait()
    assert tab.choices == {"layers": "separate"}
    go(tab, "searchbox", "Find nodes")
    tab.page.keyboard.type("inner")
    tab.wait()
    assert tab.main.get_by_text("nodes found").is_visible()
    go(tab, "application")
    pressed(tab, "ArrowDown", "ArrowDown", "Enter")
    tab.wait()
    assert json.loads(tab.choices["zoom"])[0] == "brick:step"
    assert len(json.loads(tab.choices["zoom"])) == 2
    assert tab.main.locator("section [role='status']").inner_text().startswith("Layer 0, ")
    pressed(tab, "Escape")
    tab.wait()
    assert json.loads(tab.choices["zoom"]) == ["brick:step"]
    pressed(tab, "Shift+Tab")
    assert tab.page.evaluate("() => document.activeElement.textContent") == "step"
    pressed(tab, "Shift+Tab", "Enter")
    tab.wait()
    assert "zoom" not in tab.choices


def test_a_site_opens_and_closes_by_keyboard(tab: Tab) -> None:
    tab.open("numerics")
    go(tab, "searchbox", "Find sites")
    tab.page.keyboard.type("gemm")
    tab.wait()
    to_row(tab, "2 sites of 6")
    pressed(tab, "Enter")
    tab.wait()
    assert json.loads(tab.choices["site"])[1] == "gemm"
    go(tab, "button", "Close this site")
    pressed(tab, "Enter")
    tab.wait()
    assert "site" not in tab.choices


def test_rows_of_what_hangs_are_reached_by_keyboard(tab: Tab) -> None:
    tab.open("hang")
    to_row(tab, "0 threads with open spans")
    pressed(tab, "End")
    assert row(tab) == "api/2"


def test_a_worker_of_the_ledger_opens_by_keyboard(tab: Tab) -> None:
    tab.open("ledger")
    to_row(tab, "Workers")
    pressed(tab, "ArrowDown", "Enter")
    tab.wait()
    assert (tab.place.partition("?")[0], tab.choices) == ("workers", {"name": "api/1"})
