"""An honest worker that hands work to a device all the while, and counts what it handed over.

Run as a module: `python -m benchmarks.beside` prints a line once it records, and how many starts there were when its
standard input says a line; it ends with that.
"""

from __future__ import annotations

import select
import sys

SERVICE = "honest"
_STARTS, _PAUSE_SECONDS = 20, 0.01


def main() -> None:
    """About 2,000 starts a second: a ring of the usual size is full after two."""
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
