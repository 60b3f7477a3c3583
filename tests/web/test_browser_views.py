"""Every view of the page, in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser import Tab
from faults import Start
from page_workers import page_workers
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
