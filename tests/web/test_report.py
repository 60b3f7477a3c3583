"""The verb `report`: its file, the documents inside, and the page without a network."""

from __future__ import annotations

import json
import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from faults import Start
from page_workers import HOSTILE
from timed_recordings import TIMES, timed
from verbs import SPANS, brickd, document, started

from brickd.errors import BrickdError
from brickd.query.queries import HistoryQuery
from brickd.recording.replay import opened
from brickd.views import history
from brickd.web.assets import assets
from brickd.web.report import one_script
from brickd.web.report_documents import BRICKS_MAX, report_documents

_HOSTILE = f"""
with brick.span({HOSTILE!r}): pass
with brick.span("```"): pass
pause()
"""


_TWO_OF_THREE = """
with brick.span("once"): pass
pause()
while True:
    for name in "a", "b", "b":
        with brick.span(name): pass
    pause()
"""


def data_of(page: str) -> dict[str, Any]:
    """Return what a report has embedded."""
    (data,) = re.findall(r'<script type="application/json" id="documents">(.*?)</script>', page)
    found: dict[str, Any] = json.loads(data)
    return found


def report(file: Path, *arguments: str) -> str:
    """Make a report, and return its page."""
    made = brickd("report", *arguments, "-o", str(file))
    assert made.returncode == 0, made.stderr
    return file.read_text()


def test_a_report_has_the_documents_of_the_verbs(worker: Start, tmp_path: Path) -> None:
    started(worker, SPANS)
    file = tmp_path / "run.brick"
    assert brickd("record", "-o", str(file), "--duration", "100ms").returncode == 0
    requests = data_of(report(tmp_path / "r.html", str(file)))["requests"]
    found = {(each["view"], *each["parameters"].values()): each["document"] for each in requests}
    for key, verb in (
        (("status",), ("status",)),
        (("tree", True), ("tree", "--layers")),
        (("bricks", "worker", 4096), ("bricks", "--by", "worker", "--top", "4096")),
        (("history", "1h", "1m"), ("history", "--over", "1h", "--every", "1m")),
    ):
        embedded = found[key]
        embedded.pop("words")
        assert embedded == document(verb[0], str(file), *verb[1:])
    assert {("hang", "0.5s"), ("coverage",)} < found.keys()


def test_an_answer_that_fails_has_its_error_in_the_report(worker: Start, tmp_path: Path) -> None:
    started(worker, SPANS)
    requests = data_of(report(tmp_path / "r.html"))["requests"]
    (history,) = (each for each in requests if each["view"] == "history" and "brick" not in each["parameters"])
    assert history["document"] is None
    assert "brickd up" in history["error"]


@pytest.mark.parametrize(("seconds", "histories"), [(3600.0, BRICKS_MAX), (0.0, 0)])
def test_a_brick_without_a_history_says_so(seconds: float, histories: int) -> None:
    names = [f"brick {number}" for number in range(BRICKS_MAX + 2)]
    document = {"bricks": [{"name": name} for name in names], "rest": {"bricks": 0}}
    found = report_documents(lambda *_: document, lambda bricks: ((each, {}) for each in bricks), seconds)
    of_bricks = [each for each in found if "brick" in each.parameters]
    assert [each.parameters["brick"] for each in of_bricks] == names
    assert [each.document is not None for each in of_bricks] == [number < histories for number in range(len(names))]
    assert [bool(each.error) for each in of_bricks] == [number >= histories for number in range(len(names))]


def test_names_end_no_element_and_no_block(worker: Start, tmp_path: Path) -> None:
    started(worker, _HOSTILE)
    page = report(tmp_path / "r.html")
    assert page.count("</script>") == 2
    assert "<img" not in page
    assert HOSTILE in [brick["name"] for brick in data_of(page)["requests"][0]["document"]["bricks"]]
    outside, fence, text = [], "", brickd("report", "--md").stdout
    assert "````text" in text, "a fence is longer than any backticks inside"
    for line in text.splitlines():  # as in CommonMark
        if not fence and (opened := re.fullmatch("(`{3,})text", line)):
            fence = opened[1]
        elif fence and set(line) == {"`"} and len(line) >= len(fence):
            fence = ""
        elif not fence and line:
            outside.append(line)
    assert fence == ""
    assert [line for line in outside if not line.startswith(("# ", "## ", "made ", "history: "))] == []


def test_only_this_user_can_read_a_report_and_none_is_replaced(worker: Start, tmp_path: Path) -> None:
    started(worker, SPANS)
    file = tmp_path / "r.html"
    before = os.umask(0)
    try:
        report(file)
    finally:
        os.umask(before)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    file.write_text("mine")
    refused = brickd("report", "-o", str(file))
    assert refused.returncode == 2
    assert "already exists" in refused.stderr
    assert file.read_text() == "mine"
    report(file, "--force")
    assert [each.name for each in tmp_path.iterdir()] == ["r.html"]
    assert "<title>" in file.read_text()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("api/0",), "api/0 is not a recording"),
        (("-o", ""), "--output is empty"),
        (("-o", "-"), "-o - is only for --md"),
        (("gone.brick", "--md"), "gone.brick"),
        (("-o", "/nowhere/r.html"), "/nowhere: no such directory"),
    ],
)
@pytest.mark.usefixtures("prefix")
def test_mistakes_are_refused(arguments: tuple[str, ...], text: str) -> None:
    refused = brickd("report", *arguments)
    assert refused.returncode == 2
    assert text in refused.stderr


def test_the_script_has_every_module_and_no_import_or_export() -> None:
    modules = {name: asset.body.decode() for name, asset in assets().items() if name.endswith(".js")}
    script = one_script(modules)
    assert re.findall(r"^const (\w+)_js = ", script, re.MULTILINE).__len__() == len(modules)
    assert not re.search(r"^(import|export)\b", script, re.MULTILINE)
    assert script.index("const dom_js") < script.index("const table_js") < script.index("const main_js")


@pytest.mark.parametrize(
    "text", ['import * as all from "./a.js";', 'export { a } from "./a.js";', 'const a = "</script>";', "// <!-- "]
)
def test_a_module_that_cannot_be_in_one_script_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"main\.js: .* cannot be in a report"):
        one_script({"main.js": text, "a.js": ""})


def test_a_report_says_that_its_recording_was_cut(worker: Start, tmp_path: Path) -> None:
    started(worker, SPANS)
    whole, cut = tmp_path / "run.brick", tmp_path / "cut.brick"
    assert brickd("record", "-o", str(whole), "--duration", "100ms").returncode == 0
    cut.write_bytes(whole.read_bytes()[:-64])
    for name, text in (("run.brick", False), ("cut.brick", True)):
        notes = brickd("report", str(tmp_path / name), "--md").stdout.partition("## Notes")[2]
        assert "recorded on " in notes
        assert ("cut at byte" in notes) == text
    (status, *_) = data_of(report(tmp_path / "r.html", str(cut)))["requests"]
    assert any("cut at byte" in each for each in status["document"]["words"])


def test_the_latency_of_a_brick_is_that_of_its_own_history(worker: Start, tmp_path: Path) -> None:
    process = started(worker, _TWO_OF_THREE)

    def turn(_: int) -> None:
        process.go()
        process.paused()

    file = timed(tmp_path / "run.brick", turn)
    requests = data_of(report(tmp_path / "r.html", file))["requests"]
    found = {each["parameters"]["brick"]: each["document"] for each in requests if "brick" in each["parameters"]}
    for brick, count in (("a", 1), ("b", 2), ("once", 0)):
        found[brick].pop("words")
        assert found[brick] == document("history", file, "--over", "1h", "--every", "1m", "--brick", brick)
        assert sum(slot["count"] for slot in found[brick]["slots"]) == (len(TIMES) - 1) * count


def test_a_brick_without_a_history_fails_as_its_own_history_does(worker: Start, tmp_path: Path) -> None:
    process = started(worker, _TWO_OF_THREE)

    def turn(_: int) -> None:
        process.go()
        process.paused()

    many, one = timed(tmp_path / "many.brick", turn), timed(tmp_path / "one.brick", times=TIMES[:1])
    for file, known in ((many, True), (one, False)):
        query = HistoryQuery(over=3600.0, brick="gone")
        with opened([file]) as world:
            found = history.of_bricks(world, query.replaced(brick=None), ["a", "gone"])
            with pytest.raises(BrickdError) as failed:
                history.answer(world, query)
        assert str(found["gone"]) == str(failed.value)
        assert isinstance(found["a"], BrickdError) != known
