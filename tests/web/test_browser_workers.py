"""The view of the workers and its heat map, in a browser."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from browser import Tab
from faults import Start
from page_workers import SERVICE, SHOWN, WORKERS, page_workers, past
from running import Running
from sandbox import apart

from brickd.base.units import count, duration

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

BRICKS = 4  # of the workers in `page_workers`
FRAME_MS = 100
Row = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)


def table(tab: Tab, name: str) -> list[list[str]]:
    """Return the texts in the rows of a table."""
    rows = tab.main.get_by_role("table", name=name).locator("tbody tr:not(.spacer)")
    return [row.locator("th, td").all_text_contents() for row in rows.all()]


def cells_as_table(tab: Tab) -> list[list[str]]:
    name = "Time of each worker in each brick"
    tab.main.get_by_text("The same as a table").click()
    tab.main.get_by_role("table", name=name).locator("tbody tr").first.wait_for()  # the page fills it when it is opened
    return table(tab, name)


def described(tab: Tab) -> str:
    """Return the selected cell in words."""
    return str(tab.main.locator("[aria-live]").inner_text())


def pressed(tab: Tab, *keys: str) -> None:
    tab.main.get_by_role("application").focus()
    for key in keys:
        tab.page.keyboard.press(key)


def answered(tab: Tab, document: Row, view: str = "bricks") -> None:
    """Answer requests for a view with this document."""
    tab.page.route(f"**/v1/{view}?**", lambda route: route.fulfill(json=document))


def row(worker: str, name: str, mean_ns: int = 100, self_ns: int = 1000, *, bounded: bool = False) -> Row:
    return {"worker": worker, "name": name, "mean_ns": mean_ns, "self_ns": self_ns, "count": 7, "bounded": bounded}


def document(*rows: Row, **rest: float) -> Row:
    return {"bricks": list(rows), "rest": {"bricks": 0, "share_percent": 0.0, **rest}}


def visible(name: str) -> str:
    return SHOWN if "<" in name else name


def test_the_table_has_the_figures_of_the_status(tab: Tab, module_daemon: Running) -> None:
    tab.open("workers")
    workers = module_daemon.ask("/status")["workers"]
    assert [row[:6] + row[9:] for row in table(tab, "3 workers")] == [
        [
            *(each["name"], each["state"], str(each["pid"]), count(each["threads"])),
            *(count(each["ledger"]["spans"]["summarized"]), count(each["lost"]), count(each["pending"])),
            each["problem"] or "-",
        ]
        for each in workers
    ]


def test_every_cell_has_the_figures_of_the_bricks(tab: Tab, module_daemon: Running) -> None:
    tab.open("workers")
    asked = module_daemon.ask("/bricks?by=worker&top=4096")["bricks"]
    shown = {(cells[0], cells[1]): [cells[2], *cells[4:]] for cells in cells_as_table(tab)}
    assert len(shown) == WORKERS * BRICKS
    assert shown == {
        (each["worker"], visible(each["name"])): [
            "≤ " * each["bounded"] + duration(each["mean_ns"]),
            *(count(each["count"]), duration(each["self_ns"])),
        ]
        for each in asked
    }


def test_the_slowest_worker_is_as_far_from_the_median_as_the_spread_of_the_brick(
    tab: Tab, module_daemon: Running
) -> None:
    tab.open("workers")
    most: dict[str, float] = {}
    for _, brick, _, relative, *_ in cells_as_table(tab):
        most[brick] = max(most.get(brick, 0), float(relative.removesuffix("x")))
    bricks = module_daemon.ask("/bricks")["bricks"]
    assert most == {visible(each["name"]): pytest.approx(each["spread"], rel=0.01, abs=0.02) for each in bricks}


def test_arrows_select_a_cell_and_enter_opens_its_latency(tab: Tab, module_daemon: Running) -> None:
    answered(tab, document(row("api/1", "a"), row("api/2", "a", 300, 5000), row("api/1", "b", self_ns=10)))
    answered(tab, {"slots": [], "words": [], "to": None}, "history")
    tab.open("workers")
    pressed(tab)
    assert described(tab) == "api/1, a: mean 100 ns, 0.50x the median of 2 workers of api, 7 spans, self time 1.0 µs"
    pressed(tab, "ArrowDown", "ArrowRight")
    assert described(tab) == "api/2, b: no figures"
    pressed(tab, "ArrowUp", "ArrowUp", "ArrowRight")
    assert described(tab) == "api/1, b: mean 100 ns, not compared with another worker, 7 spans, self time 10 ns"
    pressed(tab, "Home", "PageDown")
    assert described(tab) == "api/2, a: mean 300 ns, 1.50x the median of 2 workers of api, 7 spans, self time 5.0 µs"
    pressed(tab, "Enter")
    view, _, parameters = tab.place.partition("?")
    assert (view, parse_qs(parameters)) == ("latency", {"name": ["api/2"], "brick": ["a"]})


def test_a_chosen_worker_is_compared_with_its_service(tab: Tab) -> None:
    tab.open("workers?name=api/1")
    assert [row[0] for row in table(tab, "1 worker")] == ["api/1"]
    assert {cells[0] for cells in cells_as_table(tab)} == {f"{SERVICE}/{number}" for number in range(WORKERS)}


def test_what_the_heat_map_leaves_out_is_named(tab: Tab) -> None:
    answered(tab, document(row("api/0", "a"), bricks=9, share_percent=2.5))
    tab.open("workers")
    assert tab.main.get_by_text("9 cells with 2.5 % of the self time are not shown, and are in no median.").is_visible()


CUT = """async ([workers, bricks]) => {
    const { HeatCells } = await import("/web/heat_cells.js");
    const rows = [];
    const add = (worker, name, self_ns) => rows.push({ worker, name, self_ns, mean_ns: 1, bounded: false });
    for (let w = 0; w < workers; w++) add(`api/${w}`, "all", 1e9);
    for (let b = 1; b < bricks; b++) add("api/0", `${b}`, b);
    const cells = new HeatCells(rows);
    const first = cells.bricks.slice(0, 2).map(({ name }) => name);
    return [cells.bricks.length, cells.rows.length, cells.left.length, first];
}"""


@pytest.mark.parametrize(("bricks", "kept"), [(390, 390), (391, 390), (3000, 390)])
def test_bricks_with_the_least_self_time_are_left_out_of_a_heat_map_that_takes_too_long(
    modules: Tab, bricks: int, kept: int
) -> None:
    found = modules.page.evaluate(CUT, [256, bricks])
    assert found == [kept, 256 * kept, bricks - kept, ["all", str(bricks - 1)]]


def test_cells_without_a_column_are_named(tab: Tab) -> None:
    rows = [{**row("api/0", str(number), self_ns=number), "share_percent": 0.5} for number in range(100_001)]
    answered(tab, document(*rows, bricks=9, share_percent=2.5))
    tab.open("workers")
    text = "100,000 cells. Blank: no figures, or no second worker of the service to compare with."
    assert tab.main.get_by_text(f"{text} 10 cells with 3.0 % of the self time are not shown").is_visible()


def test_the_heat_map_asks_for_as_many_bricks_as_have_room(tabs: Callable[..., Tab]) -> None:
    for width, names, most in ((1300, "", 100 * WORKERS), (390, "", 30 * WORKERS), (390, "?name=api/1", 4096)):
        tab = tabs(viewport={"width": width, "height": 600})
        with tab.page.expect_request("**/v1/bricks?**") as asked:
            tab.open(f"workers{names}")
        assert parse_qs(urlsplit(asked.value.url).query)["top"] == [str(most)]


@pytest.mark.parametrize(("places", "shown"), [(100_000, True), (100_001, False)])
def test_a_heat_map_of_more_places_than_the_daemon_reads_quickly_is_left_out(
    tab: Tab, module_daemon: Running, places: int, shown: bool
) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    status = module_daemon.ask("/status")
    first, *others = status["workers"]
    rest = sum(each["paths"]["used"] for each in others)
    unread = {**first, "name": "api/9", "paths": None}
    status["workers"] = [{**first, "paths": {"used": places - rest, "room": 1}}, *others, unread]
    stream = f"event: status\ndata: {json.dumps(status)}\n\n"
    tab.page.route("**/v1/status/**", lambda route: route.fulfill(content_type="text/event-stream", body=stream))
    tab.open("workers")
    text = "The heat map is left out: for 100,001 places of bricks in 4 workers"
    assert tab.main.get_by_text(text).is_visible() != shown
    assert tab.main.get_by_role("application").is_visible() == shown
    assert any("/v1/bricks" in each for each in asked) == shown


def test_an_earlier_time_has_no_heat_map_and_asks_for_none(tab: Tab, module_daemon: Running) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    answered(tab, past(module_daemon.ask("/status")), "status")
    tab.open("workers?at=1700000000")
    assert tab.main.get_by_text("The heat map shows only now").is_visible()
    assert not tab.main.get_by_role("application").is_visible()
    assert not any("/v1/bricks" in each for each in asked)
    assert table(tab, "3 workers")[0][:2] == ["api/0", "live"]
    assert tab.page.get_by_text("a note about that time").is_visible()


def test_what_a_daemon_does_not_know_of_an_earlier_time_is_called_unknown_in_every_view(
    tab: Tab, module_daemon: Running
) -> None:
    status, health = module_daemon.ask("/status"), tab.page.locator("#line")
    answered(tab, {"slots": [], "words": [], "to": None}, "history")
    for known in (True, False):
        answered(tab, past(status, known=known), "status")
        for view in ("overview", "workers", "latency", "hang", "ledger"):
            tab.open(f"{view}?at=170000000{int(known)}")
            assert health.get_attribute("class") == ("bad" if known else "unknown")
            assert not tab.page.locator("#notice").is_visible()


def test_names_of_workers_and_bricks_stay_text(tab: Tab) -> None:
    names = ["<img src=x onerror=alert(1)>", "__proto__", "constructor", "\u202eabc", "two\nlines", "x" * 65536]
    rows = [row(worker, name) for worker in names for name in names]
    answered(tab, document(*rows))
    tab.open("workers")
    pressed(tab, *["ArrowDown"] * 3, *["ArrowRight"] * 4)
    shown = {name for cells in cells_as_table(tab) for name in cells[:2]}
    assert shown == {*names[:3], r"\u202eabc", r"two\nlines", "x" * 200 + "…"}
    assert tab.main.locator("img").count() == 0
    assert described(tab).startswith(("two", "x", "__", "con", "<img", r"\u202e"))


SHADES = """async (rows) => {
    const { HeatCells } = await import("/web/heat_cells.js");
    const cells = new HeatCells(rows);
    return Object.fromEntries(["relative", "self"].map((kind) =>
        [kind, [...cells.shades(kind)].map((shade) => Number.isNaN(shade) ? null : Math.round(100 * shade) / 100)]));
}"""


def shades(tab: Tab, *rows: Row) -> dict[str, list[float | None]]:
    found: dict[str, list[float | None]] = tab.page.evaluate(SHADES, list(rows))
    return found


def test_colours_are_relative_to_the_median_and_a_brick_of_one_worker_has_none(modules: Tab) -> None:
    means = [50, 100, 100, 200, 100 * 2**0.5]
    rows = [row(f"api/{n}", "a", mean, 10**n) for n, mean in enumerate(means)]  # type: ignore[arg-type]
    found = shades(modules, *rows, row("api/0", "alone", self_ns=1), row("api/0", "a", self_ns=1, bounded=True))
    assert found["relative"][::3] == [0, 0.5, 0.5, 1, 0.75]
    assert found["relative"][1:3] == [None, None], "one worker has nothing to be compared with"
    assert found["self"][::3] == [0, 0.25, 0.5, 0.75, 1]
    assert found["self"][4:6] == [None, None], "no figures"


def test_workers_are_in_natural_order_and_bricks_by_self_time(modules: Tab) -> None:
    rows = [row("api/10", "a", self_ns=1), row("api/9", "b", self_ns=5), row("api/9", "a", self_ns=3)]
    found = modules.page.evaluate(
        """async (rows) => {
            const { HeatCells } = await import("/web/heat_cells.js");
            const { workers, bricks } = new HeatCells(rows);
            return [workers, bricks.map(({ name, self }) => [name, self])];
        }""",
        rows,
    )
    assert found == [["api/9", "api/10"], [["b", 5], ["a", 4]]]


SENTENCES = """async ([rows, states]) => {
    const { HeatCells } = await import("/web/heat_cells.js");
    const cells = new HeatCells(rows, states);
    return Object.fromEntries(cells.workers.map((name, worker) => [name, cells.sentence(worker, 0)]));
}"""


def test_a_worker_is_compared_with_the_workers_of_its_service_that_did_not_die(modules: Tab) -> None:
    means = {"api/0": 100, "api/1": 300, "api/2": 600, "web/0": 5000, "web/1": 7000, "one/0": 9}
    states = [{"name": name, "service": name[:3], "state": "live"} for name in means]
    states[2]["state"] = "died"
    states[3]["state"] = "ended"
    found = modules.page.evaluate(SENTENCES, [[row(name, "a", mean) for name, mean in means.items()], states])
    assert {name: sentence.split(", ")[2] for name, sentence in found.items()} == {
        "api/0": "0.50x the median of 2 workers of api",
        "api/1": "1.50x the median of 2 workers of api",
        "api/2": "3.00x the median of 2 workers of api",
        "web/0": "0.83x the median of 2 workers of web",
        "web/1": "1.17x the median of 2 workers of web",
        "one/0": "not compared with another worker",
    }


def test_a_worker_that_an_active_problem_names_is_marked(tab: Tab, module_daemon: Running) -> None:
    (problem,) = module_daemon.ask("/status")["problems"]
    for view in ("overview", "workers"):
        tab.open(view)
        marked = tab.main.get_by_role("table", name=re.compile("orkers?$")).first.locator("tr.marked th")
        assert marked.all_text_contents() == problem["workers"] == ["api/1"], view
    heads = tab.main.get_by_role("columnheader").all_text_contents()
    assert "Recording problem" in heads
    assert "Problem" not in heads


def test_a_median_that_is_zero_compares_nothing(modules: Tab) -> None:
    assert shades(modules, row("a", "x", 0), row("b", "x", 0), row("c", "x", 5))["relative"] == [None, None, None]


# Draws a heat map once, and leaves functions that draw new figures, or scroll, some times.
PREPARED = """async ([workers, bricks]) => {
    const { HeatMap } = await import("/web/heat_map.js");
    const { HeatCells } = await import("/web/heat_cells.js");
    const rows = [];
    for (let w = 0; w < workers; w++) for (let b = 0; b < bricks; b++) {
        const figures = { bounded: false, count: 9, mean_ns: 1000 + ((w * 7919 + b) % 900), self_ns: 1e9 / (1 + b) };
        rows.push({ worker: `api/${w}`, name: `brick ${b}`, ...figures });
    }
    const map = new HeatMap("test", { open() {}, select() {} });
    document.getElementById("main").replaceChildren(map.element);
    const drawn = () => map.canvas.getContext("2d").getImageData(0, 0, 1, 1); // waits until all is drawn
    const show = () => map.show(new HeatCells(rows), { kind: "relative", scale: "diverging", marked: new Set() });
    const scroll = () => { map.box.scrollTop += 40; map._draw(); };
    window.draws = Object.fromEntries(Object.entries({ show, scroll }).map(([name, draw]) =>
        [name, (times) => { for (let n = 0; n < times; n++) { draw(); drawn(); } }]));
    window.draws.show(1);
}"""


def test_the_times_of_256_workers_in_400_bricks_are_drawn_in_less_than_a_tenth_of_a_second(modules: Tab) -> None:
    modules.page.evaluate(PREPARED, [256, 400])
    session = modules.page.context.new_cdp_session(modules.page)
    session.send("Performance.enable")

    def cpu_ms() -> float:
        """Return the processor time of the page: other processes do not count."""
        metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(metrics["ThreadTime"])

    for draw, times in (("show", 5), ("scroll", 10)):
        before = cpu_ms()
        modules.page.evaluate("([draw, times]) => window.draws[draw](times)", [draw, times])
        each = (cpu_ms() - before) / times
        assert 0 < each < FRAME_MS, draw  # measured: 42 ms for new figures, 5 ms for scrolling


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_scales_get_lighter_or_darker_all_along(modules: Tab, scheme: str) -> None:
    diverging, sequential = modules.page.evaluate(
        """async (theme) => {
            document.documentElement.dataset.theme = theme;
            const { scaleOf } = await import("/web/scales.js");
            const light = ([r, g, b]) => 0.2126 * r + 0.7152 * g + 0.0722 * b;
            const lights = (scale) => Array.from({ length: 11 }, (_, n) => light(scale.colour(n / 10)));
            return [lights(scaleOf("diverging")), lights(scaleOf("sequential"))];
        }""",
        scheme,
    )
    first, last = diverging[:6], diverging[5:]
    assert first == sorted(first, reverse=scheme == "dark")
    assert last == sorted(last, reverse=scheme == "light")
    assert sequential == sorted(sequential, reverse=scheme == "light")


def test_a_name_that_no_worker_has_never_becomes_all_workers(modules: Tab) -> None:
    found = modules.page.evaluate(
        """async () => {
            const { servicesOf } = await import("/web/services.js");
            const workers = [{ name: "api/0", service: "api" }, { name: "file", service: null }];
            return servicesOf(workers, ["api/0", "gone", "file", "api"]);
        }"""
    )
    assert found == ["api", "gone", "file"]
