"""The thread that asks for the frames of `brickd top`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import cast

import pytest
from faults import Start
from running import running
from running import until as eventually
from timed_recordings import TIMES, timed
from verbs import SPANS, started

from brickd.errors import BrickdError
from brickd.query.queries import BricksQuery, HangQuery, HistoryQuery, StatusQuery
from brickd.query.query import Query
from brickd.recording.file_index import FileIndex
from brickd.recording.replay import opened as opened_recording
from brickd.top.asker import Asker
from brickd.top.frame import Frame
from brickd.top.poll import Poller
from brickd.top.source import (
    DocumentSource,
    InterruptibleFile,
    InterruptionError,
    LiveSource,
    RecordingSource,
    Request,
    opened,
)
from brickd.top.state import HOUR, State
from brickd.views.fetch_answer import FetchedAnswer

NEVER = 3600.0  # an interval that ends after the test


@contextmanager
def polling(source: DocumentSource, state: State) -> Iterator[tuple[Poller, SimpleQueue[Frame]]]:
    """Yield a running poller, and its frames."""
    frames: SimpleQueue[Frame] = SimpleQueue()
    poller = Poller(source, state)
    poller.send_to(frames.put)
    poller.start()
    try:
        yield poller, frames
    finally:
        poller.end()


def until(frames: SimpleQueue[Frame], so: Callable[[Frame], bool]) -> Frame:
    """Return the first frame for which a condition is true."""
    while not so(frame := frames.get(timeout=60)):
        pass
    return frame


class Failing(LiveSource):
    """This machine, with an error that the test chooses."""

    error: Exception | None = None

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.history_asked = threading.Event()

    def answer(self, request: Request) -> FetchedAnswer:
        self.asked.append(request.view)
        if request.view == "history":
            self.history_asked.set()
        if self.error is not None:
            raise self.error
        return super().answer(request)


def test_frames_come_at_the_interval_and_at_once_after_a_choice(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    with polling(LiveSource(), State(interval=0.01)) as (poller, frames):
        numbers = [frames.get(timeout=60).status.received for _ in range(3)]
        assert numbers == sorted(set(numbers))
        poller.want(State(interval=NEVER), ())
        until(frames, lambda frame: frame.state.interval == NEVER)
        poller.want(State(interval=NEVER, panel="tree"), ())
        found = until(frames, lambda frame: frame.state.panel == "tree")
        assert found.panel.document is not None
        assert found.panel.document["nodes"]


def test_histories_are_asked_for_after_the_panel_and_when_a_list_moves(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source = Failing()
    with polling(source, State(interval=NEVER)) as (poller, frames):
        assert frames.get(timeout=60).panel.document is not None
        assert source.asked == ["status", "bricks"]
        poller.want(State(interval=NEVER), ("api", "api/0"))
        frames.get(timeout=60)
        assert source.asked == ["status", "bricks", "history", "history"]


def test_a_frame_waits_for_two_histories_at_most(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source, names = Failing(), ("api", "api/0", "api/1")
    asker = Asker(source)
    asker.frame(State(), names)
    assert asker.more(State(), names) is not None
    assert source.asked == ["status", "bricks", "history", "history"]
    asker.more(State(), names)
    assert source.asked[4:] == ["history"]


def test_a_paused_screen_is_not_asked_for_until_the_operator_chooses(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source = Failing()
    with polling(source, State(interval=0.01, paused=True)) as (poller, frames):
        first = frames.get(timeout=60)
        poller.want(State(interval=0.01, paused=True, panel="tree"), ())
        second = until(frames, lambda frame: frame.state.panel == "tree")
        assert second.status is first.status
        assert source.asked == ["status", "bricks", "tree"]
        poller.want(State(interval=0.01, panel="tree"), ())
        assert until(frames, lambda frame: not frame.state.paused).status.received > first.status.received


def test_the_first_frame_waits_for_the_screen(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source, frames = Failing(), SimpleQueue[Frame]()
    poller = Poller(source, State(interval=NEVER))
    poller.want(State(interval=NEVER), ("api",))
    poller.start()
    assert source.history_asked.wait(60)  # the first frame was made before
    poller.send_to(frames.put)
    assert frames.get(timeout=60).status.document is not None
    poller.end()


class Slow(LiveSource):
    """This machine, whose status takes a while."""

    def __init__(self) -> None:
        super().__init__()
        self.answered: SimpleQueue[tuple[float, float]] = SimpleQueue()

    def answer(self, request: Request) -> FetchedAnswer:
        if request.view != "status":
            return super().answer(request)
        began = time.monotonic()
        threading.Event().wait(0.01)
        found = super().answer(request)
        self.answered.put((began, time.monotonic()))
        return found


def test_a_slow_daemon_gets_more_rest_than_work(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source = Slow()
    with polling(source, State(interval=0.001)):
        # one slow answer may be an exception, such as the first one; from the second one on, the daemon gets a rest
        (one, end), (began, ended), (again, _) = (source.answered.get(timeout=60) for _ in range(3))
        assert again - ended >= 2 * min(end - one, ended - began)


def test_one_slow_answer_does_not_make_answers_rare_but_two_do(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    asker = Asker(Slow())
    assert asker.frame(State(), ()).spacing == 0
    assert asker.frame(State(), ()).spacing >= 4 * 0.01


ONE_AFTER_ANOTHER = """
gemm = brick.brick("gemm")
for _ in range(3):
    with gemm: pass
    pause()
"""


def test_the_answers_of_a_frame_are_about_the_same_moment(worker: Start) -> None:
    of = started(worker, ONE_AFTER_ANOTHER, BRICKD_SERVICE="api")
    source = LiveSource()

    def count(view: str, query: Query) -> object:
        return source.answer(Request(view, query)).document["bricks"][0]["count"]

    with source.together():
        assert count("status", StatusQuery()) == 1
        of.go()
        of.paused()
        assert count("bricks", BricksQuery()) == 1
    assert count("bricks", BricksQuery()) == 2
    of.go()
    of.paused()
    with source.together():
        assert count("bricks", BricksQuery()) == 3


MOVING = """
import time
step, gemm = brick.brick("step"), brick.brick("gemm")
with step:
    with gemm: pass
    report(None)
    while True:
        with gemm: time.sleep(0.001)
"""


def test_hang_reads_the_workers_again_within_a_frame(worker: Start) -> None:
    worker(MOVING, BRICKD_SERVICE="api").next_report()
    source = LiveSource()
    with source.together():
        source.answer(Request("status", StatusQuery()))
        (row,) = source.answer(Request("hang", HangQuery(watch=0.05, longer=0.01))).document["open"]
        assert row["state"] == "moving"


def test_the_screen_keeps_no_bricks_of_the_status(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    document = Asker(LiveSource()).frame(State(), ()).status.document
    assert document is not None
    assert document["workers"]
    assert {"bricks", "categories"}.isdisjoint(document)


def test_no_error_ends_the_frames_and_the_last_data_stays(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source = Failing()
    asker = Asker(source)
    before = asker.frame(State(), ())
    assert before.status.error is None
    for error, text in (
        (BrickdError("the daemon is busy"), "the daemon is busy"),
        (OSError("no room"), "no room"),
        (KeyError("over_ns"), "KeyError: 'over_ns' (a defect of brickd: please report it)"),
    ):
        source.error = error
        frame = asker.frame(State(), ())
        assert (frame.status.error, frame.panel.error) == (text, text)
        assert (frame.status.document, frame.panel.document) == (before.status.document, before.panel.document)
        assert frame.status.received == before.status.received
    source.error = None
    assert asker.frame(State(), ()).status.error is None


def test_a_document_of_another_panel_or_worker_is_not_kept(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    source = Failing()
    asker = Asker(source)
    asker.frame(State(), ())
    source.error = BrickdError("gone")
    assert asker.frame(State(sort="p99"), ()).panel.document is not None
    assert asker.frame(State(subject="api/0"), ()).panel.document is None
    source.error = None
    asker.frame(State(), ())
    source.error = BrickdError("gone")
    assert asker.frame(State(panel="tree"), ()).panel.document is None


def test_choices_that_exclude_each_other_are_an_error_of_the_panel(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    frame = Asker(LiveSource()).frame(State(panel="bricks", sort="nonsense"), ())
    assert frame.panel.error is not None
    assert frame.panel.error.startswith("sort is 'nonsense', expected ")
    assert frame.status.error is None


def test_a_recording_is_not_asked_again_at_the_interval(worker: Start, tmp_path: Path) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    with (
        opened([timed(tmp_path / "run.brick")]) as source,
        polling(source, State(interval=0.001)) as (poller, frames),
    ):
        first = frames.get(timeout=60)
        poller.want(State(interval=0.001), ("api",))
        assert until(frames, lambda frame: bool(frame.histories)).status is first.status
        poller.want(State(interval=0.001, cursor=1.0), ("api",))
        found = until(frames, lambda frame: frame.state.cursor == 1.0)
        assert found.status is not first.status


class Reading(RecordingSource):
    """A recording. The test hears of each request, and of each slot that is read."""

    def __init__(self, path: str, stack: ExitStack) -> None:
        super().__init__(stack.enter_context(opened_recording([path])))
        self.asked: list[Request] = []

    def answer(self, request: Request) -> FetchedAnswer:
        self.asked.append(request)
        return super().answer(request)


@pytest.fixture
def reading(worker: Start, tmp_path: Path) -> Iterator[Reading]:
    for _ in range(2):
        started(worker, SPANS, BRICKD_SERVICE="api")
    with ExitStack() as stack:
        yield Reading(timed(tmp_path / "run.brick"), stack)


def test_a_recording_is_read_once_for_all_histories_on_the_screen(reading: Reading) -> None:
    names, asker = ("api", "api/0", "api/1"), Asker(reading)
    alone = {
        name: reading.answer(Request("history", HistoryQuery(names=(name,), over=HOUR, every=HOUR / 12))).document
        for name in names
    }
    for each in alone.values():
        del each["recording"]
    reading.asked.clear()
    asker.frame(State(), (*names, "none/0"))
    frame = asker.more(State(), (*names, "none/0"))
    assert frame is not None
    assert [request.view for request in reading.asked] == ["status", "bricks", "histories"]
    assert frame.histories == alone
    assert asker.more(State(), (*names, "none/0")) is None
    assert asker.is_complete((*names, "none/0"))


def test_a_choice_interrupts_the_reading_of_a_recording_and_changes_no_answer(reading: Reading) -> None:
    asker = Asker(reading)
    before = asker.frame(State(), ("api",))
    reading.stops = lambda: True
    with pytest.raises(InterruptionError):
        asker.more(State(), ("api",))
    for other in (State(panel="history"), State(panel="history", cursor=TIMES[2] / 1e9)):
        with pytest.raises(InterruptionError):
            asker.frame(other, ("api",))
    reading.stops = lambda: False
    again = asker.frame(State(), ("api",))  # nothing was asked since, so nothing is asked now
    assert (again.status is before.status, again.panel is before.panel) == (True, True)
    history = asker.frame(State(panel="history"), ("api",)).panel
    assert history.document is not None
    assert history.document["slots"]
    assert asker.more(State(panel="history"), ("api",)) is not None


class Pieces:
    """A file of a recording that counts the pieces that are read."""

    beginning = "the beginning"

    def __init__(self) -> None:
        self.count = 0

    def records(self, *_: object) -> Iterator[int]:
        for number in range(9):
            self.count += 1
            yield number

    snapshots = snapshots_of = records


@pytest.mark.parametrize(("kind", "of"), [("records", (set(),)), ("snapshots", ()), ("snapshots_of", (0, 9))])
def test_a_file_of_a_recording_is_read_only_until_a_key_needs_another_answer(kind: str, of: tuple[object, ...]) -> None:
    pieces, answers = Pieces(), iter([False, False, True])
    file = InterruptibleFile(cast("FileIndex", pieces), lambda: next(answers))
    found: list[int] = []
    with pytest.raises(InterruptionError):
        found.extend(getattr(file, kind)(*of))
    assert (found, pieces.count, file.beginning) == ([0, 1], 3, "the beginning")
    whole = InterruptibleFile(cast("FileIndex", Pieces()), lambda: False)
    assert list(getattr(whole, kind)(*of)) == [*range(9)]


def test_fingerprints_of_a_recording_are_read_through_the_given_files(reading: Reading) -> None:
    asked: list[str] = []

    class Watched:
        def __init__(self, file: FileIndex) -> None:
            self._file = file

        def __getattr__(self, name: str) -> object:
            asked.append(name)
            return getattr(self._file, name)

    replay = reading._replay.through(lambda file: cast("FileIndex", Watched(file)))
    assert replay.numerics(replay.survey().workers) is not None
    assert "records" in asked
    asked.clear()
    assert replay.weights(replay.survey().workers) is not None
    assert "records" in asked


def test_a_poller_asks_for_the_new_choice_while_it_reads_histories(reading: Reading) -> None:
    state = State(interval=NEVER)
    with polling(reading, state) as (poller, frames):
        frames.get(timeout=60)
        wanted, stops, waited = threading.Event(), reading.stops, list[float]()

        def held() -> bool:
            """Hold the reading until the operator chooses another panel."""
            waited.append(poller.waits())
            assert wanted.wait(60)
            return stops()

        reading.stops = held
        poller.want(state, ("api",))
        eventually(lambda: bool(waited))
        poller.want(state._replace(panel="tree"), ("api",))
        wanted.set()
        found = until(frames, lambda frame: True)
        assert (found.state.panel, dict(found.histories)) == ("tree", {})
        assert until(frames, lambda frame: bool(frame.histories)).state.panel == "tree"
        assert waited[0] == 0  # while histories are read, no answer is late
    assert stops()  # an ended poller reads no further


class Late(LiveSource):
    """This machine, whose answers wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.answers = threading.Event(), threading.Event()

    def answer(self, request: Request) -> FetchedAnswer:
        self.asked.set()
        assert self.answers.wait(60)
        return super().answer(request)


@pytest.mark.usefixtures("prefix")
def test_a_poller_says_for_how_long_it_has_been_waiting() -> None:
    source = Late()
    with polling(source, State(interval=NEVER)) as (poller, frames):
        assert source.asked.wait(60)
        assert poller.waits() > 0
        source.answers.set()
        frames.get(timeout=60)
        eventually(lambda: poller.waits() == 0)


@pytest.mark.usefixtures("prefix")
def test_a_poller_that_was_ended_sends_no_frame() -> None:
    source = Late()
    with polling(source, State(interval=NEVER)) as (poller, frames):
        assert source.asked.wait(60)
        poller.end()
        source.answers.set()
        poller._thread.join()
        assert frames.empty()


@pytest.mark.ci
def test_a_silent_daemon_is_asked_once_and_shared_memory_read_instead(worker: Start) -> None:
    started(worker, SPANS, BRICKD_SERVICE="api")
    with running() as daemon:
        asker = Asker(LiveSource())
        assert asker.frame(State(), ()).status.words == ()
        with daemon.stopped():
            began = time.monotonic()
            frame = asker.frame(State(), ())
            assert time.monotonic() - began < 9  # a request waits for 5 s; the second one is not sent
            assert frame.status.words == frame.panel.words
            assert "does not answer; shared memory is read instead" in frame.status.words[0]
            assert frame.panel.document is not None
            asker.frame(State(panel="tree"), ())
            assert time.monotonic() - began < 9
