"""The verb `notify`.

Owns: the text that describes the result of a test alarm. Must not know: how an alarm is sent.
"""

from __future__ import annotations

from typing import Any

import click

from brickd.base import escape
from brickd.cli.ask import noted
from brickd.cli.output import emit, output_options
from brickd.client import client
from brickd.errors import Exit
from brickd.screens.screen import Screen
from brickd.views import fetch_answer

_SECONDS = 35.0  # longer than the daemon waits for its targets


@click.command()
@click.argument("what", type=click.Choice(["test"]))
@output_options
def notify(what: str, output: str) -> Exit:
    """Send a test alarm to the daemon's targets.

    Sends one document with the state "test" to the command of "brickd up --notify-exec" and to the URL of "brickd up
    --notify-url", and shows the answer of each. Exits 1 if a target failed. Needs a daemon.

    \b
    Example:
      brickd notify test
    """  # noqa: D301
    asked = client.ask(f"notify/{what}", post=True, seconds=_SECONDS)
    document = noted(fetch_answer.received(asked.document()))
    emit(document, output, table=lambda screen: _lines(document, screen), rows="targets")
    return Exit.OK if all(each["ok"] for each in document["targets"]) else Exit.DIFFERS


def _lines(document: dict[str, Any], screen: Screen) -> list[str]:
    return [
        screen.paint(escape.text(f"{each['target']}: {each['answer']}", screen.width), "green" if each["ok"] else "red")
        for each in document["targets"]
    ]
