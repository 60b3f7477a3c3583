"""Workers that do a number of rounds of work, to test that the daemon counts each round once."""

from __future__ import annotations

from typing import Any

from conftest import Worker
from running import Running

Document = dict[str, Any]

STARTS = 10

# A round has ten spans and ten deferred starts. One finalize closes all of the starts. `rounds()` does the first round
# and prints the segment; it returns when stdin closes.
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
    """Let the process do another round."""
    worker.go()
    worker.next_report()


def closed(daemon: Running, starts: int) -> Document:
    """Wait until `starts` deferred starts have ended; check that each ended only once; return the status."""
    status: Document = daemon.once(
        "/status?over=start", lambda answer: answer["ledger"]["deferred"]["bounded"] >= starts
    )
    deferred = status["ledger"]["deferred"]
    assert (deferred["bounded"], deferred["measured"]) == (starts, 0)
    assert deferred["started"] == starts + deferred["pending"] + deferred["orphaned"]
    assert sum(each["count"] for each in status["bricks"] if each["bounded"]) == starts
    return status


def states(status: Document) -> dict[str, str]:
    """Return the state of each worker."""
    return {each["name"]: each["state"] for each in status["workers"]}


def logged(daemon: Running, kind: str) -> list[Document]:
    """Return all events of this kind that were logged so far."""
    return [each for each in daemon.ask("/events")["events"] if each["kind"] == kind]


def entry(daemon: Running, file: str) -> Document:
    """Return the entry of a segment's worker in a document."""
    (found,) = [each for each in daemon.ask("/workers")["workers"] if each["segment"] == file]
    return dict(found)
