"""The workers of the storm, and the process that forks them. That process does not load brickd.

`python -m soaking.storm_worker FOLDER` reads lines "SERVICE SEED" from stdin and forks a worker for each. A worker may
fork or exec another worker. Each worker creates a file "SERVICE,PID,SEGMENT" in the folder for its counts, and then
writes a line "PID ordered" or "PID spawned" to stdout. A worker counts each span before the span begins and after it
has ended. SIGTERM makes a worker end. All workers end when the process that forked them ends, and this process ends
when its stdin closes.
"""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import sys
from pathlib import Path
from threading import Event, Thread

import brick_agent as brick
from brick_agent import _core

from soaking.account import ROWS, Account

BRICKS = ("request", "attention", "mlp", "spawn")
# the share of workers that exec, the share that fork, and the number of batches within which they do so
_BECOMES, _FORKS, _BATCHES = 0.1, 0.15, 20
_PR_SET_CHILD_SUBREAPER = 36

handles = [brick.brick(name) for name in BRICKS]
end = Event()


def _record(account: Account, row: int, spans: int) -> None:
    """Record the spans of one thread. They come in pairs: the second span is inside the first."""
    for number in range(spans):
        outer, inner = BRICKS[0], BRICKS[1 + number % 2]
        with account.about_to(row, outer, 1), handles[0], account.about_to(row, inner, 1), handles[1 + number % 2]:
            pass


def _spawn(account: Account, draw: random.Random, service: str, folder: Path, leash: int) -> None:
    """Fork, or exec another worker, in the middle of a span."""
    seed = str(draw.randrange(1 << 30))
    with account.about_to(0, BRICKS[3], 1), handles[3]:
        if draw.random() < _BECOMES / (_BECOMES + _FORKS):
            os.set_inheritable(leash, True)
            words = ("-m", "soaking.storm_worker", str(folder), service, seed, str(leash))
            os.execv(sys.executable, (sys.executable, *words))
        if os.fork() == 0:
            _work(folder, service, int(seed), leash, "spawned")
            sys.exit()


def _work(folder: Path, service: str, seed: int, leash: int, how: str) -> None:
    """Work until SIGTERM, or until the pipe `leash` is closed at its other end. `how` is "ordered" or "spawned"."""
    draw = random.Random(seed)
    os.environ["BRICKD_SERVICE"] = service
    if not brick.init():
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    account = Account(folder / f"{service},{os.getpid()},{_core._segment_name()}", BRICKS)
    os.write(1, f"{os.getpid()} {how}\n".encode())
    threads, spans = draw.choice((1, 1, 2, ROWS)), draw.choice((1, 8, 64))
    rests_s = draw.choice((0.005, 0.02, 0.1))
    spawns_at = draw.randrange(_BATCHES) if draw.random() < _BECOMES + _FORKS else -1
    number = 0
    while not end.is_set():
        if leash in select.select([leash], [], [], rests_s)[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        helpers = [Thread(target=_record, args=(account, row, spans)) for row in range(1, threads)]
        for helper in helpers:
            helper.start()
        if number == spawns_at:
            _spawn(account, draw, service, folder, leash)
        _record(account, 0, spans)
        for helper in helpers:
            helper.join()
        number += 1


def main() -> None:
    """Fork the workers; after an exec, run as a worker."""
    folder = Path(sys.argv[1])
    signal.signal(signal.SIGTERM, lambda *_: end.set())
    if len(sys.argv) > 2:
        _work(folder, sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), "spawned")
        return
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)  # children of killed workers become children of this process
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    leash, held = os.pipe()
    for line in sys.stdin:
        service, seed = line.split()
        if os.fork() == 0:
            os.close(held)
            _work(folder, service, int(seed), leash, "ordered")
            return
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
