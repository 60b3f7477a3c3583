"""The verb `set`.

Owns: the text that describes changed and current settings. Must not know: how a setting is applied.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from brickd.base import escape, thresholds, units
from brickd.cli.ask import ask_daemon
from brickd.cli.completion import complete_services
from brickd.cli.output import emit, output_options
from brickd.cli.query_options import asks
from brickd.query.orders import Setting, sentence
from brickd.shm.sampling import ALL, DEFAULT


@click.command()
@asks(Setting, complete_services)
@output_options
def set(query: Setting, output: str) -> None:
    """Change what workers record, or a threshold of the daemon.

    The setting applies to running workers and to workers that start later. When the daemon stops, each worker returns
    to the setting with which it was started. The next daemon applies the changed setting again. "brickd status" reports
    --recording off as a problem. The setting does not affect weights. Without options, the command prints the current
    setting. Without SERVICE, it prints the thresholds, or changes them with --threshold; the daemon keeps changed
    thresholds across restarts. Needs a daemon.

    \b
    Examples:
      brickd set api --spans on
      brickd set api --fingerprints 1/16 --sites 'layers.*.mlp'
      brickd set api --fingerprints default --sites all
      brickd set --threshold stuck_min=2m
    """  # noqa: D301
    document = ask_daemon("set", query, post=True)
    emit(document, output, table=lambda seen: [escape.text(line, seen.width) for line in _lines(document)])


def _lines(document: dict[str, Any]) -> Iterator[str]:
    if document["service"] is None:
        for each in document["thresholds"]:
            value, default = (thresholds.written(each[key], each["unit"]) for key in ("value", "default"))
            is_default = "" if each["value"] == each["default"] else f" (default: {default})"
            yield f"{each['name']} = {value}{is_default}: {each['meaning']}"
        return
    yield f"{document['service']}: {sentence(document)} in {units.many(document['workers'], 'worker')}"
    if document["deaf"] and (document["fingerprints"], document["sites"]) != (DEFAULT, [ALL]):
        deaf = units.many(document["deaf"], "worker")
        its = "its" if document["deaf"] == 1 else "their"
        yield f"{deaf} cannot obey: {its} brick-agent is too old, and records all steps and sites"
