"""A correct worker that submits work to a device all the time and counts how often.

`python -m benchmarks.beside` prints a line when it begins to record. When it gets a line on stdin, it stops and prints
the number of its deferred starts. The program ends when stdin is closed.
"""

from __future__ import annotations

import select
import sys

SERVICE = "honest"
_STARTS, _PAUSE_SECONDS = 20, 0.01


def main() -> None:
    """Make about 2,000 deferred starts a second. They fill a ring of the default size in two seconds."""
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
