"""The manual pages: brickd.1, and one page for each verb.

Owns: the form of a command in roff. Must not know: click. Invariant: roff never takes the text of a command as an
instruction to roff.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from documentation.commands import Command, Paragraph, commands, verbs


def write(folder: Path, version: str) -> list[Path]:
    """Write every page into a folder, which is created if missing; return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    every = list(commands())
    pages = []
    for command in every:
        name = command.name.replace(" ", "-")
        path = folder / f"{name}.1"
        path.write_text("\n".join(_page(name, command, version)) + "\n")
        pages.append(path)
    return pages


def _page(name: str, command: Command, version: str) -> Iterable[str]:
    yield f'.TH {name.upper()} 1 "" "brickd {version}" "brickd"'
    yield from [".nh", ".ad l"]
    yield from [".SH NAME", rf"{_text(name)} \- {_text(command.summary)}"]
    yield from [".SH SYNOPSIS", f".B {_text(command.usage)}"]
    yield ".SH DESCRIPTION"
    for paragraph in command.paragraphs:
        yield from _paragraph(paragraph)
    yield from [".SH OPTIONS", *_list(command.options)]
    top = name == "brickd"
    if top:
        yield from [".SH VERBS", *_list(list(verbs().items()))]
    others = [f"brickd-{verb}" for verb in verbs()] if top else ["brickd"]
    yield from [".SH SEE ALSO", ", ".join(rf"\fB{_text(other)}\fR(1)" for other in others)]


def _paragraph(paragraph: Paragraph) -> list[str]:
    lines = [_text(line) for line in paragraph.text.splitlines()]
    return [".PP", ".nf", *lines, ".fi"] if paragraph.literal else [".PP", *lines]


def _list(rows: Sequence[tuple[str, str]]) -> Iterable[str]:
    for term, text in rows:
        breakable = _text(term).replace("|", r"|\:")
        yield from [".TP", rf"\fB{breakable}\fR", _text(text)]


def _text(text: str) -> str:
    r"""Return a line of text, escaped for roff.

    >>> print(_text("-o FILE"), _text(".it"), _text("a\\b"))
    \-o FILE \&.it a\eb
    """
    escaped = text.replace("\\", r"\e").replace("-", r"\-")
    return rf"\&{escaped}" if escaped.startswith((".", "'")) else escaped
