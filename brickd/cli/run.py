"""The verb `run`.

Owns: the options of `run`. Must not know: how the command's processes are instrumented.
"""

from __future__ import annotations

import click

from brickd import launch
from brickd.cli.output import print_message


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--service", metavar="NAME", help="Name the group of workers (default: the name of the command).")
@click.option(
    "--fingerprints",
    metavar="off|1/N|all",
    help="Record checksums in these steps: none, one in N, or all (default: 1/64).",
)
@click.argument("command", metavar="-- CMD", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...], service: str | None, fingerprints: str | None) -> int:
    """Run a command; time and compare its torch models.

    The program needs no change. brick-agent must be installed in the program's Python environment. The command replaces
    this process, so brickd exits with the exit code of the command.

    \b
    Examples:
      brickd run --service api -- uvicorn app:app --workers 4
    """  # noqa: D301
    return launch.run(command, service=service, fingerprints=fingerprints, log=print_message)
