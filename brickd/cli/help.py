"""The verb `help`.

Owns: the argument of `help`. Must not know: any verb's text.
"""

from __future__ import annotations

import click

from brickd.query.verbs import VERBS


def _complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    return [verb for verb in VERBS if verb.startswith(incomplete)]


@click.command()
@click.argument("verb", required=False, shell_complete=_complete)
@click.pass_context
def help(context: click.Context, verb: str | None) -> None:
    """Show the help of brickd, or of a verb.

    \b
    Examples:
      brickd help
      brickd help status
    """  # noqa: D301
    root = context.find_root()
    if verb is None:
        click.echo(root.get_help())
        return
    assert isinstance(root.command, click.Group)
    name, command, _ = root.command.resolve_command(root, [verb])
    assert command is not None
    click.echo(command.get_help(click.Context(command, info_name=name, parent=root)))
