"""The state of `brickd top`: what each key changes, without answers and without a terminal."""

from __future__ import annotations

import pytest

from brickd.base.timestamps import clock
from brickd.query.queries import BricksQuery, DiffQuery
from brickd.query.query import START
from brickd.top import state as states
from brickd.top.keys import KEYS, help_lines, message, press
from brickd.top.list_block import settled
from brickd.top.panel_rows import Content, PanelRow, filtered
from brickd.top.panels import PANELS, request
from brickd.top.places import OnScreen, Selection, ShownList, resolved
from brickd.top.state import State
from brickd.top.state_changes import LONG_STEP, STEP

NAMES = ["api", "api/0", "api/1", "api/2"]
SHOWN = OnScreen(
    {
        "workers": ShownList(NAMES, NAMES, 2),
        "problems": ShownList(["1a2b3c4d"], ["! 1a2b3c4d lost"], 1),
        "panel": ShownList(["rope", "gemm", None], ["rope 1", "gemm 2", "a note"], 2),
    },
    sorts=("self", "count"),
    at=1000.0,
    newest=1000.0,
)


def pressed(*keys: str, state: State = State(), shown: OnScreen = SHOWN) -> State:  # noqa: B008
    """Return the state after some keys. The lists follow the state, as on a screen."""
    for key in keys:
        lists = {
            name: each._replace(place=resolved(state.places.get(name, Selection()), each.keys, each.height))
            for name, each in shown.lists.items()
        }
        at = shown.at if state.cursor is None else state.cursor
        state, effect = press(state, shown._replace(lists=lists, at=at), key, key if len(key) == 1 else None)
        assert effect is None
    return state


def test_arrows_move_in_the_list_that_has_the_focus() -> None:
    assert pressed("down").places == {"panel": Selection("gemm", 1, 0)}
    assert pressed("down", "down", "down").places == {"panel": Selection(None, 2, 1)}
    assert pressed("down", "up", "up").places == {"panel": Selection(None, 0, 0)}
    assert pressed("tab", "end").places == {"workers": Selection("api/2", 3, 2)}
    assert pressed("tab", "pagedown").places == {"workers": Selection("api/0", 1, 0)}
    assert pressed("tab", "pagedown", "home").places == {"workers": Selection(None, 0, 0)}


def test_only_end_in_the_panel_asks_for_all_rows() -> None:
    assert pressed("end").all_rows
    assert not pressed("tab", "end").all_rows
    assert pressed("end", "tab", "home").all_rows
    for key in ("up", "home", "pageup", "s", "2"):
        assert not pressed("end", key).all_rows


def test_the_focus_goes_through_all_lists_on_the_screen() -> None:
    assert [pressed(*["tab"] * n).focus for n in range(4)] == ["panel", "workers", "problems", "panel"]
    assert pressed("shift+tab").focus == "problems"
    assert pressed("tab", shown=OnScreen({})).focus == "panel"


def test_the_selection_follows_its_subject() -> None:
    at = Selection("api/1", 2, 1)
    assert resolved(at, ["api", "new", "api/0", "api/1"], 2) == Selection("api/1", 3, 2)
    assert resolved(at, ["api", "api/0"], 2) == Selection("api/0", 1, 0)
    assert resolved(at, ["api/1", "api/1", "api/1"], 2) == at  # the same subject in several rows
    assert resolved(Selection(None, 1, 0), [None, None], 2) == Selection(None, 1, 0)
    assert resolved(Selection("x", 9, 9), list("abcdefghijx"), 4) == Selection("x", 10, 7)


def test_an_untouched_list_stays_at_its_newest_row() -> None:
    newer, height = ["n3", "n2", "n1"], 2
    shown = ShownList(["n1"], ["n1"], height, resolved(Selection(), ["n1"], height))
    on_screen = OnScreen({"panel": shown})
    untouched = settled(State(), on_screen.lists)
    for state in (untouched, pressed("home", state=untouched, shown=on_screen), pressed("up", shown=on_screen)):
        place = resolved(settled(state, on_screen.lists).places["panel"], newer, height)
        assert (place.row, place.first, newer[place.row]) == (0, 0, "n3")
    # a row that the operator chose is followed, even after it was the first one for a while
    chosen = resolved(Selection("n2", 1, 0), ["n2"], height)
    assert resolved(chosen, newer, height) == Selection("n2", 1, 0)
    # if its subject is gone, the first row is not one that the operator chose
    assert resolved(Selection("gone", 1, 0), ["n1"], height) == Selection()


@pytest.mark.parametrize("name", PANELS)
def test_each_panel_has_a_key(name: str) -> None:
    state = State(picked=("api/0", "api/1"), sort="count", filter="x", reverse=True, panel="weights")
    opened = pressed(PANELS[name].key, state=state)
    assert (opened.panel, opened.focus, opened.sort, opened.filter, opened.reverse) == (name, "panel", "", "", False)


def test_enter_chooses_the_selected_worker_and_escape_drops_it() -> None:
    chosen = pressed("tab", "down", "enter")
    assert (chosen.subject, chosen.about) == ("api/0", ("api/0",))
    assert pressed("enter", state=chosen).subject is None
    assert pressed("escape", state=chosen).about == ()
    assert State(names=("api",)).about == ("api",)
    assert pressed("tab", "tab", "enter").panel == "problems"


def test_two_workers_are_picked_and_compared() -> None:
    one = pressed("tab", "down", "x")
    assert one.picked == ("api/0",)
    assert pressed("x", state=one).picked == ()
    assert pressed("d", state=one).panel == "bricks"
    two = pressed("down", "space", state=one)
    assert two.picked == ("api/0", "api/1")
    assert pressed("d", state=two).panel == "diff"
    assert pressed("down", "x", state=two).picked == ("api/1", "api/2")
    assert pressed("d", "escape", state=two).panel == "bricks"
    assert pressed("tab", "x").picked == ()  # a service
    assert pressed("escape", state=State(panel="diff")).panel == "bricks"


def test_the_orders_of_the_panel_and_of_the_workers() -> None:
    assert [pressed(*["s"] * n).sort for n in (1, 2)] == ["count", "self"]
    assert pressed("s", shown=SHOWN._replace(sorts=())).sort == ""
    assert (pressed("tab", "s").order, pressed("tab", "s").sort) == ("lost", "")
    assert (pressed("r").reverse, pressed("r", "r").reverse) == (True, False)


def test_a_filter_takes_every_key_until_enter() -> None:
    typing = pressed("/", "q", "?", "x", "backspace")
    assert (typing.filter, typing.typing, typing.help) == ("q?", True, False)
    kept = pressed("enter", state=typing)
    assert (kept.filter, kept.typing) == ("q?", False)
    assert pressed("escape", state=typing).filter == ""
    assert pressed("enter", "escape", state=typing).filter == ""
    assert len(pressed("/", *["y"] * 300).filter) == 200
    assert pressed("/", "f5").filter == ""


def test_a_filter_searches_all_rows_of_a_subject_and_no_colours() -> None:
    def found(filter: str, *rows: PanelRow, uncut: tuple[PanelRow, ...] = ()) -> list[str]:
        content = Content((), rows)
        kept = filtered(content, content._replace(rows=uncut or rows), State(filter=filter))
        return [row.text for row in kept.rows]

    two = (PanelRow("fast", "a"), PanelRow("slow", "a"), PanelRow("other", "b"), PanelRow("a note: fast"))
    assert found("FAST", *two) == found("slow", *two) == ["fast", "slow"]
    assert found("none", *two) == ["no row has 'none'"]
    text = (PanelRow("\x1b[31m! slow\x1b[0m"), PanelRow("equ…"))
    assert (found("31m", *text), found("[0", *text)) == (["no row has '31m'"], ["no row has '[0'"])
    assert found("equal", *text, uncut=(PanelRow("! slow"), PanelRow("equal"))) == ["equ…"]
    assert found("slow", *text, uncut=(PanelRow("equal"),)) == [text[0].text]


def test_a_text_is_not_reversed() -> None:
    for keys, texts in (((None, None), ["1", "2"]), (("a", None), ["1", "2"]), (("a", "b"), ["2", "1"])):
        content = Content((), [PanelRow(text, key) for text, key in zip("12", keys, strict=True)])
        assert [row.text for row in filtered(content, content, State(reverse=True)).rows] == texts


def test_the_cursor_moves_in_time_and_returns_to_the_present() -> None:
    past = pressed("left")
    assert past.cursor == 1000 - STEP
    assert pressed("left", state=past).cursor == 1000 - 2 * STEP
    assert pressed("right", state=past).cursor is None
    assert pressed("right").cursor is None
    assert pressed("[").cursor == 1000 - LONG_STEP
    assert pressed("[", "right").cursor == 1000 - LONG_STEP + STEP
    assert pressed("[", "]").cursor is None
    assert pressed("[", "n").cursor is None
    assert pressed("[", "escape").cursor is None
    assert pressed("left", shown=SHOWN._replace(slack=2.0)).cursor == 1000 - STEP + 2
    assert pressed("left", "right", shown=SHOWN._replace(slack=2.0)).cursor is None


def test_a_mark_is_a_time_to_which_the_cursor_returns() -> None:
    marked = pressed("m")
    assert (marked.mark, marked.cursor) == (1000, None)
    assert pressed("'", state=marked).cursor == 1000
    assert pressed("'", "'", state=marked).cursor is None
    assert pressed("left", "m", "n", "'").cursor == 1000 - STEP
    assert pressed("'").cursor is None


def test_pause_period_interval_and_help() -> None:
    assert (pressed("p").paused, pressed("p", "p").paused) == (True, False)
    assert [pressed(*["o"] * n).period for n in range(4)] == [60.0, None, 10.0, 60.0]
    assert [pressed(*"h" * n).rates_over for n in range(3)] == [states.HOUR, states.DAY, states.HOUR]
    assert (pressed("+").interval, pressed("-").interval) == (0.5, 2.0)
    assert (pressed(*"+++").interval, pressed(*"---------").interval) == (0.5, 60.0)
    for given, key, then in (
        (0.1, "+", 0.1),
        (0.1, "-", 0.5),
        (120.0, "-", 120.0),
        (120.0, "+", 60.0),
        (7.0, "+", 5.0),
    ):
        assert pressed(key, state=State(interval=given)).interval == then
    assert (pressed("?").help, pressed("?", "?").help, pressed("?", "escape").help) == (True, False, False)
    assert pressed("?", "1").help is False


def said(key: str, state: State, shown: OnScreen = SHOWN) -> str:
    return message(pressed(key, state=state, shown=shown), shown, key, key)


def test_a_key_that_can_do_nothing_says_why() -> None:
    assert said("d", State()) == "pick two workers first (0 of 2 picked): Tab goes to the workers, x picks one"
    assert "(1 of 2 picked)" in said("d", State(picked=("api/0",)))
    assert said("d", State(picked=("api/0", "api/1"))) == ""
    on_worker = OnScreen({"workers": ShownList(NAMES, NAMES, 4, Selection("api/0", 1, 0))})
    assert said("x", State()) == "select a worker first: Tab goes to the workers"
    assert message(State(picked=("api/0",)), on_worker, "space", " ") == ""
    assert said("'", State()) == "no time is marked: m marks the shown time"
    assert said("'", State(mark=1.0)) == ""


def test_a_marked_time_is_shown_and_other_keys_show_no_message() -> None:
    assert said("m", State()) == f"{clock(1000.0)} is marked: ' goes there"
    assert said("s", State()) == said("down", State()) == ""
    assert message(State(), SHOWN, "f12") == ""
    assert message(State(typing=True), SHOWN, "d", "d") == ""  # it is a letter of the filter


def test_effects_leave_the_state_as_it_is() -> None:
    for key, effect in (("q", "quit"), ("ctrl+c", "quit"), ("c", "copy"), ("y", "copy"), ("S", "silence")):
        assert press(State(), SHOWN, key, key if len(key) == 1 else None) == (State(), effect)
    assert press(State(typing=True), SHOWN, "ctrl+c") == (State(typing=True), "quit")
    assert press(State(), SHOWN, "f12") == (State(), None)


def test_only_changes_that_need_other_answers_are_asked_for() -> None:
    same = State()
    for like in (State(focus="workers"), State(help=True), State(mark=1.0), State(typing=True), State(order="lost")):
        assert same.asks_like(like)
    for other in (
        *(State(panel="tree"), State(subject="api"), State(sort="p99"), State(cursor=1.0), State(period=None)),
        *(State(filter="x"), State(reverse=True), State(picked=("a/0",)), State(interval=2.0)),
        State(rates_over=states.DAY),
    ):
        assert not same.asks_like(other)
    far = State(places={"panel": Selection("n", states.ROWS_STEP, 0)})
    assert same.asks_like(State(places={"panel": Selection("n", states.ROWS_STEP - 1, 0)}))
    assert not same.asks_like(far)
    assert not same.asks_like(State(all_rows=True))
    assert State(all_rows=True).asks_like(far._replace(all_rows=True))  # all rows are known


def test_the_help_names_every_key() -> None:
    text = "\n".join(help_lines(80))
    assert all(len(line) <= 80 for line in help_lines(80))
    assert all(key.name in text for key in KEYS)
    names = [name for key in KEYS for name in key.keys]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("width", [20, 39, 40])
def test_the_help_of_a_narrow_screen_has_whole_words_in_a_second_column_or_below_the_keys(width: int) -> None:
    found = help_lines(width)
    assert max(map(len, found)) <= width
    in_columns = width == 40
    assert (found[0] == KEYS[0].name) == (not in_columns)
    texts = " ".join(each[16 if in_columns else 2 :].strip() for each in found if in_columns or each.startswith("  "))
    assert texts == " ".join(key.help for key in KEYS)


def test_what_a_panel_asks_at_a_past_time_of_a_machine_and_of_a_recording() -> None:
    status = {"workers": [], "over_ns": 10_000_000_000}
    past = State(cursor=1000.0, sort="spread")
    live, recorded = (request(past, status, recorded=recorded) for recorded in (False, True))
    assert live is not None
    assert recorded is not None
    assert isinstance(live.query, BricksQuery)
    assert isinstance(recorded.query, BricksQuery)
    assert (live.at, live.query.at, live.query.sort, live.query.over) == (None, 1000.0, "self", START)
    assert (recorded.at, recorded.query.at, recorded.query.sort, recorded.query.over) == (1000.0, None, "spread", 60.0)
    other = request(past._replace(panel="stragglers"), status, recorded=False)
    assert other is not None
    assert other.view == "events"
    diff = request(State(panel="diff", picked=("a/0", "a/1"), names=("a",)), status, recorded=False)
    assert diff is not None
    assert isinstance(diff.query, DiffQuery)
    assert diff.query.names == ("a/0", "a/1")
