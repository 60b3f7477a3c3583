"""The screen of `brickd top`, drawn from the answers about real workers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SHM
from faults import Start
from made_up_workers import HOSTILE
from running import running
from serving import Daemon
from timed_recordings import TIMES, timed
from top_screens import PLAIN, Top
from verbs import LOSING, SPANS, brickd, started

from brickd.base.units import NO_WORKERS, SECOND
from brickd.screens.screen import Screen
from brickd.screens.status import verdict
from brickd.shm.segment import open_segment
from brickd.shm.segment_files import find
from brickd.top import lines
from brickd.top.asker import Asker
from brickd.top.draw import draw
from brickd.top.frame import KeptAnswer
from brickd.top.header import Cells
from brickd.top.keys import help_lines
from brickd.top.panel_rows import Look
from brickd.top.panels import PANELS
from brickd.top.source import LiveSource, Request, opened
from brickd.top.state import DAY, HOUR, State
from brickd.views.fetch_answer import FetchedAnswer

SIZES = [
    Cells(80, 24),
    Cells(200, 50),
    Cells(20, 10),
    Cells(20, 24),
    Cells(200, 5),
    Cells(1, 1),
    Cells(3, 2),
    Cells(80, 0),
]
BRICKS = """
for number in range(300):
    with brick.span(f"n{number}"): pass
pause()
"""


def test_the_screen_shows_services_workers_and_bricks(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    screen = Top().lines
    assert screen[0].startswith("brickd top  no problem  ")
    assert "  shared memory  " in screen[0]
    assert screen[1].split()[:4] == ["WORKER", "STATE", "SPANS", "LOST"]
    assert screen[2].split()[:3] == ["api", "1", "live"]
    assert screen[3].split()[:4] == ["api/0", "live", "200", "0"]
    assert screen[4] == "> BRICKS, by self"
    assert {line.split()[0] for line in screen[6:8]} == {"norm", "gemm"}
    assert screen[-1].startswith("? help  q quit")
    assert len(screen) == 24


@pytest.mark.usefixtures("prefix")
@pytest.mark.parametrize("panel", [name for name in PANELS if name != "diff"])
@pytest.mark.parametrize("size", [Cells(80, 24), Cells(200, 50)], ids=["narrow", "wide"])
def test_without_workers_every_panel_says_so_once_and_names_the_next_command(panel: str, size: Cells) -> None:
    top = Top(state=State(panel=panel), size=size)
    assert top.lines[0].startswith("brickd top  no workers  ")
    assert ("no workers", "yellow") in top.drawn.lines[0]
    assert top.text.count(NO_WORKERS) == 1
    assert size.width > 80 or top.lines[1].startswith(f"> {panel.upper()}")  # a list without rows has no title
    assert "no problem" not in top.text
    assert "defect" not in top.text


@pytest.mark.usefixtures("prefix")
def test_the_log_of_events_needs_a_daemon() -> None:
    assert "! the log of events needs a daemon (start one: brickd up -d)" in Top(state=State(panel="events")).lines


def test_a_list_without_problems_has_the_verdict_of_the_verb_status(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    top = Top(state=State(panel="problems", focus="workers"), size=Cells(200, 50))
    document = top.frame.status.document
    assert document is not None
    unproven = {"service": "api", "class": "outputs", "verdict": "unproven", "recorded": True}
    for evidence, text, colour in (([], "no problem", "green"), ([unproven], "no problem, 1 unproven", "yellow")):
        changed = {**document, "evidence": evidence}
        drawn = draw(top.state, top.frame._replace(status=KeptAnswer(changed)), top.size, Look())
        found = [line for line in drawn.lines if (text, colour) in line]
        assert len(found) == 3  # the header, the problems at the right, the panel


def test_each_panel_shows_the_lines_of_its_verb(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    for panel, verb in (("tree", "tree"), ("workers", "workers"), ("numerics", "coverage")):
        wanted = brickd(verb, COLUMNS="80").stdout.splitlines()
        rows = Top(state=State(panel=panel)).lines
        timeless = [line[:20].rstrip() for line in wanted]
        assert [line[:20].rstrip() for line in rows[rows.index(f"> {panel.upper()}") + 1 :]][: len(wanted)] == timeless


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_screen_has_exactly_its_size(worker: Start, size: Cells) -> None:
    started(
        worker,
        f"names = {[HOSTILE, '模型' * 30, 'x' * 200]!r}\n"
        + """
for name in names:
    with brick.span(name): pass
brick.span("open").start()
pause()
""",
        BRICKD_SERVICE="模型=\x1b[2J",
    )
    for panel in ("bricks", "problems", "events"):
        top = Top(state=State(panel=panel), size=size)
        assert len(top.drawn.lines) == size.height
        assert all(lines.width(line) <= size.width for line in top.drawn.lines)
        assert all(lines.text(line).isprintable() for line in top.drawn.lines)


def test_keys_choose_sort_and_filter(worker: Start) -> None:
    for _ in range(2):
        started(worker, BRICKD_SERVICE="api")
    top = Top()
    assert "> BRICKS of api/1, by self" in top.press("tab", "down", "down", "enter", "tab") or "api/1" in top.text
    assert "BRICKS, by total" in "\n".join(top.press("escape", "1", "s"))
    names = [line.split()[0] for line in top.press("1", "s")[-18:-1] if line.startswith(("norm", "gemm"))]
    assert names
    filtered = top.press("/", "g", "e", "m", "enter")
    assert not [line for line in filtered if line.startswith("norm")]
    assert [line for line in filtered if line.startswith("gemm")]
    reverse = [line[:4] for line in top.press("escape", "r") if line.startswith(("norm", "gemm"))]
    assert reverse == [line[:4] for line in top.press("r") if line.startswith(("norm", "gemm"))][::-1]


def test_a_filter_shows_no_rows_until_all_rows_have_arrived(worker: Start) -> None:
    started(worker, BRICKS, BRICKD_SERVICE="api")
    top = Top(state=State(sort="name"))  # n99 is not among the first 100 rows
    top.state = top.state._replace(filter="n99")
    top.draw()
    assert "waiting for the answer" in top.lines
    top.ask()
    assert "waiting for the answer" not in top.lines
    assert [line for line in top.lines if line.startswith("n99 ")]


def test_a_filter_searches_whole_names_and_no_colours(worker: Start) -> None:
    started(
        worker,
        """
for number in range(9):
    with brick.span(f"{'model.' * 12}layers.{number:02}{'.projection' * 6}"): pass
pause()
""",
        BRICKD_SERVICE="api",
    )
    started(worker, LOSING, BRICKD_SERVICE="lossy")
    for panel in ("bricks", "tree"):
        top = Top(state=State(subject="api", panel=panel))
        assert not any("layers.07" in line for line in top.lines)
        top.state = top.state._replace(filter="Layers.07")
        top.ask()
        (row,) = top.drawn.shown.lists["panel"].texts
        assert "model." in row
        top.state = top.state._replace(filter="layers.77")
        top.ask()
        assert "no row has 'layers.77'" in top.lines
    top = Top(state=State(panel="problems"))
    for typed, found in (("[33m", False), ("[0m", False), ("! ", True)):
        top.state = top.state._replace(filter=typed)
        top.ask()
        drawn = draw(top.state, top.frame, top.size)  # with colours
        texts = drawn.shown.lists["panel"].texts
        assert any("\x1b[33m" in each for each in texts) == found
        assert (texts == [f"no row has '{typed}'"]) != found


def test_a_filter_finds_all_rows_of_a_problem(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    top = Top(state=State(panel="problems"), size=Cells(40, 50))
    shown = top.drawn.shown.lists["panel"]
    whole = [text for key, text in zip(shown.keys, shown.texts, strict=True) if key == shown.keys[0]]
    assert len(whole) > 2
    words = " ".join(each.strip() for each in whole).split()
    top.state = top.state._replace(filter=" ".join(words[1:10]))  # over the end of a line
    assert not any(top.state.filter in each for each in whole)
    top.ask()
    assert top.drawn.shown.lists["panel"].texts == whole


def test_a_cut_list_says_which_rows_are_shown(worker: Start) -> None:
    started(worker, BRICKS, BRICKD_SERVICE="api")
    top = Top(size=Cells(80, 12))
    assert "1-5 of 300" in top.text  # 100 rows, and the line that counts the others
    assert len(top.drawn.shown.lists["panel"].keys) == 101
    top.state = top.state._replace(all_rows=True)
    top.draw()
    assert "waiting for the answer" not in top.lines  # the first rows stay until the others arrive
    assert "296-300 of 300" in "\n".join(top.press("end"))
    assert top.drawn.shown.lists["panel"].place.row == 299
    assert "295-299 of 300" in "\n".join(top.press(*["up"] * 5))
    assert "1-5 of 300" in "\n".join(top.press("home"))
    assert len(top.drawn.shown.lists["panel"].keys) == 101


def test_the_header_says_how_rare_answers_are_that_take_long(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    top = Top(state=State(interval=2.0))
    for spacing, shown in ((2.0, "every 2s"), (2.1, "every 2.1 s, not 2s"), (14.0, "every 14.0 s, not 2s")):
        frame = top.frame._replace(spacing=spacing)
        header = draw(top.state, frame, Cells(120, 24), PLAIN).lines[0]
        assert lines.text(header).endswith(f"  {shown}")


def test_the_header_has_the_verdict_of_the_verb_status(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    top = Top(size=Cells(200, 24))
    document = top.frame.status.document
    assert document is not None
    unproven = {"service": "api", "class": "outputs", "verdict": "unproven", "recorded": True}
    known = {"problems": [], "silenced": document["problems"]}
    for changes, past in (
        ({}, False),
        ({"evidence": [unproven]}, False),
        ({**known, "evidence": [unproven]}, False),
        ({"problems": []}, True),
    ):
        changed = {**document, **changes}
        text, colour = verdict(changed, past=past)
        drawn = draw(top.state, top.frame._replace(status=KeptAnswer(changed)), top.size, PLAIN)
        assert (text, colour) in drawn.lines[0], changes
    assert "lost: " in text


def test_cut_problems_say_which_of_them_are_shown(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    top = Top()
    document = top.frame.status.document
    assert document is not None
    problem = document["problems"][0]
    for count, cut in ((3, ""), (4, "  1-3 of 4")):
        problems = [{**problem, "id": f"{number:08x}"} for number in range(count)]
        top.frame = top.frame._replace(status=top.frame.status._replace(document={**document, "problems": problems}))
        top.draw()
        assert [line[:11] for line in top.lines if line.startswith("! 000")] == [f"! {n:08x} " for n in range(3)]
        (last,) = (line for line in top.lines if line.startswith("! 00000002"))
        assert last.endswith(cut or "…")


def test_the_rates_are_those_of_the_last_hour_or_of_the_last_day(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    top = Top(state=State(panel="history"))
    assert top.lines[1].endswith("SPANS/S, HOUR")
    assert top.frame.histories["api"]["every_ns"] == HOUR / 12 * SECOND
    of_the_hour = top.frame
    screen = top.press("h")
    assert screen[1].endswith("SPANS/S, DAY")
    assert top.frame.histories["api"]["every_ns"] == DAY / 12 * SECOND
    assert top.frame.panel.document is not None
    assert top.frame.panel.document["every_ns"] == 3600 * SECOND
    assert top.asker.frame(State(), ["api"], tick=False).histories == {}  # those of the day are not those of an hour
    assert top.asker.more(State(), ["api"]) is not None
    assert top.press("h")[1].endswith("SPANS/S, HOUR")
    assert of_the_hour.panel.document is not None
    assert of_the_hour.panel.document["every_ns"] == 300 * SECOND


def test_a_lost_record_has_a_sign_without_colours(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    top = Top(state=State(panel="problems"))
    assert "PROBLEM" in top.lines[0]
    assert [line[:1] for line in top.lines if "live" in line] == ["!", "!"]
    problem = top.drawn.shown.lists["problems"].selected
    assert problem is not None
    assert problem in top.text


def test_picked_workers_are_compared(worker: Start) -> None:
    for _ in range(2):
        started(worker, BRICKD_SERVICE="api")
    top = Top()
    screen = top.press("tab", "down", "x", "down", "x", "d")
    assert "> DIFF of api/0, api/1" in screen
    assert any(line.startswith(" *  api/0") for line in screen)
    assert any(line.startswith("~ no fingerprints of api/0 and api/1") for line in screen)
    document = top.frame.panel.document
    assert document is not None
    assert [row.sign for row in PANELS["diff"].draw(document, Screen(80, colour=True), top.state).rows[:2]] == ["~", ""]


def test_the_help_replaces_all_lists_and_scrolls(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    top = Top()
    first = top.press("?")
    assert first[1].startswith("> KEYS")
    assert first[1].endswith(f"1-21 of {len(help_lines(80))}")
    assert first[2:23] == help_lines(80)[:21]
    assert top.press("end")[2:23] == help_lines(80)[-21:]
    assert top.press("/")[-1] == "filter: _"
    top.press("enter", "tab", "?", "?")
    assert not any("KEYS" in line for line in top.lines)
    assert top.press("?")[2] == help_lines(80)[0]


@pytest.mark.usefixtures("prefix")
def test_a_key_at_the_end_of_the_last_line_is_never_cut() -> None:
    top = Top()
    found = []
    for width in range(20, 130):
        top.size = Cells(width, 24)
        top.draw()
        found.append(top.lines[-1].split("  "))
    longest = found[-1]
    assert longest[-1] == "d diff"
    assert found[0] == longest[:2] == ["? help", "q quit"]
    assert all(keys == longest[: len(keys)] for keys in found)


@pytest.mark.ci
def test_the_screen_goes_on_without_its_daemon_and_with_a_new_one(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    with running() as daemon:
        top = Top()
        assert "  daemon  " in top.lines[0]
        daemon.kill()
    top.ask()
    assert "  shared memory  " in top.lines[0]
    assert top.lines[1].startswith("~ the daemon at ")
    assert any(line.startswith("norm") for line in top.lines)
    with running():
        top.ask()
        assert "  daemon  " in top.lines[0]


def test_an_error_keeps_the_last_data_and_says_how_old_it_is(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    process = started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="7")
    top = Top(state=State(subject="api/7"))
    process.kill()
    for file in find(prefix):
        with open_segment(file) as segment:
            if segment.read().header["pid"] == process.pid:
                (SHM / file).unlink()
    top.ask()
    (error,) = [line for line in top.lines if line.startswith("! no worker or service api/7")]
    assert "; the data is " in error
    assert error.endswith(" old")
    assert any(line.startswith("norm") for line in top.lines)


def test_a_past_time_shows_events_for_a_panel_without_a_past(worker: Start, daemon: Daemon) -> None:
    started(worker, BRICKD_SERVICE="api")
    top = Top(state=State(panel="stragglers"))
    daemon.events.add("worker_found", "api/0 was found", service="api", worker="api/0")
    screen = top.press("left")
    assert "AT " in screen[0]
    assert screen[1].startswith("! nothing is kept of")
    assert "~ stragglers cannot show a past time: these are the events until then" in screen
    assert "> EVENTS" in screen
    assert "the log has no events until this time" in screen
    assert any("api/0 was found" in line for line in Top(state=State(panel="events")).lines)
    assert "  problems not known  " in screen[0]
    assert not any("api/0" in line and "live" in line for line in screen), "the workers of now are not those of then"
    older = {key: value for key, value in (top.frame.status.document or {}).items() if key != "at"}
    top.frame = top.frame._replace(status=top.frame.status._replace(error=None, document=older))
    top.draw()
    assert top.lines[1].startswith("~ the workers and problems are the present "), "an older daemon answers about now"


@pytest.mark.usefixtures("prefix")
def test_the_worker_list_asks_for_the_histories_of_rows_on_the_screen_only(worker: Start) -> None:
    for _ in range(6):
        started(worker, BRICKD_SERVICE="api")
    top = Top()
    assert top.drawn.trends == ["api", "api/0", "api/1", "api/2", "api/3"]
    assert Top(size=Cells(30, 24)).drawn.trends[:1] == ["api"]


def test_every_panel_draws_real_answers(worker: Start, daemon: Daemon) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    asker = Asker(LiveSource())
    for panel in PANELS:
        frame = asker.frame(State(panel=panel), ())
        assert frame.status.error is None
        assert panel in ("stragglers", "diff") or frame.panel.error is None, (panel, frame.panel.error)
        assert Top(state=State(panel=panel)).drawn.lines


def test_the_cursor_moves_all_panels_of_a_recording(worker: Start, tmp_path: Path) -> None:
    started(worker, BRICKD_SERVICE="api")
    with opened([timed(tmp_path / "run.brick")]) as source:
        top = Top(source)
        assert top.lines[0].endswith("  recording")
        assert "AT " not in top.lines[0]
        seen = [top.drawn.shown.at]
        for _ in range(5):
            top.press("left")
            seen.append(top.drawn.shown.at)
        assert seen == [each / 1e9 for each in (*TIMES[::-1], TIMES[0], TIMES[0])]
        assert "AT " in top.lines[0]
        assert next(line for line in top.press("9") if "look " in line).endswith("look 0")
        for _ in range(2):
            top.press("right")
        assert [line[-6:] for line in top.lines if "look " in line] == ["look 2", "look 1", "look 0"]
        assert top.press("right")[-1].startswith("? help")
        assert (top.state.cursor, top.drawn.shown.at) == (None, TIMES[3] / 1e9)


def test_a_wide_screen_has_problems_and_the_ledger_at_the_right(worker: Start) -> None:
    started(worker, LOSING, BRICKD_SERVICE="api")
    top = Top(size=Cells(200, 50))
    left, right = zip(*(line.split(" │ ") for line in top.lines[1:] if " │ " in line), strict=True)
    assert left[2].startswith("!   api/0  live")
    assert right[0].strip() == "PROBLEMS"
    assert any(line.startswith("! ") for line in right)
    assert [line for line in right if line.startswith("all ")] != []
    assert len(Top(size=Cells(200, 20)).lines) == 20
    assert " │ " not in Top(size=Cells(139, 50)).text


def test_a_change_of_the_panel_asks_for_no_status_and_needs_no_history(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    asker = Asker(LiveSource())
    before = asker.frame(State(), ["api"])
    assert asker.frame(State(panel="tree"), ["api"], tick=False).status is before.status
    after = asker.frame(State(panel="tree", cursor=before.newest - 60), ["api"], tick=False)
    assert after.status is not before.status
    assert after.histories == {}


def test_a_frame_of_a_recording_is_asked_for_once(worker: Start, tmp_path: Path) -> None:
    started(worker, BRICKD_SERVICE="api")
    with opened([timed(tmp_path / "run.brick")]) as source:
        asker = Asker(source)
        first = asker.frame(State(), ["api"])
        assert not asker.is_complete(["api"])
        more = asker.more(State(), ["api"])
        assert more is not None
        assert more.histories["api"]["slots"]
        assert asker.is_complete(["api"])
        assert asker.more(State(), ["api"]) is None
        again = asker.frame(State(), ["api"])
        assert (again.status is first.status, again.panel is first.panel) == (True, True)
        assert asker.frame(State(panel="tree"), ["api"]).panel is not first.panel
        assert asker.frame(State(cursor=1.0), []).histories == {}
        assert not asker.is_complete(["api"])


def test_a_late_answer_is_called_late(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    top = Top()
    late = draw(top.state, top.frame, Cells(80, 24), PLAIN, late=6.0)
    assert lines.text(late.lines[1]) == "~ no answer for 6.0 s"
    assert len(late.lines) == 24
    first = draw(State(), None, Cells(80, 24), PLAIN, late=6.0)
    assert [lines.text(line).strip() for line in first.lines[:2]] == ["brickd top", "~ no answer for 6.0 s"]
    assert lines.text(draw(State(), None, Cells(80, 24), PLAIN).lines[1]) == "waiting for the first answer"


def test_only_the_list_with_the_focus_has_a_selected_row(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    top = Top()

    def selected() -> list[str]:
        rows = [line for line in top.drawn.lines if line and all(each.style == "selected" for each in line)]
        return [lines.text(line).split()[0] for line in rows]

    assert selected() in (["norm"], ["gemm"])
    top.press("tab", "down")
    assert selected() == ["api/0"]


def test_a_low_screen_keeps_the_panel_and_drops_the_lists_above_it(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api")
    assert Top(size=Cells(80, 7)).lines[1] == "> BRICKS, by self"
    assert "WORKER" in Top(size=Cells(80, 8)).lines[1]


def test_workers_are_sorted_by_a_figure_the_largest_first(worker: Start) -> None:
    started(worker, BRICKD_SERVICE="api", BRICKD_WORKER="0")
    started(worker, LOSING, BRICKD_SERVICE="api", BRICKD_WORKER="1")

    def names() -> list[str]:
        return [line[2:].split()[0] for line in top.lines if " live" in line]

    top = Top()
    assert names() == ["api", "api/0", "api/1"]
    top.press("tab", "s")
    assert (top.state.order, names()) == ("lost", ["api", "api/1", "api/0"])


def test_no_line_takes_a_control_character_to_the_terminal() -> None:
    assert lines.text(lines.line("a\x1b[2J")) == "a\\x1b[2J"


LONG_NAMES = """
for end in ("q_proj", "k_proj"):
    with brick.brick(f"model.decoder.layers.self_attention.{end}"): pass
pause()
"""


@pytest.mark.parametrize("panel", ["bricks", "tree"])
def test_bricks_with_long_names_can_be_told_apart(worker: Start, panel: str) -> None:
    started(worker, LONG_NAMES, BRICKD_SERVICE="api")
    for width in (50, 60, 80):
        screen = Top(state=State(panel=panel), size=Cells(width, 24)).text
        assert screen.count("q_proj") == screen.count("k_proj") == 1


def test_a_long_note_is_shown_in_lines_unless_the_screen_is_low(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    top, words = Top(), " ".join(f"word{number}" for number in range(14))

    def noted(size: Cells) -> list[str]:
        frame = top.frame._replace(status=top.frame.status._replace(words=(words,)))
        drawn = [lines.text(each).rstrip() for each in draw(top.state, frame, size, PLAIN).lines]
        return drawn[1 : next(n for n, each in enumerate(drawn) if "WORKER" in each or "live" in each)]

    assert noted(Cells(120, 24)) == [f"~ {words}"]
    assert noted(Cells(60, 20)) == [f"~ {words[:53]}", words[54:]]
    (cut,) = noted(Cells(60, 19))
    assert (cut, len(cut)) == (f"~ {words[:57]}…", 60)
    narrow = noted(Cells(24, 24))
    assert (len(narrow), narrow[2][-1]) == (3, "…")
    assert "".join(noted(Cells(24, None))[:5]).count("word") > "".join(narrow).count("word")


@pytest.fixture
def far_from_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A local time that differs from UTC."""
    monkeypatch.setenv("TZ", "XXX-5:30")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("far_from_utc")
def test_times_of_events_and_of_silences_are_local_like_the_time_of_the_screen() -> None:
    event = {"number": 1, "time": "2001-01-01T10:00:07.000Z", "kind": "slow", "text": "api/0 is slow"}
    event |= {"command": None, "service": "api", "worker": "api/0"}
    problem = {"id": "1a2b3c4d", "text": "is slow", "command": "brickd stragglers", "service": "api", "workers": []}
    silenced = {**problem, "silenced_until": "2001-01-01T20:00:00.000Z"}
    screen = Screen(None, colour=False)
    (shown,) = PANELS["events"].draw({"events": [event]}, screen, State()).rows
    assert shown.text == "2001-01-01 15:30:07  slow  api/0 is slow"
    row, *_ = PANELS["problems"].draw({"problems": [], "silenced": [silenced]}, screen, State()).rows
    assert "(silenced until 2001-01-02 01:30:00)" in row.text


class Down(LiveSource):
    """A daemon that answered, and then ended without a trace."""

    is_up = True
    words: tuple[str, ...] = ()

    def answer(self, request: Request) -> FetchedAnswer:
        found = super().answer(request)
        if self.is_up:
            return found._replace(document={**found.document, "source": "daemon"})
        return found._replace(words=self.words)


def test_after_the_end_of_a_daemon_the_second_line_says_so(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source = Down()
    top = Top(source)
    for is_up in (True, False, False, True):
        source.is_up = is_up
        top.ask()
        ended = "the daemon has ended; shared memory is read instead (start a daemon: brickd up -d)"
        assert (f"~ {ended[:70]}" in top.text) is not is_up
    assert "has ended" not in Top().text  # no daemon has answered
    source.is_up, source.words = False, ("the daemon at x does not answer",)
    top.ask()
    assert "~ the daemon at x does not answer" in top.text


def test_workers_with_long_names_can_be_told_apart(worker: Start) -> None:
    for number in (7, 12):
        started(worker, BRICKD_SERVICE="model-server-" * 8, BRICKD_WORKER=str(number))
    for size in (Cells(80, 24), Cells(40, 24), Cells(200, 50)):
        service, *workers = [line.split()[0] for line in Top(size=size).lines if " live" in line]
        assert "…" in service
        assert sorted(name.rpartition("/")[2] for name in workers) == ["12", "7"]
    (title,) = [line for line in Top().press("tab", "down", "enter", "7") if "LEDGER" in line]
    assert title.startswith("> LEDGER of model-server")
    assert title.endswith(("/7", "/12"))
