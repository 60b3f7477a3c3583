"""The verb `completion`.

Owns: its argument. Must not know: the completions.
"""

from __future__ import annotations

import click

from brickd.cli.shell_completion import SHELLS, script


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that completes brickd commands in a shell.

    A comment at the start of the script says how to install it.
    """
    click.echo(script(context.find_root().command, shell), nl=False)
