"""Workers that do as many rounds as they are told, and what a daemon says of them: whether all of it counted once."""

from __future__ import annotations

from typing import Any

from conftest import Worker
from running import Running

Document = dict[str, Any]

STARTS = 10

# A round is ten spans, and ten starts that a finalize closes. `rounds()` does the first one and tells the segment; it
# ends with its standard input.
ROUNDS = f"""
b = brick.brick("b")
def work():
    for _ in range({STARTS}):
        with b: pass
        b.defer(stream=1)
    brick.finalize(stream=1)
def rounds():
    work()
    report(_core._segment_name())
    while os.read(0, 1):
        work()
        report()
"""


def again(worker: Worker) -> None:
    """Have it do another round."""
    worker.go()
    worker.next_report()


def closed(daemon: Running, starts: int) -> Document:
    """The status, once so many starts of deferred work came to their end: these, each once, and no others."""
    status: Document = daemon.once(
        "/status?over=start", lambda answer: answer["ledger"]["deferred"]["bounded"] >= starts
    )
    deferred = status["ledger"]["deferred"]
    assert (deferred["bounded"], deferred["measured"]) == (starts, 0)
    assert deferred["started"] == starts + deferred["pending"] + deferred["orphaned"]
    assert sum(each["count"] for each in status["bricks"] if each["bounded"]) == starts
    return status


def states(status: Document) -> dict[str, str]:
    """Who is in which state."""
    return {each["name"]: each["state"] for each in status["workers"]}


def logged(daemon: Running, kind: str) -> list[Document]:
    """All events of a kind so far."""
    return [each for each in daemon.ask("/events")["events"] if each["kind"] == kind]


def entry(daemon: Running, file: str) -> Document:
    """What is said of the worker of a segment."""
    (found,) = [each for each in daemon.ask("/workers")["workers"] if each["segment"] == file]
    return dict(found)
