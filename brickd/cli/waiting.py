"""Time that passes before the eyes of whoever looks.

Owns: the progress of a wait, on stderr. Must not know: what is watched meanwhile.
"""

from __future__ import annotations

import sys
import time

import click

_STEPS = 20


def watch(seconds: float) -> None:
    """Let the time pass in which whatever moves would move."""
    label = f"watching for {seconds:g} s whether anything moves"
    with click.progressbar(length=_STEPS, label=label, file=sys.stderr, show_eta=False) as bar:
        for _ in range(_STEPS):
            time.sleep(seconds / _STEPS)
            bar.update(1)
