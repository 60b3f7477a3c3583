"""The verb `run`.

Owns: its options. Must not know: what becomes of the command's processes.
"""

from __future__ import annotations

import click

from brickd import launch
from brickd.cli.output import say


@click.command(context_settings={"allow_interspersed_args": False})
@click.option("--service", metavar="NAME", help="What its workers are called together; else by the command.")
@click.option(
    "--fingerprints", metavar="off|1/N|all", help="Of which steps what is computed is compared; else of one of 64."
)
@click.argument("command", metavar="-- CMD", nargs=-1, required=True, type=click.UNPROCESSED)
def run(command: tuple[str, ...], service: str | None, fingerprints: str | None) -> int:
    """Run a command: torch models in its processes are timed, and compared.

    Nothing is changed in it. brick_agent has to be installed where the command's Python is. The command takes the
    place of this process, and ends as it would have.
    """
    try:
        given = launch.inherited()
        environment = launch.environment(command, given, service=service, fingerprints=fingerprints)
        if (why := launch.unheard(command, given)) is not None:
            say(why)
        launch.begin(command, environment)
    except launch.NotBegunError as error:
        say(str(error))
        return error.code
