"""The report of a profiler as Markdown and as HTML, and the table of all formats.

Owns: the report as Markdown and as HTML. Must not know: the content of the tables. Invariant: a name is shown as text
in its cell and as nothing else, so markup, links, scripts and line breaks in it have no effect on the page.
"""

from __future__ import annotations

from brick_agent._compat.profiler.report import ProfilerReport, as_json, as_text, headline, notes, tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MARKUP = str.maketrans({character: f"\\{character}" for character in "\\`*_[]<>|&~#"})


def as_markdown(report: ProfilerReport) -> str:
    """Write the report as Markdown with pipe tables."""
    parts = [_plain(headline(report))]
    for columns, rows in tables(report):
        lines = ["| " + " | ".join(_plain(each.title) for each in columns) + " |"]
        lines.append("|" + "|".join("---" if each.is_text else "---:" for each in columns) + "|")
        lines += ["| " + " | ".join(_plain(each.cell(row)) for each in columns) + " |" for row in rows]
        parts.append("\n".join(lines))
    return "\n\n".join([*parts, *map(_plain, notes(report))]) + "\n"


def _plain(text: str) -> str:
    return text.translate(_MARKUP)


def as_html(report: ProfilerReport) -> str:
    """Write the report as an HTML page that loads nothing from elsewhere."""
    from html import escape

    def cells(kind: str, values: list[tuple[str, bool]]) -> str:
        row = (f"<{kind}{'' if is_text else ' align=right'}>{escape(text)}</{kind}>" for text, is_text in values)
        return f"<tr>{''.join(row)}</tr>"

    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>BrickProfiler</title><body>']
    parts.append(f"<p>{escape(headline(report))}</p>")
    for columns, rows in tables(report):
        lines = [cells("th", [(each.title, each.is_text) for each in columns])]
        lines += [cells("td", [(each.cell(row), each.is_text) for each in columns]) for row in rows]
        parts += ["<table>", *lines, "</table>"]
    return "\n".join([*parts, *(f"<p>{escape(note)}</p>" for note in notes(report)), "</body></html>"]) + "\n"


FORMATS: dict[str, Callable[[ProfilerReport], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "html": as_html,
    "json": as_json,
}
