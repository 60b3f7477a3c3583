"""Time that passes before the eyes of whoever looks.

Owns: the progress of a wait, on stderr. Must not know: what is watched meanwhile.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import click

_STEPS = 20


Passes = Callable[[float], object]


def watch(seconds: float, passes: Passes = time.sleep) -> None:
    """Let the time pass in which whatever moves would move.

    Args:
        seconds: how much.
        passes: lets a part of it pass; what it returns, if it is true, ends the wait.
    """
    label = f"watching for {seconds:g} s whether anything moves"
    with click.progressbar(length=_STEPS, label=label, file=sys.stderr, show_eta=False) as bar:
        for _ in range(_STEPS):
            if passes(seconds / _STEPS):
                break
            bar.update(1)
