"""The verb `set`.

Owns: what is said of an order that was carried out, and of what is set. Must not know: how.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from brickd.base import escape, units
from brickd.cli.ask import ask_daemon
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.cli.shell_completion import complete_services
from brickd.query.orders import Setting, sentence
from brickd.shm.sampling import ALL, DEFAULT


@click.command()
@asks(Setting, complete_services)
@output_options
def set(question: Setting, output: str) -> None:
    """Change what the workers of a service record.

    Applies to the workers that run now and to workers that start later. Stopping the daemon restores the setting with
    which each worker was started. The next daemon applies the changed setting again. "brickd status" reports
    --recording off as a problem. The setting does not affect weights. Without options, prints the current setting.
    Needs a daemon.

    \b
    Examples:
      brickd set api --spans on
      brickd set api --fingerprints 1/16 --sites 'layers.*.mlp'
      brickd set api --fingerprints default --sites all
    """  # noqa: D301
    document = ask_daemon("set", question, post=True)
    emit(document, output, table=lambda seen: [escape.text(line, seen.width) for line in _lines(document)])


def _lines(document: dict[str, Any]) -> Iterator[str]:
    yield f"{document['service']}: {sentence(document)} in {units.many(document['workers'], 'worker')}"
    if document["deaf"] and (document["fingerprints"], document["sites"]) != (DEFAULT, [ALL]):
        deaf = units.many(document["deaf"], "worker")
        yield f"{deaf} cannot be told: all steps and sites are recorded there, for its brick-agent is older"
