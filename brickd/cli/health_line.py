"""Whether all is well, in one line.

Owns: that line, and the document behind it. Must not know: what is healthy. Invariant: what is unhealthy comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from brickd.base import escape
from brickd.cli.health import Bounds, Condition, conditions, healthy
from brickd.cli.output import Screen, emit, say
from brickd.errors import Exit
from brickd.views.fetch_answer import FetchedAnswer
from brickd.views.next_command import command

if TYPE_CHECKING:
    from brickd.views.common import Document


def check(found: FetchedAnswer, bounds: Bounds, output: str) -> Exit:
    """Judge a status, and say so."""
    for words in found.words:
        say(words)
    judged = [_asked(found.document, each) for each in conditions(found.document, found.missing, bounds)]
    well = healthy(judged)
    document = {
        "schema_version": 1,
        "source": found.document["source"],
        "healthy": well,
        "conditions": [condition.document() for condition in judged],
    }
    emit(document, output, table=lambda seen: [_line(judged, well, seen)], rows="conditions")
    return Exit.OK if well else Exit.DIFFERS


def _asked(document: Document, judged: Condition) -> Condition:
    return judged if judged.command is None else replace(judged, command=command(document, judged.command))


def _line(judged: Sequence[Condition], well: bool, seen: Screen) -> str:
    if well:
        said = ", ".join(condition.seen for condition in judged)
        return seen.paint(escape.text(f"healthy: {said}", seen.width), "green")
    said = "; ".join(f"{each.seen}, expected {each.wanted} ({each.command})" for each in judged if not each.healthy)
    return seen.paint(escape.text(f"unhealthy: {said}", seen.width), "red")
