"""The workers, and the process that forks them. That process loads the agent, but not brickd.

`python -m soaking.worker FOLDER` reads plans from stdin, one per line, and forks a worker for each. Every worker,
including the child of a worker, writes a line "NUMBER PID SEGMENT" to stdout when it begins to record. The account of
the worker is the file NUMBER in the folder. SIGTERM ends a worker. SIGUSR1 makes it work without pauses, before it is
killed. An empty line ends the plans. If stdin ends without an empty line, the parent has died, and all workers are
killed. The workers also end if the process that forked them ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
from pathlib import Path
from threading import Thread

import brick_agent as brick
from brick_agent import _core

from soaking.account import Account
from soaking.plan import KERNEL, LEFT, MEASURED_NS, REQUEST, WORK, Plan

_CHUNK = 64  # spans that are announced together; if a worker is killed, this many of its spans are uncertain
_FLOOD = 6_000  # more records than a ring has room for
_HURRIED = 50  # the most batches without a pause
_PR_SET_CHILD_SUBREAPER = 36

request, work, left = (brick.brick(name) for name in (REQUEST, WORK, LEFT))
kernel = brick.brick(KERNEL)


def _record(account: Account, row: int, plan: Plan, spans: int) -> None:
    """Record the spans of one thread. They come in pairs: the second span is inside the first."""
    for begun in range(0, spans, _CHUNK):
        chunk = min(_CHUNK, spans - begun)
        with account.about_to(row, "spans", 2 * chunk):
            for _ in range(chunk):
                with request, work:
                    pass
    if row and plan.leaves_open:
        with account.about_to(row, "spans", 1):
            left.start()


def _defer(account: Account, stream: int, starts: int) -> None:
    """Defer work and finalize it; some of the work has a measured time."""
    ids: list[int] = []
    for begun in range(0, starts, _CHUNK):
        chunk = min(_CHUNK, starts - begun)
        with account.about_to(0, "defer", chunk):
            ids += [kernel.defer(stream=stream) for _ in range(chunk)]
    given = [id for id in ids if id]
    if given:  # if the agent accepted no work, there is nothing to finalize or to measure
        durations = dict.fromkeys(given[::4], MEASURED_NS)
        with account.about_to(0, "measured", len(durations)), account.about_to(0, "finalize", 1):
            brick.finalize(stream=stream, durations=durations)


def _batch(account: Account, number: int, plan: Plan) -> None:
    more = _FLOOD if plan.flood and number % plan.flood == 0 else 0
    helpers = [Thread(target=_record, args=(account, row, plan, plan.spans)) for row in range(1, plan.threads)]
    for helper in helpers:
        helper.start()
    _record(account, 0, plan, plan.spans + more)
    if plan.defers:
        _defer(account, number % 3, plan.defers + more)
    for helper in helpers:
        helper.join()


def _work(plan: Plan, folder: Path, leash: int) -> None:
    """Work until SIGTERM, or until the pipe `leash` is closed at its other end."""
    account = Account(folder / plan.number)
    order_read, order_written = os.pipe()
    for end in (order_read, order_written):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(order_written)
    for order in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(order, lambda *_: None)
    os.environ |= {"BRICKD_SERVICE": plan.service, "BRICKD_WORKER": plan.worker, "BRICKD_LANES": str(plan.lanes)}
    if not brick.init():
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    # Open a lane with a first span. If the thread got no lane, its events would be counted as lost spans.
    with account.about_to(0, "spans", 1), work:
        pass
    os.write(1, f"{plan.number} {os.getpid()} {_core._segment_name()}\n".encode())

    hurried = 0

    def ends_within(seconds: float) -> bool:
        nonlocal hurried
        hurried = max(hurried - 1, 0)
        readable = select.select([order_read, leash], [], [], 0.0 if hurried else seconds)[0]
        if leash in readable:
            os.kill(os.getpid(), signal.SIGKILL)
        orders = os.read(order_read, 64) if readable else b""
        if signal.SIGUSR1 in orders:
            hurried = _HURRIED
        return signal.SIGTERM in orders

    number = 0
    while not ends_within(plan.rests_s):
        number += 1
        _batch(account, number, plan)
        if number == plan.forks and os.fork() == 0:
            _work(plan.child(), folder, leash)
            sys.exit()
        if number == 10 and ends_within(plan.pauses_s):
            break
    account.end()


def main() -> None:
    """Fork the workers, and wait until all have ended."""
    folder = Path(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # children of killed workers become children of this process
    # the kernel removes ended workers at once, because nothing needs their exit status
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    leash, held = os.pipe()
    line = ""
    for line in sys.stdin:
        if line == "\n":
            break
        if os.fork() == 0:
            os.close(held)
            _work(Plan.of(line), folder, leash)
            return  # a normal end removes a segment that no daemon drains
    os.close(1)  # close stdout here, so that the reader sees the end of the pipe when the last worker has ended
    if line != "\n":
        os.killpg(0, signal.SIGKILL)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
