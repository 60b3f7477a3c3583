"""The view of what was compared, in a browser."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from browser import Tab
from faults import Start
from page_workers import HOSTILE, SERVICE, SHOWN, STEPS, WORKERS, page_workers
from running import Running
from sandbox import apart

from brickd.screens import coverage as screen

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


def row(tab: Tab, *texts: str) -> list[str]:
    """Return the cells of the only row that has these texts."""
    rows = tab.main.get_by_role("row")
    for text in texts:
        rows = rows.filter(has_text=text)
    assert rows.count() == 1
    cells: list[str] = rows.locator("th, td").all_inner_texts()
    return cells


def test_the_first_difference_is_marked_with_its_counts(tab: Tab, module_daemon: Running) -> None:
    (site,) = (each for each in module_daemon.ask("/coverage")["sites"] if each["state"] == "differs")
    assert site["compared"] == WORKERS * STEPS > site["unlike"] > 0
    tab.open("numerics")
    cells = row(tab, SHOWN, "differs:")
    assert cells[:4] == [SHOWN, "0", "-", f"differs: {site['unlike']} of {site['compared']}"]
    assert "first difference" in cells
    assert tab.main.get_by_text("first difference").count() == 1


def test_what_was_not_compared_is_counted_and_called_unproven(tab: Tab, module_daemon: Running) -> None:
    tab.open("numerics")
    assert tab.main.get_by_role("status").inner_text().splitlines() == [
        f"diverged: {SERVICE} by input",
        f"unproven: {SERVICE} by weights, {SERVICE} by row, {SERVICE} by history",
    ]
    (service,) = module_daemon.ask("/coverage")["services"]
    assert row(tab, "fingerprints: alone")[-1] == str(service["unseen"]["alone"])
    assert "no other worker had the same" in row(tab, "lonely", "1")[6]


def test_both_fingerprints_of_a_difference_are_side_by_side(tab: Tab, module_daemon: Running) -> None:
    tab.open("numerics")
    tab.main.get_by_role("row").filter(has_text="differs:").click()
    tab.wait()
    (finding,) = module_daemon.ask("/coverage")["findings"]
    for title, case in (("First case", finding["first"]), ("Newest case", finding["newest"])):
        table = tab.main.get_by_role("region", name=title)
        rows = {
            cells[0]: cells[1:]
            for each in table.locator("tbody tr").all()
            if (cells := each.locator("th, td").all_inner_texts())
        }
        assert rows["worker"] == [case["against"]["worker"], case["other"]["worker"], "-"]
        assert rows["step"] == [case["against"]["step"], case["other"]["step"], "-"]
        assert rows["step text"][2] == "-", "cases are matched by their inputs"
        assert rows["output checksum"] == [case["against"]["checksum"], case["other"]["checksum"], "differs"]
        assert rows["input 1 checksum"][2] == "same"
        assert rows["step text"][0].startswith(SHOWN)
        differing = [each for each, (*_, word) in rows.items() if word == "differs"]
        assert table.locator("tr.marked th").all_inner_texts() == differing
    assert tab.main.get_by_text(finding["command"]).is_visible()


def test_a_link_opens_a_site_and_a_key_closes_it(tab: Tab, tabs: Callable[..., Tab]) -> None:
    tab.open("numerics")
    tab.main.get_by_role("row").filter(has_text="differs:").focus()
    tab.page.keyboard.press("Enter")
    tab.wait()
    assert json.loads(tab.choices["site"]) == [SERVICE, HOSTILE, 0]
    other = tabs()
    other.open(tab.place)
    assert other.main.get_by_role("heading", name=f"{SHOWN} layer 0, {SERVICE}").is_visible()
    other.main.get_by_role("button", name="Close this site").press("Enter")
    other.wait()
    assert "site" not in other.choices
    assert not other.main.get_by_role("region", name="Opened site").is_visible()


@pytest.mark.parametrize(
    ("site", "text"),
    [
        ([SERVICE, "gemm", 1], "No finding: what was compared was equal."),
        ([SERVICE, "lonely", 1], "No finding, and not everything was compared: unproven."),
        ([SERVICE, "gone", None], "This site is not in the document."),
    ],
)
def test_a_site_without_a_finding_says_what_was_compared(tab: Tab, site: list[object], text: str) -> None:
    tab.open(f"numerics?site={json.dumps(site, separators=(',', ':'))}")
    assert tab.main.get_by_text(text).is_visible()


def test_the_notes_name_the_services_of_bricks_and_no_empty_window(tab: Tab, module_daemon: Running) -> None:
    document = module_daemon.ask("/coverage")
    without = [
        {"service": service, "brick": brick}
        for service, brick in (("api", "a"), ("web", "a"), ("api", "a"), ("api", "b"))
    ]
    window = {**document["window"], "fingerprints": 0, "oldest_age_ns": None}
    answer = {**document, "bricks_without_sites": without, "window": window}
    tab.page.route("**/v1/coverage*", lambda route: route.fulfill(json=answer))
    tab.open("numerics")
    notes = tab.main.locator("ul.small li").all_inner_texts()
    assert notes[-2:] == ["api: bricks without compared numbers: a, b", "web: bricks without compared numbers: a"]
    assert not any("in memory" in each for each in notes)


def test_the_states_have_the_texts_of_the_command(tab: Tab) -> None:
    tab.open("numerics")
    assert tab.page.evaluate('async () => (await import("/web/numerics.js")).STATES') == screen._STATES
