"""Orders of canaries in a worker: which are obeyed, which definitions are believed, and what is sent."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from running import running, until

from brickd.base.paths import runtime
from brickd.daemon.canary_rounds import CanaryAnswers
from brickd.model.canary_definitions import CanaryDefinition, CanaryFiles
from brickd.shm import _reader
from brickd.shm.segment import Segment, open_segment
from brickd.shm.segment_files import find

# Answers an order with what it was asked to run.
ENGINE = """
from brick_agent._torch.canary.orders import obey_orders
from brick_agent._torch.canary.result import CanaryResult, CanarySite
over = []
def run(name, tokens, forced, chunk):
    if name == "raises": raise ValueError("a secret")
    kernel = "k" * (70_000 if name == "long" else 1)
    return CanaryResult(name, "done", None, str(tokens), str(forced), str(chunk), (CanarySite(kernel, 1, "a", "b"),))
brick.init(lanes=4)
obey_orders(run, lambda: over)
pause()
"""


class Ordered:
    """A worker, and this test in place of the daemon."""

    def __init__(self, worker: Worker, segment: Segment) -> None:
        self.worker, self.segment = worker, segment
        self._drain = _reader.Drain(segment.fd, None)
        self._answers = CanaryAnswers()
        self.answers: list[dict[str, Any]] = []

    def look(self) -> None:
        ((_, events, refused),) = _reader.drain([self._drain])[2] or [(0, None, None)]
        assert refused is None
        for piece in _reader.pieces(events)[2] if events else ():
            if (text := self._answers.take("worker", *piece)) is not None:
                self.answers.append(json.loads(text))

    def next(self, count: int = 1) -> list[dict[str, Any]]:
        """Return the next answers."""

        def so() -> list[dict[str, Any]]:
            self.look()
            return self.answers if len(self.answers) >= count else []

        found, self.answers = until(so), []
        return found

    def ends(self, digest: int) -> list[tuple[str, str | None]]:
        """Give an order, and return all answers to it."""
        order = self.segment.order_canary(digest)
        found = self.next()
        found += self.next() if found[-1]["end"] == "running" else []
        assert {each["order"] for each in found} == {order}
        return [(each["end"], each["reason"]) for each in found]


@pytest.fixture
def ordered(worker: Start, prefix: str) -> Iterator[Ordered]:
    process = worker(ENGINE)
    process.paused()
    (name,) = find(prefix)
    with open_segment(name, os.O_RDWR) as segment:
        yield Ordered(process, segment)


@pytest.fixture
def greeting() -> CanaryDefinition:
    return CanaryFiles().add("greeting", b'{"tokens": [5, 6], "forced": [7], "chunk": 2}')


def path(name: str = "greeting") -> Path:
    return runtime().canaries / f"{name}.json"


def test_an_order_runs_the_definition_and_sends_the_result(ordered: Ordered, greeting: CanaryDefinition) -> None:
    order = ordered.segment.order_canary(greeting.digest)
    begun, done = ordered.next(2)
    assert (begun["order"], begun["name"], begun["end"], begun["sites"]) == (order, "greeting", "running", [])
    assert done == {
        **{"order": order, "name": "greeting", "end": "done", "reason": None, "sites": [["k", 1, "a", "b"]]},
        **{"input": "[5, 6]", "model": "[7]", "context": "2", "slices": 0, "spent_s": 0.0, "longest_s": 0.0},
    }
    assert ordered.ends(greeting.digest) == [("running", None), ("done", None)]


def test_an_order_that_came_before_the_thread_is_not_run(
    worker: Start, prefix: str, greeting: CanaryDefinition
) -> None:
    looks = ENGINE.replace("lambda: over)", "lambda: looks.append(1))").replace("pause()", "")
    program = (
        f"import time\nlooks = []\nbrick.init(); pause()\n{looks}\nwhile len(looks) < 3: time.sleep(0.01)\npause()"
    )
    process = worker(program)
    process.paused()
    (name,) = find(prefix)
    with open_segment(name, os.O_RDWR) as segment:
        first = segment.order_canary(greeting.digest)
        process.go()
        process.paused()
        ordered = Ordered(process, segment)
        assert ordered.ends(greeting.digest) == [("running", None), ("done", None)]
        assert first == 1


@pytest.mark.parametrize(
    "wrong", ["missing", "changed", "link", "writable", "fifo", "long", "other name", "of another user"]
)
def test_a_definition_is_believed_only_if_it_is_a_private_file_with_this_digest(
    ordered: Ordered, greeting: CanaryDefinition, wrong: str
) -> None:
    if wrong == "of another user" and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    content = path().read_bytes()
    if wrong == "changed":
        path().write_bytes(content.replace(b"5", b"8"))
    elif wrong == "of another user":
        os.chown(path(), 12345, -1)
    elif wrong == "writable":
        path().chmod(0o620)
    elif wrong == "other name":
        path().rename(path().with_suffix(".txt"))
    elif wrong != "missing":
        path().unlink()
    if wrong == "missing":
        path().unlink()
    elif wrong == "link":
        path("target").with_suffix("").write_bytes(content)
        path().symlink_to(path("target").with_suffix(""))
    elif wrong == "fifo":
        os.mkfifo(path(), 0o600)
    elif wrong == "long":
        content += b" " * ((1 << 16) + 1 - len(content))
        path().write_bytes(content)
        path().chmod(0o600)
    digest = _reader.source_hash(content) >> 32
    ((end, reason),) = ordered.ends(digest)
    assert end == "refused"
    assert reason == f"definition: no file of this user in {runtime().canaries} has the digest {digest:08x}"


def test_a_file_of_the_largest_size_is_read(ordered: Ordered, greeting: CanaryDefinition) -> None:
    content = path().read_bytes()
    content += b" " * ((1 << 16) - len(content))
    path().write_bytes(content)
    assert ordered.ends(_reader.source_hash(content) >> 32) == [("running", None), ("done", None)]


@pytest.mark.parametrize(
    "content", [b"[" * 60_000, b"[]", b"{", b'{"name": "a", "tokens": 5, "forced": [], "chunk": 1}']
)
def test_an_invalid_definition_is_refused(ordered: Ordered, greeting: CanaryDefinition, content: bytes) -> None:
    path().write_bytes(content)
    ((end, reason),) = ordered.ends(_reader.source_hash(content) >> 32)
    assert (end, str(reason).startswith("definition: is invalid: ")) == ("refused", True)


def test_an_engine_that_raises_is_reported_without_the_text_and_the_next_order_runs(ordered: Ordered) -> None:
    raises = CanaryFiles().add("raises", b'{"tokens": [5]}')
    greeting = CanaryFiles().add("greeting", b'{"tokens": [5]}')
    assert ordered.ends(raises.digest) == [("running", None), ("refused", "raised: ValueError")]
    assert ordered.ends(greeting.digest) == [("running", None), ("done", None)]


def test_a_result_that_is_too_long_is_reported(ordered: Ordered) -> None:
    long = CanaryFiles().add("long", b'{"tokens": [5]}')
    assert ordered.ends(long.digest) == [("running", None), ("refused", "long: the result is too long")]


def test_a_text_of_more_than_64_kib_is_a_dropped_record(worker: Start, prefix: str) -> None:
    program = "reported = [_core._send_canary('x' * n, 0) for n in (1 << 16, (1 << 16) + 1)]; report(reported); pause()"
    process = worker(program, BRICKD_EVENTS="4096")
    assert process.next_report()[0] == -1
    (name,) = find(prefix)
    with open_segment(name) as segment:
        assert segment.dropped(_reader.KIND_CANARY) == 1
        (lane,) = segment.read().lanes
        assert lane[1]["event_records"] == (1 << 16) // 40 + 2


def test_pieces_for_which_there_is_no_room_are_sent_later(worker: Start, prefix: str) -> None:
    program = """
    piece = _core._send_canary("x" * 4000, 0)
    report(piece)
    pause()
    while piece >= 0: piece = _core._send_canary("x" * 4000, piece)
    pause()
    """
    process = worker(program, BRICKD_EVENTS="64")
    assert process.next_report() == 64 - 64 // 8 * 3
    process.paused()
    with running():
        process.go()
        process.paused()
        (name,) = find(prefix)
        with open_segment(name) as segment:
            ((_, lane, _),) = segment.read().lanes
    assert (lane["event_records"], sum(lane["event_dropped"])) == (101, 0)
