"""The verb `silence`.

Owns: the text that describes silenced problems. Must not know: how long a problem lasts, the effects of a silence.
"""

from __future__ import annotations

from typing import Any

import click

from brickd.cli.ask import ask_daemon
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.orders import Silencing
from brickd.screens import wording
from brickd.screens.screen import Screen


def _no_words(context: click.Context, parameter: click.Parameter, typed: str) -> list[Any]:
    return []


@click.command()
@asks(Silencing, _no_words)
@output_options
def silence(query: Silencing, output: str) -> None:
    """Silence a problem for a time, or list the silenced ones.

    "brickd status" shows the ID in front of each problem. A silenced problem is counted, but it is neither listed
    nor sent as an alarm. The silence ends after the given time. The silence of a problem about numbers or weights also
    ends if the problem spreads to another worker. Needs a daemon.

    \b
    Examples:
      brickd silence 1a2b3c4d --for 30m
      brickd silence 1a2b3c4d --off
      brickd silence
    """  # noqa: D301
    document = ask_daemon("silence", query, post=True)
    emit(document, output, table=lambda screen: _lines(document, screen), rows="silenced")


def _lines(document: dict[str, Any], screen: Screen) -> list[str]:
    found = document["silenced"]
    return [line for each in found for line in wording.problem(each, screen)] or ["no problem is silenced"]
