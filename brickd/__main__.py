"""Starts `brickd`, as the console script and as `python -m brickd`.

Owns: how often a command collects garbage. Must not know: the work of a command.
"""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run `brickd` with the arguments of this process and return its exit code."""
    # Loading modules creates no garbage, and collecting takes a tenth of the time of `brickd status`. So a command
    # collects rarely. A daemon collects as usual.
    gc.set_threshold(100_000)
    from brickd.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
