"""Fixtures of tests that look at the web page in a browser.

A test module gets them with `pytest_plugins = ["page_fixtures"]`. Its tests share a browser, a daemon and the workers
that it starts, so it overrides the scope of the fixture `isolated`. Each test has its own tabs. A test fails if a page
reports an error, or asks another host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browser import Tab, browsing

from brickd.base.paths import runtime

if TYPE_CHECKING:
    from faults import Start
    from playwright.sync_api import Browser
    from running import Running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """The browser of the module's tests."""
    with browsing() as browser:
        yield browser


@pytest.fixture(scope="module")
def module_worker(isolated: str) -> Iterator[Start]:
    """Starts workers that the tests of a module share."""
    from conftest import workers

    with workers() as start:
        yield start


@pytest.fixture(scope="module")
def module_daemon(isolated: str) -> Iterator[Running]:
    """The daemon of the module's tests."""
    from running import running

    with running() as daemon:
        yield daemon


@pytest.fixture(scope="module")
def address(module_daemon: Running) -> Iterator[str]:
    """The address of the daemon's page."""
    from page_server import page_serving

    with page_serving(runtime().socket) as address:
        yield address


@pytest.fixture
def tabs(chromium: Browser, address: str) -> Iterator[Callable[..., Tab]]:
    """Opens tabs: `tabs(**options)`, with the options of `Browser.new_context`."""
    opened: list[Tab] = []

    def open_tab(**options: Any) -> Tab:
        opened.append(Tab(chromium, address, **options))
        return opened[-1]

    yield open_tab
    for each in opened:
        each.close()
    assert [error for each in opened for error in each.errors] == []


@pytest.fixture
def tab(tabs: Callable[..., Tab]) -> Tab:
    """A tab."""
    return tabs()
