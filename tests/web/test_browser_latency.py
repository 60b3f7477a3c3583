"""The views of latency and of what hangs, in a browser."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import Tab
from faults import Start
from page_workers import HOSTILE, SHOWN, WORKERS, page_workers, past
from running import Running
from sandbox import apart

from brickd.base.units import count, duration

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

NOW = int(time.time()) - 100
Row = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)


def at(second: float) -> str:
    """Return a time of a document, so many seconds after `NOW`."""
    return datetime.fromtimestamp(NOW + second, UTC).isoformat().replace("+00:00", "Z")


def slot(began: float, ended: float, p50_ns: int | None = 1000, lost: int = 0) -> Row:
    return {
        **{"from": at(began), "to": at(ended), "over_ns": round(1e9 * (ended - began)), "workers": 3, "count": 50},
        **{
            "count_per_second": 5.0,
            "self_ns": 70_000,
            "p50_ns": p50_ns,
            "p99_ns": p50_ns and 90 * p50_ns,
            "lost": lost,
        },
    }


SLOTS = (slot(0, 10), slot(10, 20, 3000, 4), slot(40, 50), slot(50, 60, None), slot(60, 70))


def answered(tab: Tab, daemon: Running, *slots: Row) -> list[dict[str, list[str]]]:
    """Answer requests for a history with these slots; return the list of the parameters of such requests."""
    asked: list[dict[str, list[str]]] = []

    def answer(route: Any) -> None:
        asked.append(parse_qs(urlsplit(route.request.url).query))
        brick = asked[-1].get("brick", [None])[0]
        began, ended = (slots[0]["from"], slots[-1]["to"]) if slots else (None, None)
        route.fulfill(json={"from": began, "to": ended, "brick": brick, "slots": slots, "words": []})

    status = past(daemon.ask("/status"))
    tab.page.route("**/v1/history?**", answer)
    tab.page.route("**/v1/status?at=**", lambda route: route.fulfill(json=status))
    return asked


def lines(tab: Tab) -> list[str]:
    """Return the paths of all lines: median, p99, spans per second."""
    found: list[str] = tab.main.locator(".chart-line:not(.chart-sample)").evaluate_all(
        "paths => paths.map((each) => each.getAttribute('d'))"
    )
    return found


def cursor(tab: Tab) -> int:
    return int(tab.choices["at"])


def test_a_line_never_crosses_a_time_without_a_slot(tab: Tab, module_daemon: Running) -> None:
    answered(tab, module_daemon, *SLOTS)
    tab.open("latency")
    median, p99, rate = lines(tab)
    assert [path.count("M") for path in (median, p99)] == [3, 3], "a gap, and a slot without spans"
    assert rate.count("M") == 2, "a gap"
    assert [path.count("H") for path in (median, p99, rate)] == [4, 4, 5]
    assert tab.main.locator("rect[fill='url(#no-slot)']").count() == 2 * 3, (
        "before, in between and after, in two charts"
    )


def test_slots_with_losses_are_marked(tab: Tab, module_daemon: Running) -> None:
    answered(tab, module_daemon, *SLOTS)
    tab.open("latency")
    assert tab.main.locator(".chart-lost").count() == 1 + 1, "a mark and the legend"


def test_the_table_has_the_figures_of_the_history(tab: Tab, module_daemon: Running) -> None:
    answered(tab, module_daemon, *SLOTS)
    tab.open("latency")
    tab.main.get_by_text("The same as a table").click()
    tab.main.get_by_role("table").locator("tbody tr").first.wait_for()  # the page fills it when it is opened
    rows = tab.main.get_by_role("table").locator("tbody tr").all()
    assert [row.locator("th, td").all_text_contents() for row in rows] == [
        [
            *(each["from"][:19].replace("T", " "), each["to"][11:19], count(each["workers"]), count(each["count"])),
            *(count(each["count_per_second"]), *(duration(each[f"{name}_ns"]) for name in ("p50", "p99", "self"))),
            count(each["lost"]),
        ]
        for each in SLOTS
    ]


def test_keys_and_clicks_move_the_cursor_and_the_shown_time_of_all_views(tab: Tab, module_daemon: Running) -> None:
    asked = answered(tab, module_daemon, *SLOTS)
    tab.open("latency?over=10m")
    slider = tab.main.get_by_role("slider", name="Shown time")
    slider.focus()
    for keys, second in [("ArrowLeft", 55), ("Home", 5), ("ArrowRight", 15), ("ArrowRight", 45), ("End", 65)]:
        tab.page.keyboard.press(keys)
        tab.page.wait_for_url(f"**at={NOW + second}*")
    tab.wait()
    assert tab.main.locator(".chart-cursor").count() == 1
    box = slider.bounding_box()
    assert box is not None
    slider.click(position={"x": box["width"] - 13, "y": 60})  # after the last slot
    tab.page.keyboard.press("2")
    tab.wait()
    assert (tab.place.partition("?")[0], cursor(tab)) == ("workers", NOW + 65)
    assert len(asked) == 1, "the document stays while the cursor moves"


def test_the_row_at_the_cursor_is_told_in_words(tab: Tab, module_daemon: Running) -> None:
    answered(tab, module_daemon, *SLOTS)
    tab.open(f"latency?at={NOW + 15}")
    text = f"{at(10)[11:19]} to {at(20)[11:19]} UTC: median 3.0 µs, p99 270 µs, 5 spans per second, 3 workers, 4 lost"
    assert tab.main.locator(".figures").inner_text() == f"{at(10)[:10]} {text}"
    assert tab.main.get_by_role("slider").get_attribute("aria-valuetext") == f"{at(10)[:10]} {text}"


def test_a_brick_of_a_worker_is_asked_for_its_service(tab: Tab, module_daemon: Running) -> None:
    asked = answered(tab, module_daemon, *SLOTS)
    tab.open("latency?name=api/1&brick=inner")
    assert (asked[-1]["name"], asked[-1]["brick"]) == (["api"], ["inner"])
    assert "the brick is kept for each service: all of api" in tab.main.inner_text()
    tab.open("latency?name=api/1")
    assert asked[-1]["name"] == ["api/1"]


def test_the_list_of_bricks_has_names_as_text(tab: Tab, module_daemon: Running) -> None:
    asked = answered(tab, module_daemon, *SLOTS)
    tab.open("latency")
    bricks = tab.main.get_by_label("Brick")
    assert SHOWN in bricks.locator("option").all_text_contents()
    bricks.select_option(HOSTILE)
    tab.wait()
    assert asked[-1]["brick"] == [HOSTILE]
    assert tab.main.locator("img").count() == 0


def test_without_slots_the_view_says_so(tab: Tab, module_daemon: Running) -> None:
    answered(tab, module_daemon)
    tab.open("latency")
    assert tab.main.get_by_text("Nothing was recorded in this period.").is_visible()
    assert lines(tab) == [""] * 3


@pytest.mark.parametrize(
    ("place", "over", "end"),
    [
        ({}, "1h", None),
        ({"choices": {"over": "24h"}}, "24h", None),
        ({"choices": {"over": "constructor"}}, "1h", None),
        ({"at": 10_000 - 3600}, "1h", None),
        ({"at": 10_000 - 3601}, "1h", 10_000 - 1801),
        ({"choices": {"end": "9000"}}, "1h", 9000),
        ({"choices": {"end": "10000"}}, "1h", None),
        ({"choices": {"end": "x"}}, "1h", None),
        ({"at": 9001, "choices": {"end": "9000"}}, "1h", None),
        ({"at": 5400, "choices": {"end": "9000"}}, "1h", 9000),
        ({"at": 5399, "choices": {"end": "9000"}}, "1h", 7199),
    ],
)
def test_the_period_has_the_shown_time_in_it(modules: Tab, place: Row, over: str, end: int | None) -> None:
    found = modules.page.evaluate(
        "async (place) => (await import('/web/latency.js')).periodOf({ at: null, choices: {}, ...place }, 10000)", place
    )
    assert (found["over"], found["end"]) == (over, end)


def hanging(*services: Row, spans: tuple[Row, ...] = ()) -> Row:
    return {"services": list(services), "open": list(spans), "words": []}


def verdict(service: str, kind: str, *odd: str) -> Row:
    workers = [
        {"worker": each, "state": "stuck", "brick": "b", "layer": 1, "within": None, "since_ns": 9} for each in odd
    ]
    return {"service": service, "verdict": kind, "text": f"text of {service}", "odd": workers}


def opened(worker: str, brick: str | None = "inner") -> Row:
    path = ["step", HOSTILE, brick] if brick else []
    return {
        **{"worker": worker, "service": "api", "lane": 0, "thread": 7, "state": "stuck", "since_ns": 5, "layer": None},
        **{"brick": brick, "open": len(path), "path": path},
    }


def test_only_a_proven_verdict_looks_good_and_the_bad_ones_come_first(tab: Tab) -> None:
    kinds = ("none_stuck", "too_few", "no_majority", "all_wait", "new_kind", "some_stuck", "most_wait")
    found = hanging(*(verdict(kind, kind) for kind in kinds))
    tab.page.route("**/v1/hang?**", lambda route: route.fulfill(json=found))
    tab.open("hang")
    verdicts = tab.main.locator("li > span").evaluate_all(
        "all => all.map((each) => [each.textContent, each.className])"
    )
    bad, unknown = kinds[5:], kinds[1:5]
    assert verdicts == [*([k, "bad"] for k in bad), *([k, "unknown"] for k in unknown), ["none_stuck", "good"]]


def test_workers_that_are_named_come_first_and_spans_have_their_path(tab: Tab) -> None:
    found = hanging(
        verdict("api", "most_wait", "api/9"), spans=(opened("api/0"), opened("api/1", None), opened("api/9"))
    )
    tab.page.route("**/v1/hang?**", lambda route: route.fulfill(json=found))
    tab.open("hang")
    assert tab.main.get_by_text("api: text of api").is_visible()
    rows = tab.main.get_by_role("table", name="2 threads with open spans").locator("tbody tr")
    assert rows.locator("th").all_text_contents() == ["api/9", "api/0", "api/1"]
    assert rows.locator("td:last-child").all_text_contents() == [f"step > {SHOWN} > inner"] * 2 + ["-"]
    named = tab.main.get_by_role("table", name="Workers that are named").locator("tbody tr")
    assert named.locator("th").all_text_contents() == ["api/9"]


def test_the_open_spans_are_those_of_the_workers_now(tab: Tab, module_daemon: Running) -> None:
    tab.open("hang")
    rows = tab.main.get_by_role("table").last.locator("tbody tr")
    found = module_daemon.ask("/hang?watch=0.01s")
    assert rows.locator("th").all_text_contents() == [each["worker"] for each in found["open"]]
    assert len(found["open"]) == WORKERS
    assert tab.main.get_by_text(found["services"][0]["text"]).is_visible()


def test_an_earlier_time_shows_no_open_spans(tab: Tab, module_daemon: Running) -> None:
    answered(tab, module_daemon)
    tab.open("hang")
    tab.open(f"hang?at={NOW}")
    assert tab.main.get_by_text("Open spans are known only for now.").is_visible()
    assert not tab.main.get_by_role("table").first.is_visible()
    assert tab.main.locator("li").count() == 0
