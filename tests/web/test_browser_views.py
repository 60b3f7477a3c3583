"""Every view of the page, in a browser."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from browser import Tab
from faults import Start
from page_workers import SHOWN, page_workers
from running import Running
from sandbox import apart

from brickd.base import escape

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

VIEWS = ("overview", "workers", "bricks", "latency", "tree", "numerics", "hang", "ledger")


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)


def test_keys_open_every_view(tab: Tab) -> None:
    tab.open()
    for number, view in enumerate(VIEWS, start=1):
        tab.page.keyboard.press(str(number))
        tab.wait()
        assert tab.place == view


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_breaks_a_serious_rule_of_accessibility(tabs: Callable[..., Tab], scheme: str) -> None:
    tab = tabs(color_scheme=scheme)
    for view in VIEWS:
        tab.open(view)
        assert tab.axe() == [], view


def test_the_overview_shows_the_problems_and_the_workers(tab: Tab, module_daemon: Running) -> None:
    tab.open()
    assert tab.main.get_by_role("row", name="api/1").is_visible()
    (problem,) = module_daemon.ask("/status")["problems"]
    assert tab.main.get_by_text(escape.text(problem["text"])).is_visible()
    assert tab.main.get_by_text(problem["command"]).is_visible()


def test_a_name_becomes_no_element_in_any_view(tab: Tab) -> None:
    shown = set()
    for view in VIEWS:
        tab.open(view)
        tab.main.evaluate("(main) => main.querySelectorAll('details').forEach((each) => { each.open = true; })")
        tab.main.locator("details[open]").first.or_(tab.main).first.wait_for()
        assert tab.page.locator("body img, body script, body iframe").count() == 0, view
        text = tab.main.inner_text()
        assert not set(text) & {"\u202e", "\x1b"}, view
        if SHOWN in text:
            shown.add(view)
    assert {"overview", "bricks", "tree", "numerics"} <= shown


def test_the_token_is_in_the_url_only_until_the_page_is_loaded(tab: Tab) -> None:
    token = tab.url.partition("#token=")[2]
    assert token
    tab.page.goto(tab.url)
    tab.wait()
    assert token not in tab.page.url
    assert token not in tab.page.content()
    tab.page.reload()
    tab.wait()
    assert tab.main.get_by_role("rowheader", name="api/1", exact=True).is_visible(), "the session still has the token"


def test_a_page_without_the_token_says_where_to_get_it(tabs: Callable[..., Tab]) -> None:
    tab = tabs()
    tab.page.goto(tab.url.partition("#")[0])
    tab.page.get_by_role("alert").filter(has_text="This page needs a token").wait_for()
    tab.errors.remove("Failed to load resource: the server responded with a status of 401 (Unauthorized)")


def test_a_link_restores_the_view_the_time_and_the_workers(tab: Tab, tabs: Callable[..., Tab]) -> None:
    at = int(time.time()) - 1
    tab.open(f"bricks?at={at}&name=api/1&find=inner")
    assert tab.page.locator("#time").inner_text().startswith(time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at)))
    other = tabs()
    other.open(tab.place)
    for each in (tab, other):
        assert each.page.get_by_role("group", name="Chosen workers").get_by_role("link").all_inner_texts() == [
            "api/1 ×"
        ]
        assert each.main.get_by_label("Find bricks").input_value() == "inner"
        assert each.page.locator("#views a[aria-current]").inner_text() == "Bricks"
    other.page.locator("#main").press("n")
    other.wait()
    assert other.page.locator("#time").inner_text().startswith("now, ")
    assert other.choices == {"name": "api/1", "find": "inner"}
