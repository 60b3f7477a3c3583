"""A report in a browser: every view works from a file, without a daemon and without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Tab
from faults import Start
from page_workers import SHOWN, page_workers
from running import Running
from sandbox import apart
from test_report import data_of, report
from verbs import brickd

from brickd.base import escape, units

pytest_plugins = ["page_fixtures"]
pytestmark = pytest.mark.ci

NOT_IN_REPORT = "the report does not have this"
VIEWS = ("overview", "workers", "bricks", "latency", "tree", "numerics", "hang", "ledger")


@pytest.fixture(scope="module", autouse=True)
def isolated() -> Iterator[str]:
    """All tests look at the same workers."""
    with apart() as name:
        yield name


@pytest.fixture(scope="module", params=["of now", "of a recording"])
def url(
    request: pytest.FixtureRequest,
    module_worker: Start,
    module_daemon: Running,
    tmp_path_factory: pytest.TempPathFactory,
) -> str:
    """The URL of a report."""
    folder: Path = tmp_path_factory.mktemp("report")
    if request.param == "of now":
        page_workers(module_worker, module_daemon)
        report(folder / "r.html")
    else:
        assert brickd("record", "-o", str(folder / "run.brick"), "--duration", "100ms").returncode == 0
        report(folder / "r.html", str(folder / "run.brick"))
    return (folder / "r.html").as_uri()


def test_every_view_shows_its_documents_and_asks_for_nothing(tab: Tab) -> None:
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    for view in VIEWS:
        tab.open(view)
        tab.page.wait_for_function("() => document.getElementById('main').innerText")
        assert not tab.page.locator("#notice").is_visible(), tab.page.locator("#notice").inner_text()
    assert {each.partition("#")[0] for each in asked if not each.startswith("data:")} == {tab.url}
    assert tab.page.locator("#time").inner_text().startswith(("as of ", "recorded until "))


def test_the_choices_and_links_of_the_page_work_without_a_daemon(tab: Tab) -> None:
    tab.open("tree")
    tab.main.get_by_label("Layers").select_option("separate")
    tab.wait()
    tab.main.get_by_text("Nodes as a table").click()
    assert tab.main.get_by_role("row").filter(has_text="Layer 1").is_visible()
    tab.open("bricks")
    for row in range(tab.main.locator("tbody tr").count()):
        tab.open("bricks")
        tab.main.locator("tbody tr").nth(row).click()
        tab.wait()
        assert tab.place.startswith("latency?brick=")
        assert NOT_IN_REPORT not in tab.page.locator("#notice").inner_text()
    if (
        tab.page.locator("#time").inner_text().startswith("as of ")
    ):  # nothing was computed while the other one was recorded
        tab.open("numerics")
        tab.main.get_by_role("row").filter(has_text="differs:").click()
        tab.wait()
        assert tab.main.get_by_role("heading", name=SHOWN).is_visible()
    tab.open("overview?name=api/0&at=1000")
    assert tab.main.get_by_role("rowheader", name="api/1", exact=True).is_visible(), (
        "a report has one time, and all workers"
    )
    for label in ("Time", "One row for each", "Smallest share"):
        for view in VIEWS:
            tab.open(view)
            assert tab.main.get_by_label(label, exact=True).count() == 0


def test_the_picture_of_the_tree_has_the_colours_of_the_theme(tab: Tab) -> None:
    tab.open("tree")
    pixel = "() => String(document.querySelector('.flame canvas').getContext('2d').getImageData(2, 2, 1, 1).data)"
    light = tab.page.evaluate(pixel)
    tab.page.emulate_media(color_scheme="dark")
    tab.page.wait_for_function(f"(light) => ({pixel})() !== light", arg=light)
    tab.page.click("#theme")
    assert tab.page.evaluate(pixel) == light


def test_the_figures_are_those_of_the_document(tab: Tab) -> None:
    requests = {
        each["view"]: each["document"]
        for each in reversed(data_of(Path(tab.url.removeprefix("file://")).read_text())["requests"])
    }
    tab.open("bricks")
    shown = [row.locator("th, td").all_inner_texts() for row in tab.main.locator("tbody tr").all()]
    expected = [
        [
            escape.text(brick["name"]), escape.text(brick["category"]), units.count(brick["count"]),
            units.duration(brick["self_ns"]), units.percent(brick["share_percent"]),
            *("≤ " * brick["bounded"] + units.duration(brick[key]) for key in ("mean_ns", "p50_ns", "p99_ns")),
        ]
        for brick in requests["bricks"]["bricks"]
    ]  # fmt: skip
    assert sorted(cells[:8] for cells in shown) == sorted(expected)
    spans, lost = requests["status"]["ledger"]["spans"], requests["status"]["ledger"]["lost"]
    tab.open("ledger")
    parts = ("summarized", "rejected", "open", "abandoned", "unpublished")
    text = f"{spans['begun']:,} begun = " + " + ".join(f"{spans[part]:,} {part}" for part in parts)
    assert tab.main.get_by_text(text).is_visible()
    assert tab.main.get_by_text(f"lost: {lost['spans']:,} spans").is_visible()
    assert spans["begun"] > 0
