"""Every view of the page, in a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from browser import Tab
from faults import Start
from running import Running
from sandbox import apart
from verbs import SPANS, started

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
    for _ in range(2):
        started(module_worker, SPANS, BRICKD_SERVICE="api")
    module_daemon.once("/status", lambda status: len(status["workers"]) == 2 and len(status["bricks"]) == 2)


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


def test_the_overview_shows_the_workers_and_bricks_of_the_status(tab: Tab) -> None:
    tab.open()
    assert tab.main.get_by_role("row", name="api/1").is_visible()
    assert tab.main.get_by_role("row", name="gemm").is_visible()
