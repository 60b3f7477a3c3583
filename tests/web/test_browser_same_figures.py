"""Each view of the page shows the figures that `brickd VERB --json` prints about the same snapshot, in a browser.

The page gets the documents that the commands print, so all of its figures can be compared, also those that change from
snapshot to snapshot. `tests/api` has the fact that the daemon answers with these documents.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from browser import Tab
from faults import Start
from page_workers import LAYERS, WORKERS, page_workers
from running import Running
from sandbox import apart
from verbs import brickd, started

from brickd.base import escape
from brickd.base.units import count, duration, percent, relative, size

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

Row = dict[str, Any]
Documents = dict[str, Row]
FLAGS = ("layers",)
HELD = """
with brick.layer(3):
    with brick.span("outer"), brick.span("held"): pause()
"""


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", autouse=True)
def world(module_worker: Start, module_daemon: Running) -> None:
    page_workers(module_worker, module_daemon)
    started(module_worker, HELD, BRICKD_SERVICE="held")
    module_daemon.once("/status", lambda status: len(status["workers"]) == WORKERS + 1)


@pytest.fixture(scope="module")
def printed(world: None) -> Callable[[str], Row]:
    """Return what a command prints for a request, such as `bricks?top=3`. A command runs once."""
    kept: dict[str, Row] = {}

    def document(request: str) -> Row:
        if request not in kept:
            view, _, query = request.partition("?")
            options: list[str] = []
            for name, value in parse_qsl(query):
                options += [f"--{name}"] if name in FLAGS else [value] if name == "name" else [f"--{name}", value]
            found = brickd(view, *options, "--json")
            assert found.returncode in (0, 1), found.stderr
            kept[request] = {**json.loads(found.stdout), "words": ["a word of the daemon"]}
        return kept[request]

    return document


@pytest.fixture
def shown(tab: Tab, printed: Callable[[str], Row]) -> Callable[[str], Documents]:
    """Open a place, whose requests the commands answer, and return the documents by view."""
    asked: Documents = {}

    def answer(route: Any) -> None:
        url = urlsplit(route.request.url)
        view, stream = re.fullmatch(r"/v1/(\w+)(/stream)?", url.path).groups()  # type: ignore[union-attr]
        asked[view] = printed(f"{view}?{'' if stream else url.query}".removesuffix("?"))
        text = json.dumps(asked[view])
        if stream:
            route.fulfill(content_type="text/event-stream", body=f"event: {view}\ndata: {text}\n\n")
        else:
            route.fulfill(content_type="application/json", body=text)

    def open_place(place: str) -> Documents:
        tab.page.route("**/v1/**", answer)
        tab.open(place)
        tab.main.locator("details").evaluate_all("all => all.forEach((each) => { each.open = true; })")
        return asked

    return open_place


def tables(tab: Tab) -> dict[str, list[list[str]]]:
    """Return the cells of all tables of the view, by their captions."""
    return {
        table.locator("caption").text_content() or "": [
            row.locator("th, td").all_text_contents() for row in table.locator("tbody tr").all()
        ]
        for table in tab.main.locator("table:visible").all()
    }


def name(text: str | None) -> str:
    return "-" if text is None else str(escape.text(text))


def number(value: Any) -> str:
    return "-" if value is None else str(value)


def bound(row: Row, key: str) -> str:
    return ("≤ " if row["bounded"] else "") + duration(row[key])


def brick_order(row: Row) -> float:
    return float(-row["self_ns"])


def layer(row: Row) -> str:
    return "" if row["layer"] is None else f" layer {row['layer']}"


def open_now(worker: Row) -> str:
    spans = (f"{name(each['brick'])}{layer(each)} {duration(each['since_ns'])}" for each in worker["open"] or ())
    return ", ".join(spans) or "-"


def reasons(counts: dict[str, int]) -> str:
    return ", ".join(f"{why.replace('_', ' ')} {count(n)}" for why, n in counts.items() if n) or "-"


def evidence(document: Row) -> list[list[str]]:
    return [
        [
            *(each["service"], each["evidence"], each["verdict"], count(each["compared"]), count(each["looked_at"])),
            reasons({**each["not_comparable"], **each["unknown"]}),
            ": ".join(text for text in (each["why"], each["command"]) if text) or "-",
        ]
        for each in document["evidence"]
    ]


def test_the_overview_has_the_figures_of_the_status(tab: Tab, shown: Callable[[str], Documents]) -> None:
    status = shown("overview")["status"]
    whole = sum(each["self_ns"] for each in status["bricks"])
    found = tables(tab)
    assert found.pop("What was compared") == evidence(status)
    assert found.pop("Workers") == [
        [
            *(each["name"], each["state"], str(each["pid"]), count(each["ledger"]["spans"]["summarized"])),
            *(count(each["lost"]), percent(each["cpu_percent"]), open_now(each)),
        ]
        for each in status["workers"]
    ]
    ((title, bricks),) = found.items()
    assert bricks == [
        [
            *(name(each["name"]), name(each["category"]), duration(each["self_ns"])),
            *(percent(100 * each["self_ns"] / whole if whole else 0), bound(each, "p50_ns"), bound(each, "p99_ns")),
            each["worst_worker"] or "-",
        ]
        for each in status["bricks"]
    ]
    assert title == f"Bricks with the most self time, last {duration(status['over_ns'])}"
    (problem,) = status["problems"]
    assert tab.main.locator(".problems li p").all_text_contents()[:3] == [
        name(problem["text"]),
        f"Next: {problem['command']}, or see numerics",
        f"{problem['kind']}, id {problem['id']}, since {problem['since']}",
    ]
    assert tab.page.locator("#line").inner_text() == "1 problem"


def test_the_workers_and_the_cells_have_the_figures_of_the_commands(
    tab: Tab, shown: Callable[[str], Documents]
) -> None:
    documents = shown("workers")
    found = tables(tab)
    assert found[f"{WORKERS + 1} workers"] == [
        [
            *(each["name"], each["state"], str(each["pid"]), count(each["threads"])),
            *(count(each["ledger"]["spans"]["summarized"]), count(each["lost"]), percent(each["cpu_percent"])),
            *(size(each["rss_bytes"]), open_now(each), count(each["pending"]), each["problem"] or "-"),
        ]
        for each in documents["status"]["workers"]
    ]
    means: dict[tuple[str, bool], list[float]] = {}
    for each in documents["bricks"]["bricks"]:
        means.setdefault((each["name"], each["bounded"]), []).append(each["mean_ns"])
    cells = found["Time of each worker in each brick"]
    assert sorted(cells) == sorted(
        [
            *(each["worker"], name(each["name"]), bound(each, "mean_ns")),
            times(each["mean_ns"], means[each["name"], each["bounded"]]),
            *(count(each["count"]), duration(each["self_ns"])),
        ]
        for each in documents["bricks"]["bricks"]
    )


def times(mean: float, means: list[float]) -> str:
    assert WORKERS == 3
    return f"{mean / sorted(means)[1]:.2f}x" if len(means) == WORKERS else "-"


@pytest.mark.parametrize("by", ["brick", "worker", "service", "layer"])
def test_the_bricks_have_the_figures_of_the_command(tab: Tab, shown: Callable[[str], Documents], by: str) -> None:
    bricks = shown("bricks" if by == "brick" else f"bricks?by={by}")["bricks"]
    (rows,) = tables(tab).values()
    expected = [
        [
            name(each["name"]),
            *(() if by == "brick" else (number(each[by]),)),
            *(name(each["category"]), count(each["count"]), duration(each["self_ns"]), percent(each["share_percent"])),
            *(bound(each, key) for key in ("mean_ns", "p50_ns", "p99_ns")),
            *(each["worst_worker"] or "-", "-" if each["spread"] is None else f"{each['spread']:.2f}x"),
        ]
        for each in sorted(bricks["bricks"], key=brick_order)
    ]
    assert rows == expected
    assert len(rows) >= (LAYERS if by == "layer" else 4)


def test_the_latency_has_the_figures_of_the_history(
    tab: Tab, shown: Callable[[str], Documents], module_daemon: Running
) -> None:
    module_daemon.once("/history?over=1h", lambda document: document["slots"])
    slots = shown("latency")["history"]["slots"]
    (rows,) = tables(tab).values()
    assert rows == [
        [
            *(each["from"][:19].replace("T", " "), each["to"][11:19], count(each["workers"]), count(each["count"])),
            *(count(each["count_per_second"]), *(duration(each[f"{key}_ns"]) for key in ("p50", "p99", "self"))),
            count(each["lost"]),
        ]
        for each in slots
    ]
    last = slots[-1]
    covers = 1e9 * (datetime.fromisoformat(last["to"]) - datetime.fromisoformat(last["from"])).total_seconds()
    part = "" if last["over_ns"] > 0.95 * covers else f" (slots cover {duration(last['over_ns'])} of it)"
    assert tab.main.locator(".figures").inner_text() == (
        f"{last['from'][:10]} {last['from'][11:19]} to {last['to'][11:19]} UTC{part}:"
        f" median {duration(last['p50_ns'])}, p99 {duration(last['p99_ns'])},"
        f" {count(last['count_per_second'])} spans per second,"
        f" {last['workers']} worker{'s' * (last['workers'] != 1)}, {count(last['lost'])} lost"
    )


@pytest.mark.parametrize("layers", ["folded", "separate"])
def test_the_tree_has_the_figures_of_the_command(tab: Tab, shown: Callable[[str], Documents], layers: str) -> None:
    tree = shown("tree" if layers == "folded" else "tree?layers=separate")["tree"]
    (rows,) = tables(tab).values()
    assert rows == [
        [
            "  " * each["depth"] + name(each["name"]),
            *(each["kind"], layer_text(each)),
            *(bound(each, "total_ns"), percent(each["share_percent"]), bound(each, "self_ns"), count(each["count"])),
            *(bound(each, "p50_ns"), bound(each, "p99_ns")),
        ]
        for each in tree["nodes"]
    ]
    assert tab.main.locator("#node dd").all_text_contents() == [duration(tree["recorded_ns"])]


def layer_text(node: Row) -> str:
    if node["layer"] is not None:
        return str(node["layer"])
    return f"{node['layers']} layer{'s' * (node['layers'] != 1)}" if node["layers"] else "-"


def test_the_numerics_have_the_figures_of_the_coverage(tab: Tab, shown: Callable[[str], Documents]) -> None:
    coverage = shown("numerics")["coverage"]
    found = tables(tab)
    assert found.pop("Verdicts") == evidence(coverage)
    missing = found.pop("Not compared")
    assert missing == [
        [each["service"], f"fingerprints: {why.replace('_', ' ')}", count(n)]
        for each in coverage["services"]
        for why, n in each["unseen"].items()
        if n
    ]
    ((title, sites),) = found.items()
    assert title == f"{len(coverage['sites'])} sites of {len(coverage['sites'])}"
    texts: dict[str, Callable[[Row], str]] = {
        "differs": lambda site: f"differs: {count(site['unlike'])} of {count(site['compared'])}",
        "compared": lambda site: f"compared: {count(site['compared'])}",
        "alone": lambda _: "no other worker had the same",
    }
    expected = []
    for site in coverage["sites"]:
        text = texts[site["state"]](site)
        compared = site["evidence"] == ["input"]
        first = "first difference" if site["state"] == "differs" else ""
        expected.append(
            [
                *(name(site["kernel"]), str(site["layer"]), "-", text if compared else "-", "-", "-"),
                *("-" if compared else text, first, name(site["category"]), site["service"]),
            ]
        )
    assert sites == expected


def test_an_opened_site_has_the_figures_of_its_finding(tab: Tab, shown: Callable[[str], Documents]) -> None:
    (finding,) = shown("numerics")["coverage"]["findings"]
    tab.main.get_by_role("row").filter(has_text="differs:").click()
    tab.wait()
    assert json.loads(tab.choices["site"]) == [finding["service"], finding["kernel"], finding["layer"]]
    terms = dict(
        zip(
            tab.main.locator("[aria-label='Opened site'] dt").all_text_contents(),
            tab.main.locator("[aria-label='Opened site'] dd").all_text_contents(),
            strict=True,
        )
    )
    outliers = ", ".join(f"{worker} in {n} cases" for worker, n in finding["outliers"].items())
    assert terms == {
        "Judged": "the difference begins here: all inputs were equal",
        "Relative error": relative(finding["relative_error"]) if finding["relative_error"] is not None else "-",
        "Cases": f"{finding['cases']} cases, of which: {outliers}",
        "Since, latest": f"{finding['since']}, {finding['latest']}",
    }
    found = tables(tab)
    for title, case in (("First case", finding["first"]), ("Newest case", finding["newest"])):
        rows = {field: values for field, *values in found[f"{title}, {case['at']}"]}
        for side, fingerprint in enumerate((case["against"], case["other"])):
            for field, value in fingerprint.items():
                if field not in ("uuid", "inputs"):
                    label = field.replace("_", " ")
                    assert rows.get(label, rows.get(f"output {label}"))[side] == field_text(value), field  # type: ignore[index]
            for n, given in enumerate(fingerprint["inputs"], start=1):
                for field, value in given.items():
                    assert rows[f"input {n} {field.replace('_', ' ')}"][side] == field_text(value), field


def field_text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) and value.is_integer() else escape.text(str(value))


def test_the_view_of_what_hangs_has_the_figures_of_the_command(tab: Tab, shown: Callable[[str], Documents]) -> None:
    hang = shown("hang")["hang"]
    verdicts = [f"{each['service']}: {name(each['text'])}" for each in hang["services"]]
    assert sorted(tab.main.locator("ul.problems li").all_text_contents()) == sorted(verdicts)
    found = tables(tab)
    odd = [{**worker, "service": each["service"]} for each in hang["services"] for worker in each["odd"]]
    if odd:
        assert found.pop("Workers that are named") == [
            [
                *(each["worker"], each["service"], each["state"], duration(each["since_ns"]), name(each["brick"])),
                *(number(each["layer"]), name(each["within"])),
            ]
            for each in odd
        ]
    ((title, spans),) = found.items()
    named = {each["worker"] for each in odd}
    assert spans == [
        [
            *(each["worker"], number(each["lane"]), number(each["thread"]), each["state"], duration(each["since_ns"])),
            *(name(each["brick"]), number(each["layer"]), count(each["open"])),
            " > ".join(map(name, each["path"])) or "-",
        ]
        for each in sorted(hang["open"], key=lambda each: each["worker"] not in named)
    ]
    opened = sum(each["brick"] is not None for each in hang["open"])
    assert title == f"{opened} thread{'s' * (opened != 1)} with open spans"


def test_the_ledger_has_the_figures_of_the_status(tab: Tab, shown: Callable[[str], Documents]) -> None:
    status = shown("ledger")["status"]
    ledger, parts = status["ledger"], ("summarized", "rejected", "open", "abandoned", "unpublished")
    spans, lost = ledger["spans"], ledger["lost"]
    assert tab.main.locator("section p").all_text_contents() == [
        f"{spans['begun']:,} begun = " + " + ".join(f"{spans[part]:,} {part}" for part in parts),
        f"lost: {lost['spans']:,} spans, {lost['details']:,} details, {lost['events']:,} events",
        f"not recorded: {spans['nested']:,} nested, {spans['no_lane']:,} without a lane;"
        f" {spans['unmatched']:,} ends without a begin; {spans['removed']:,} of removed workers, in no total",
    ]
    found = tables(tab)
    assert found["Records"] == [
        [
            *(kind, f"{each['consumed']:,}", f"{each['in_ring']:,}"),
            ", ".join(f"{why} {n:,}" for why, n in each["dropped"].items() if n) or "0",
            *(f"{each['lost_with_daemon']:,}", f"{each['removed']:,}"),
        ]
        for kind in ("details", "events")
        for each in (ledger[kind],)
    ]
    assert found["Workers"] == [
        [
            *(each["name"], each["state"], count(each["ledger"]["spans"]["begun"])),
            *(count(each["ledger"]["spans"][part]) for part in parts),
            *(count(each["lost"]), each["problem"] or "-"),
        ]
        for each in status["workers"]
    ]
