"""A valid worker that continuously submits work to a device and counts it.

As a module (`python -m benchmarks.beside`) it prints a line when it records, and the number of starts for each line on
stdin; it ends when stdin is closed.
"""

from __future__ import annotations

import select
import sys

SERVICE = "honest"
_STARTS, _PAUSE_SECONDS = 20, 0.01


def main() -> None:
    """Make about 2,000 starts a second: a ring of the usual size is full after two seconds."""
    import brick_agent as brick

    if not brick.init(SERVICE):
        raise RuntimeError("no segment could be opened: see the line that brick_agent wrote")
    work, starts = brick.brick("work"), 0
    print(flush=True)
    while not select.select([sys.stdin], [], [], _PAUSE_SECONDS)[0]:
        for _ in range(_STARTS):
            work.defer()
            starts += 1
        brick.finalize()
    sys.stdin.readline()
    print(starts, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
