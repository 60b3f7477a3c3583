"""The workers, and the process that forks them: it loads the agent and nothing of brickd.

`python -m soaking.worker FOLDER` reads plans from standard input, a line each, and forks a worker for each. Every
worker, a worker's child included, says "NUMBER PID SEGMENT" in a line on standard output once it records; its account
lies in the folder under its number. SIGTERM has it end, SIGUSR1 work without a rest: it is to be killed. An empty line
is the end of plans; where standard input ends without one, whoever gave them is gone, and all workers go with it, as
they do where the process is gone that forks them.
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

_CHUNK = 64  # spans that are announced together: so far a killed worker's account is uncertain
_FLOOD = 6_000  # more than a ring holds
_HURRIED = 50  # batches without a rest, at most
_PR_SET_CHILD_SUBREAPER = 36

request, work, left = (brick.brick(name) for name in (REQUEST, WORK, LEFT))
kernel = brick.brick(KERNEL)


def _record(account: Account, row: int, plan: Plan, spans: int) -> None:
    """One thread's spans, nested by twos."""
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
    """Work for a device, and that the host has waited for it; of some of it the device says how long it took."""
    ids: list[int] = []
    for begun in range(0, starts, _CHUNK):
        chunk = min(_CHUNK, starts - begun)
        with account.about_to(0, "defer", chunk):
            ids += [kernel.defer(stream=stream) for _ in range(chunk)]
    given = [id for id in ids if id]
    if given:  # else there is nothing to finalize, and nothing would be recorded
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
    """Until SIGTERM, or until nobody holds the other end of the leash."""
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
    with account.about_to(0, "spans", 1), work:  # this thread has a lane: without one its events count among the spans
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
    """Fork them; afterwards wait until all have ended."""
    folder = Path(sys.argv[1])
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # whose parent was killed comes to be ours
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
    leash, held = os.pipe()
    line = ""
    for line in sys.stdin:
        if line == "\n":
            break
        if os.fork() == 0:
            os.close(held)
            _work(Plan.of(line), folder, leash)
            return  # by the usual end, which removes the segment where nobody consumes it
    os.close(1)  # whoever listens hears the end once the last worker has ended
    if line != "\n":
        os.killpg(0, signal.SIGKILL)
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


if __name__ == "__main__":
    main()
