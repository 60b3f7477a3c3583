"""The verb `canary`.

Owns: its actions, its exit code, the wait for results. Must not know: how results are compared, the form of the files.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from brickd.base import units
from brickd.cli import progress
from brickd.cli.ask import ask_daemon
from brickd.cli.completion import complete_workers
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import ParameterType
from brickd.errors import BrickdError, Exit
from brickd.model.canary_definitions import BYTES_MAX, CanaryDefinition, CanaryFiles
from brickd.query.orders import CanaryRoundQuery, CanaryRunning
from brickd.query.parameters import Duration
from brickd.screens.canary import definitions, results

if TYPE_CHECKING:
    from brickd.views.common import Document

_AGAIN_SECONDS = 0.2
_VERDICTS = {"equal": Exit.OK, "differ": Exit.DIFFERS, "unproven": Exit.NOT_COMPARABLE}
_WORDS = {"add": (2, 2, "NAME FILE"), "rm": (1, 1, "NAME"), "ls": (0, 0, ""), "run": (0, None, "[WORKER|SERVICE]...")}
_SCHEMA_VERSION = 1


def _complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    action, given = context.params.get("action"), context.params.get("words") or ()
    if action == "run":
        return complete_workers(context, parameter, incomplete)
    if action in ("rm", "add") and not given:
        return [each.name for each in CanaryFiles().all()[0] if each.name.startswith(incomplete)]
    return []


@click.command()
@click.argument("action", type=click.Choice(list(_WORDS)))
@click.argument("words", nargs=-1, metavar="[WORD]...", shell_complete=_complete)
@click.option(
    "--canary", "names", multiple=True, metavar="NAME", help="Run only this canary. May be given several times."
)
@click.option(
    "--timeout", type=ParameterType(Duration(0, 86_400, "")), default="15m", show_default=True, metavar="DURATION",
    help="Wait at most this long for the results of a run.",
)  # fmt: skip
@output_options
def canary(action: str, words: Sequence[str], names: tuple[str, ...], timeout: float, output: str) -> Exit:
    """Run fixed prompts in workers, and compare what they compute.

    "add NAME FILE" defines a canary, "rm NAME" removes it, "ls" lists all. FILE is JSON (- is stdin) with "tokens",
    the ids of the prompt, and optionally "forced", the ids that follow it. "run" runs the canaries in the named workers
    or services, one worker of a service at a time, and compares the results within each service. A worker takes part if
    its program calls brick.canaries(model, orders=True). Exits 1 if a worker differs. Exits 6 if a canary was not
    compared in a worker. "run" needs a daemon.

    \b
    Examples:
      brickd canary add greeting greeting.json
      brickd canary ls
      brickd canary run api
    """  # noqa: D301
    least, most, wanted = _WORDS[action]
    if len(words) < least or (most is not None and len(words) > most):
        seen = " ".join(words) or "none"
        raise click.UsageError(f"wrong words after canary {action}: {seen}, expected {wanted or 'none'}")
    if names and action != "run":
        raise click.UsageError(f"--canary contradicts {action}: only run takes it")
    if action == "run":
        return _run(CanaryRunning(tuple(words), names), timeout, output)
    files = CanaryFiles()
    if action == "add":
        listed = [files.add(words[0], _content(words[1]))]
    elif action == "rm":
        files.remove(words[0])
        listed = []
    else:
        listed, wrong = files.all()
        for each in wrong:
            print_message(each)
    document = {"schema_version": _SCHEMA_VERSION, "canaries": [_definition(each) for each in listed]}
    emit(document, output, table=lambda screen: definitions(document, screen, action), rows="canaries")
    return Exit.OK


def _content(file: str) -> bytes:
    try:
        if file == "-":
            return sys.stdin.buffer.read(BYTES_MAX + 1)
        with Path(file).open("rb") as opened:
            return opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise BrickdError(f"{file}: {error.strerror}") from None


def _definition(each: CanaryDefinition) -> dict[str, Any]:
    return {"canary": each.name, "tokens": len(each.tokens), "forced": len(each.forced), "chunk": each.chunk}


def _run(order: CanaryRunning, seconds: float, output: str) -> Exit:
    until = time.monotonic() + seconds
    document = ask_daemon("canary/run", order, post=True)
    query = CanaryRoundQuery(document["round"])
    while not document["over"] and time.monotonic() < until:
        over = sum(each["state"] == "over" for each in document["results"])
        progress.show(f"{over} of {units.many(len(document['results']), 'result')}")
        time.sleep(_AGAIN_SECONDS)
        document = ask_daemon("canary", query)
    progress.show("")
    emit(document, output, table=lambda screen: results(document, screen), rows="results")
    return _code(document, seconds)


def _code(document: Document, seconds: float) -> Exit:
    code = _VERDICTS[document["verdict"]]
    if not document["over"]:
        print_message(f"not all canaries ended within {seconds:g} s; the daemon still waits for them")
    return code
