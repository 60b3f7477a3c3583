"""Fixtures of tests that look at the web page in a browser.

A test module gets them with `pytest_plugins = ["page_fixtures"]`. Its tests share a browser, a daemon and the workers
that it starts, so it overrides the scope of the fixture `isolated`. Each test has its own tabs. A test fails if a page
reports an error, or asks another host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest
from browser import Tab, browsing

from brickd.base.paths import runtime
from brickd.web.page import page_url
from brickd.web.token import read_token

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
    """The daemon of the module's tests, which serves the page."""
    from running import running

    with running(options=("--http", "127.0.0.1:0")) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def url(module_daemon: Running) -> str:
    """The URL of the daemon's page, with its token."""
    assert module_daemon.process.stdout is not None
    second = module_daemon.process.stdout.readline().decode()
    found = re.match(r"web page: http://([\d.:]+)/ ", second)
    assert found, second
    return page_url(found[1], read_token(runtime().web_token))


@pytest.fixture
def tabs(chromium: Browser, url: str) -> Iterator[Callable[..., Tab]]:
    """Opens tabs: `tabs(**options)`, with the options of `Browser.new_context`."""
    opened: list[Tab] = []

    def open_tab(**options: Any) -> Tab:
        opened.append(Tab(chromium, url, **options))
        return opened[-1]

    yield open_tab
    for each in opened:
        each.close()
    assert [error for each in opened for error in each.errors] == []


@pytest.fixture
def tab(tabs: Callable[..., Tab]) -> Tab:
    """A tab."""
    return tabs()


@pytest.fixture(scope="module")
def modules(chromium: Browser, url: str) -> Iterator[Tab]:
    """A tab whose scripts import the modules of the page. It stays open, because a page takes a second to load."""
    tab = Tab(chromium, url)
    tab.open("ledger")
    yield tab
    tab.close()
    assert tab.errors == []
