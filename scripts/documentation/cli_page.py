"""The generated part of docs/reference/cli.md.

Owns: the form of a command in Markdown. Must not know: click.
"""

from __future__ import annotations

from collections.abc import Iterable

from documentation.commands import Command, Paragraph, commands, verbs

MARKER = "<!-- commands -->"
PAGE = "reference/cli.md"


def filled(text: str) -> str:
    """Return the page, with the commands in place of the marker."""
    return text.replace(MARKER, "\n".join(_lines(commands())))


def _lines(all_of_them: Iterable[Command]) -> Iterable[str]:
    brickd, *others = all_of_them
    yield from _section(brickd)
    yield from ["| verb | |", "|---|---|"]
    yield from (f"| [`{name}`](#brickd-{name}) | {_cell(text)} |" for name, text in verbs().items())
    yield ""
    for command in others:
        yield from _section(command)


def _section(command: Command) -> Iterable[str]:
    yield from [f"## {command.name}", "", "```text", command.usage, "```", ""]
    for paragraph in command.paragraphs:
        yield from _paragraph(paragraph)
    if command.options:
        yield from ["| option | |", "|---|---|"]
        yield from (f"| `{_cell(names)}` | {_cell(text)} |" for names, text in command.options)
        yield ""


def _paragraph(paragraph: Paragraph) -> list[str]:
    if not paragraph.literal:
        return [paragraph.text, ""]
    title, *rest = paragraph.text.splitlines()
    if not title.endswith(":"):
        title, rest = "", [title, *rest]
    return [*([title, ""] if title else []), "```text", *(line.removeprefix("  ") for line in rest), "```", ""]


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
