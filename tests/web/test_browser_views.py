"""Every view of the page, in a browser."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

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
    assert tab.main.get_by_role("rowheader", name="api/1", exact=True).is_visible()
    problem = module_daemon.ask("/status")["problems"][0]
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


def test_the_token_leaves_the_url_also_if_the_browser_stores_nothing(tab: Tab) -> None:
    denied = (
        "Object.defineProperty(window, 'sessionStorage', { get() { throw new DOMException('', 'SecurityError'); } })"
    )
    tab.page.add_init_script(denied)
    tab.open("workers")
    assert "token" not in tab.page.url
    assert tab.main.get_by_role("rowheader", name="api/1", exact=True).is_visible()


def test_a_page_without_the_token_says_where_to_get_it(tabs: Callable[..., Tab]) -> None:
    tab = tabs()
    tab.page.goto(tab.url.partition("#")[0])
    tab.page.get_by_role("alert").filter(has_text="This page needs a token").wait_for()
    tab.errors.remove("Failed to load resource: the server responded with a status of 401 (Unauthorized)")


def test_a_link_restores_the_view_the_time_and_the_workers(
    tab: Tab, tabs: Callable[..., Tab], module_daemon: Running
) -> None:
    slot = module_daemon.once("/history?over=1h", lambda document: document["slots"])["slots"][0]
    at = int(datetime.fromisoformat(slot["to"]).timestamp())
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


def test_the_url_with_its_token_works_in_a_tab_that_is_open(tabs: Callable[..., Tab]) -> None:
    tab = tabs()
    url = tab.url
    tab.url = url.partition("#")[0]
    tab.page.goto(tab.url)
    notice = tab.page.get_by_role("alert").filter(has_text="This page needs a token")
    notice.wait_for()
    tab.page.evaluate("(token) => { location.hash = token; }", url.partition("#")[2])
    tab.main.get_by_role("rowheader", name="api/1", exact=True).wait_for()
    assert "token" not in tab.page.url
    assert notice.count() == 0
    tab.errors.clear()  # the browser reports each 401


def test_the_key_for_later_moves_by_a_minute_until_it_reaches_now(tab: Tab) -> None:
    now = int(time.time())
    tab.open("hang")
    tab.open(f"hang?at={now - 200}")
    tab.page.keyboard.press("]")
    tab.page.wait_for_function("(at) => location.hash === `#hang?at=${at}`", arg=now - 140)
    tab.open(f"hang?at={now - 30}")
    tab.page.keyboard.press("]")
    tab.page.wait_for_function("() => location.hash === '#hang'")
    tab.errors.clear()  # the daemon keeps nothing of the time before it started


def test_a_time_that_cannot_be_leads_to_now(tab: Tab) -> None:
    for at in ("9e15", "99999999999", "-1", "x", "Infinity"):
        tab.open(f"ledger?at={at}")
        assert tab.page.locator("#time").inner_text().startswith("now, ")


@contextmanager
def stopped(daemon: Running) -> Iterator[None]:
    """Let the daemon do nothing meanwhile."""
    os.kill(daemon.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(daemon.process.pid, signal.SIGCONT)


def test_the_verdict_of_a_daemon_that_sends_nothing_is_an_old_one(
    tabs: Callable[..., Tab], module_daemon: Running
) -> None:
    tab = tabs()
    tab.page.clock.install()
    tab.open("overview")
    line, shown, notice = (tab.page.locator(each) for each in ("#line", "#time", "#notice"))
    problem = line.inner_text()
    assert shown.inner_text().startswith("now, ")
    with stopped(module_daemon):
        tab.page.clock.fast_forward(8_000)
        notice.filter(has_text="no answer from the daemon ").wait_for()
        of = shown.inner_text().removeprefix("as of ")
        assert (line.inner_text(), line.get_attribute("class")) == (f"not known since {of}; then: {problem}", "unknown")
        assert notice.inner_text().endswith(f". Below is the last answer, of {of}.")
        assert tab.main.get_attribute("class") == "old"
        assert tab.axe() == []
        tab.page.keyboard.press("2")
        tab.main.get_by_role("table").first.wait_for()
        assert "last answer" not in notice.inner_text(), "the new view is empty"
        assert line.inner_text().startswith("not known since ")
    tab.page.wait_for_function("() => document.getElementById('time').textContent.startsWith('now, ')")
    tab.wait()
    assert (line.inner_text(), line.get_attribute("class")) == (problem, "bad")
    assert not notice.is_visible()
    assert tab.main.get_attribute("class") == ""


def test_a_view_whose_answer_fails_is_old_and_the_verdict_is_not(tab: Tab) -> None:
    tab.open("numerics")
    line = tab.page.locator("#line").inner_text()
    tab.page.route("**/v1/coverage*", lambda route: route.abort())
    notice = tab.page.get_by_role("alert").filter(has_text="Below is the last answer, of ")
    notice.wait_for()
    assert tab.page.locator("#line").inner_text() == line
    assert tab.page.locator("#time").inner_text().startswith("now, ")
    assert tab.main.get_attribute("class") == "old"
    tab.page.unroute("**/v1/coverage*")
    notice.wait_for(state="hidden")
    assert tab.main.get_attribute("class") == ""
    tab.errors.clear()  # the browser reports each request that fails


def test_a_view_whose_answer_does_not_come_is_old_and_the_verdict_is_not(tabs: Callable[..., Tab]) -> None:
    tab = tabs()
    tab.page.clock.install()
    tab.open("numerics")
    held: list[Any] = []

    def hold(route: Any) -> None:
        held.append(route)

    tab.page.route("**/v1/coverage*", hold)
    with tab.page.expect_request("**/v1/coverage*"):
        pass
    before = tab.page.locator("#time").inner_text()
    tab.page.wait_for_function("(before) => document.getElementById('time').textContent !== before", arg=before)
    tab.page.clock.fast_forward(8_000)
    tab.page.get_by_role("alert").filter(has_text="no answer yet for this view. Below is the last answer, ").wait_for()
    assert tab.page.locator("#time").inner_text().startswith("now, ")
    for each in held:
        each.continue_()


def test_a_search_does_not_pull_back_and_adds_one_entry_to_the_history(tab: Tab) -> None:
    tab.open("overview")
    tab.open("bricks")
    entries = tab.page.evaluate("() => history.length")
    tab.page.get_by_role("searchbox").press_sequentially("xyz")
    tab.page.wait_for_function("() => location.hash === '#bricks?find=xyz'")
    assert tab.page.evaluate("() => history.length") == entries
    tab.page.evaluate("() => { location.hash = 'numerics'; }")
    tab.wait()
    tab.page.keyboard.press("Tab")
    assert tab.place == "numerics"
    tab.page.go_back()
    tab.wait()
    assert tab.page.get_by_role("searchbox").input_value() == "xyz"


def test_keys_do_nothing_behind_the_help(tab: Tab) -> None:
    tab.open("hang")
    tab.page.keyboard.press("?")
    tab.page.keyboard.press("1")
    assert tab.place == "hang"


@pytest.mark.parametrize(
    ("verdicts", "colour"),
    [
        (["equal", "equal"], "good"),
        (["equal"], "good"),
        ([], "unknown"),
        (["unproven off"], "unknown"),
        (["equal", "unproven"], "unknown"),
        (["equal", "unproven off"], "good"),
        (None, "unknown"),
    ],
    ids=str,
)
def test_where_nothing_was_compared_the_page_is_not_green(
    modules: Tab, verdicts: list[str] | None, colour: str
) -> None:
    evidence = None if verdicts is None else [
        {"verdict": each.partition(" ")[0], "recorded": not each.endswith("off")} for each in verdicts
    ]  # fmt: skip
    status: dict[str, object] = {"problems": [], "silenced": [], "workers": [{}], "evidence": evidence}
    found = modules.page.evaluate("async (status) => (await import('/web/verdict.js')).health(status)", status)
    assert found[0] == colour


def test_an_old_verdict_is_never_good(modules: Tab) -> None:
    status: dict[str, object] = {"problems": [], "silenced": [], "workers": [{}], "evidence": [{"verdict": "equal"}]}
    found = modules.page.evaluate(
        "async (status) => (await import('/web/verdict.js')).oldHealth(status, 1700000000)", status
    )
    assert found == ["unknown", "not known since 2023-11-14 22:13:20 UTC; then: no problem"]
