"""The commands of brickd, as data for the CLI reference and the manual pages.

Owns: the data read from click. Must not know: Markdown, roff. Invariant: each text is the text that `--help` prints.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import click

from brickd.cli import brickd as group
from brickd.query.verbs import VERBS


class Paragraph(NamedTuple):
    """A paragraph of a help text; if it is `literal`, its lines keep their breaks."""

    text: str
    literal: bool


class Command(NamedTuple):
    """One command, with the texts of its `--help`."""

    name: str
    usage: str
    paragraphs: list[Paragraph]
    options: list[tuple[str, str]]

    @property
    def summary(self) -> str:
        """Return the first sentence, without its full stop."""
        return self.paragraphs[0].text.partition(". ")[0].rstrip(".")


def commands() -> Iterator[Command]:
    """Return `brickd` itself, then each verb in the order of `brickd --help`."""
    context = click.Context(group, info_name="brickd", **group.context_settings)
    yield _command(group, context)
    for name in VERBS:
        verb = group.get_command(context, name)
        assert verb is not None
        yield _command(verb, click.Context(verb, parent=context, info_name=name))


def verbs() -> dict[str, str]:
    """Return each verb and its line in `brickd --help`."""
    return {name: verb.help for name, verb in VERBS.items()}


def paragraphs(help_text: str) -> list[Paragraph]:
    r"""Return the paragraphs of a help text; click's `\b` marks a paragraph that keeps its line breaks.

    >>> paragraphs("Show\nit.\n\n\b\nExamples:\n  brickd status")
    [Paragraph(text='Show it.', literal=False), Paragraph(text='Examples:\n  brickd status', literal=True)]
    """
    found = []
    for text in inspect.cleandoc(help_text).split("\n\n"):
        literal = text.startswith("\b\n")
        found.append(Paragraph(text.removeprefix("\b\n") if literal else " ".join(text.split()), literal))
    return found


def _command(command: click.Command, context: click.Context) -> Command:
    options = [each for each in command.get_params(context) if isinstance(each, click.Option)]
    records = [record for option in options if (record := option.get_help_record(context)) is not None]
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    return Command(context.command_path, usage, paragraphs(command.help or ""), records)
