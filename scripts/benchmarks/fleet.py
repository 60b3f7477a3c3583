"""Many cheap workers: each records its bricks once, then waits for the end of the run.

`python -m benchmarks.fleet WORKERS BRICKS` forks the workers. When each has recorded or failed, it prints how many have
recorded. The workers end when its stdin closes, even if the process at the other end is killed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import IO

from benchmarks.workplace import Workplace

SERVICE = "api"


@contextmanager
def started(place: Workplace, command: Sequence[str], workers: int) -> Iterator[IO[bytes]]:
    """Run a command that forks workers, prints how many recorded, and ends when its stdin closes. Yield its stdin."""
    process = subprocess.Popen(
        command, env=place.environment, cwd=place.folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    with process:
        try:
            found = int(process.stdout.readline() or 0)
            if found != workers:
                raise RuntimeError(f"{found} workers recorded, expected {workers}: see the lines above")
            yield process.stdin
        finally:
            process.stdin.close()


@contextmanager
def fleet(place: Workplace, workers: int, bricks: int) -> Iterator[None]:
    with started(place, (sys.executable, "-m", "benchmarks.fleet", str(workers), str(bricks)), workers):
        yield


def _work(worker: int, bricks: int) -> None:
    import brick_agent as brick

    if not brick.init(SERVICE, worker):
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    for number in range(bricks):
        with brick.brick(f"brick {number}"):
            pass


def main() -> None:
    workers, bricks = int(sys.argv[1]), int(sys.argv[2])
    ready, recorded = os.pipe()
    children = []
    for worker in range(workers):
        child = os.fork()
        if child == 0:
            os.close(ready)
            _work(worker, bricks)
            os.write(recorded, b".")
            os.close(recorded)
            os.read(0, 1)
            return  # a normal exit removes the segment
        children.append(child)
    os.close(recorded)
    with open(ready, "rb") as pipe:
        done = len(pipe.read())  # returns when every worker has closed its end of the pipe
    print(done, flush=True)
    for child in children:
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
