"""A report as Markdown, for a ticket.

Owns: its sections and their order. Must not know: where documents come from, how a screen draws them. Invariant: No
string of a document becomes markup: all are in blocks whose fence is longer than any run of backticks inside.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from brickd.base import escape
from brickd.client.other_version import ours
from brickd.screens import bricks, coverage, status, wording
from brickd.screens.screen import Screen
from brickd.web.report_documents import STATUS, ReportDocument

_SCREEN = Screen(200, colour=False)  # so that usual names are not cut
_MOST_BRICKS = 20


def report_text(documents: Sequence[ReportDocument], made: str) -> str:
    """Return the text; `made` is the time at which it was made."""
    found = {each.view: each for each in reversed(documents)}  # the first of each view
    of_status = found[STATUS].document
    assert of_status is not None
    problems = [line for each in of_status["problems"] or () for line in wording.problem(each, _SCREEN)]
    sections = [
        f"# brickd report\n\nmade {made} by brickd {ours().version}\n",
        _section("Status", status.render(of_status, _SCREEN)),
    ]
    if notes := of_status["words"]:  # such as where a recording is damaged
        sections.append(_section("Notes", map(escape.text, notes)))
    if problems:
        sections.append(_section("Problems", problems))
    if (compared := found["coverage"]).document is not None:
        sections.append(_section("What was compared", coverage.render(compared.document, _SCREEN)))
    if (largest := found["bricks"].document) is not None:
        shown = largest["bricks"][:_MOST_BRICKS]
        lines = bricks.render({**largest, "bricks": shown}, _SCREEN)
        left = len(largest["bricks"]) - len(shown)
        sections.append(_section("Largest bricks", [*lines, *wording.more(left, "more brick", "")]))
    sections += [f"{each.view}: {each.error}\n" for each in documents if each.error and "brick" not in each.parameters]
    return "\n".join(sections)


def _section(title: str, lines: Iterable[str]) -> str:
    text = "\n".join(lines)
    longest = max(map(len, re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"## {title}\n\n{fence}text\n{text}\n{fence}\n"
