"""The verb `spans`.

Owns: the screen of spans. Must not know: how spans are read. Invariant: spans that are not shown are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from brickd.base import escape, units
from brickd.base.timestamps import rfc3339
from brickd.base.units import plural
from brickd.cli import progress
from brickd.cli.export import NO_SPANS
from brickd.cli.output import emit, output_options, print_message
from brickd.cli.query_options import asks
from brickd.export import longest_spans
from brickd.export.recorded_steps import require_recordings
from brickd.query.queries import SpansQuery
from brickd.recording.replay import opened_files
from brickd.screens import table as tables
from brickd.screens import wording
from brickd.screens.screen import Screen
from brickd.screens.table import Column, Figure

_FIGURES = (
    Figure(Column("WORKER"), "worker", str),
    Figure(Column("BRICK"), "brick", lambda name: name or "?"),
    Figure(Column("LAYER", "right", spare=3), "layer", wording.identifier),
    Figure(Column("BEGIN (UTC)", spare=2), "begin", str),
    Figure(Column("DURATION", "right"), "duration_ns", units.duration),
    Figure(Column("SELF", "right", spare=1), "self_ns", units.duration),
    Figure(Column("STEP", spare=4), "step", lambda step: step or ""),
    Figure(Column("ELEMENTS", "right", spare=5), "elements", units.count),
    Figure(Column("BYTES", "right", spare=6), "bytes", units.size),
    Figure(Column("LANE", "right", spare=7), "place", str),
    Figure(Column("KIND", spare=8), "kind", str),
)


@click.command()
@asks(SpansQuery)
@output_options
def spans(query: SpansQuery, recordings: Sequence[str], output: str) -> None:
    """List the longest spans of a recording.

    Needs a recording with spans ("brickd record --spans"). "brickd export" writes all spans into a file.

    \b
    Examples:
      brickd spans run.brick
      brickd spans run.brick api/0 --brick moe_gemm --longer 5ms -n 100
    """  # noqa: D301
    require_recordings("spans", recordings, query.names)
    with progress.reading() as reads, opened_files(recordings, reads) as forms:
        document, words = longest_spans.find(forms, query)
    for each in words:
        print_message(each)
    emit(document, output, table=lambda screen: _render(document, screen), rows="spans")


def _render(document: dict[str, Any], screen: Screen) -> list[str]:
    shown = document["spans"]
    if not shown:
        return [NO_SPANS if document["spans_recorded"] is False else "no span matches"]
    rows = [wording.with_step(each) | {"begin": _begin(each["begin_unix_ns"]), "place": _place(each)} for each in shown]
    lines = tables.figures(_FIGURES, rows, screen.width)
    if more := document["spans_total"] - len(shown):
        lines.append(
            escape.text(f"…{plural(more, 'shorter span')} (-n {len(shown) * 10:,})".replace(",", ""), screen.width)
        )
    return lines


def _begin(ns: int) -> str:
    return f"{rfc3339(ns)[11:19]}.{ns // 1000 % 1_000_000:06}"


def _place(span: dict[str, Any]) -> str:
    if span["stream"] is not None:
        return f"stream {span['stream'].lstrip('0') or '0'}"
    return str(span["lane"])
