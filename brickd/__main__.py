"""The entry point of `brickd`: of the console script and of `python -m brickd`.

Owns: how often a command collects garbage. Must not know: what a command does.
"""

from __future__ import annotations

import gc
import sys


def main() -> int:
    """Run `brickd` with the arguments of this process and return its exit code."""
    # Loading modules creates no garbage, and collecting garbage would take a tenth of the run time of `brickd status`.
    # So a command collects garbage rarely. A daemon uses Python's default.
    gc.set_threshold(100_000)
    from brickd.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
