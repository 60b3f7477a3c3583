"""brick.source: a text is identified by its hash and sent once. No host fails, waits, or uses ever more memory."""

from __future__ import annotations

import pytest
from conftest import reading, readings
from faults import Start

from brickd.shm import _reader
from brickd.shm.segment_copy import Reading


def recorded_by(worker: Start, prefix: str, source: str, **environment: str) -> tuple[Reading, object]:
    """Return the reading of a program's segment after its end, and the report of the program."""
    process = worker(source + "\npause()\n", **environment)
    reported = process.next_report()
    process.paused()
    got = reading(prefix)
    process.go()
    assert process.end() == 0, process.stderr
    return got, reported


def pieces(got: Reading) -> int:
    """Return the number of pieces of sources in the rings."""
    return sum(int(lane["event_records"]) for _, lane, _ in got.lanes)


def dropped(got: Reading) -> int:
    """Return the number of dropped sources."""
    return sum(int(lane["event_dropped"][_reader.KIND_SOURCE]) for _, lane, _ in got.lanes)


def test_a_source_is_sent_once_and_its_text_is_not_kept(worker: Start, prefix: str) -> None:
    got, reported = recorded_by(
        worker,
        prefix,
        """
import gc, sys
from brick_agent import _kernel_source
text = "".join(["mov;" * 100, str(os.getpid())])
ptx = brick.source(text, name="k", path="k.ptx")
for _ in range(5):
    assert brick.source(text) is ptx
    brick.kernel("k", source=text)
    brick.kernel("k", source=ptx)
    brick.kernel("k", source=int(ptx))
report([ptx.text, sys.getrefcount(text)])
""",
    )
    assert reported == [None, 2], "only the host still has a reference to the text"
    length = 400 + len(str(got.header["pid"]))
    assert pieces(got) == 1 + 1 + -(-length // 40) + 1


def test_a_text_of_any_class_and_content_is_harmless(worker: Start, prefix: str) -> None:
    _, reported = recorded_by(
        worker,
        prefix,
        r"""
class Bad(str):
    __hash__ = None
    def __str__(self): raise RuntimeError("no")
class Worse:
    def __str__(self): raise RuntimeError("no")
a, b = brick.source("plain"), brick.source(Bad("plain"))
c = brick.source("\ud800\0", name=Worse(), path="p\0\ud800")
brick.kernel("k", source=Bad("x"))
brick.kernel("k", source=True)
brick.kernel("k", source=Worse())
report([a is b, c.name, c.path, int(c) != int(a)])
""",
    )
    assert reported == [True, "<Worse>", "p\\0\\ud800", True]


@pytest.mark.ci
def test_more_sources_than_are_sent_are_known_by_hash_and_counted(worker: Start, prefix: str) -> None:
    got, reported = recorded_by(
        worker,
        prefix,
        """
from brick_agent import _kernel_source
for n in range(_kernel_source.KNOWN_MAX + 500):
    brick.kernel("k", source=f"kernel {n}")
late = brick.source("kernel 1200")
report([len(_kernel_source._known), int(late) == _kernel_source._source_hash("kernel 1200"), late.text])
""",
        BRICKD_EVENTS="16384",
    )
    assert reported == [1024, True, None]
    assert dropped(got) == 501
    assert pieces(got) == 2 * 1024


@pytest.mark.ci
def test_a_signal_handler_in_the_middle_of_a_source_does_not_wait(worker: Start, prefix: str) -> None:
    recorded_by(
        worker,
        prefix,
        """
import signal
fired = 0
def handler(number, frame):
    global fired
    fired += 1
    brick.source(f"handler {fired % 50}")
brick.source("the first")  # imports what it needs
signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
n = 0
while fired < 200:
    n += 1
    brick.source(f"interrupted {n % 500}")
signal.setitimer(signal.ITIMER_REAL, 0)
report(fired)
""",
    )


def test_a_forked_child_sends_the_source_its_parent_had_not_finished(worker: Start, prefix: str) -> None:
    process = worker(
        """
text = "x" * 40 * 3000
ptx = brick.source(text)
assert ptx.next_piece < 3000
child = os.fork()
if child == 0:
    assert ptx.next_piece == 0
    brick.kernel("k", source=ptx)
    report([os.getpid(), ptx.next_piece])
    pause()
    os._exit(0)
os.waitpid(child, 0)
"""
    )
    child, pieces_of_child = process.next_report()
    process.paused()
    (got,) = [each for each in readings(prefix) if each.header["pid"] == child]
    assert pieces(got) == pieces_of_child > 2000
    process.go()
    assert process.end() == 0
