"""A picture of the times: a bar for each row, with nanoseconds on a logarithmic axis.

Must not know: methods of measurement.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from brickd.cli import svg as drawing

_OURS = "brickd"
_WIDTH, _ROW, _TOP, _MARGIN = 960, 22, 64, 16
# the x positions of the two columns of text, and of the beginning and the end of the bars
_BY, _CASE, _LEFT, _RIGHT = 16, 166, 470, 830
_CAPTION = 18

_STYLE = """
.code{font-family:ui-monospace,monospace;font-size:11.5px}
.median{opacity:.4}"""


def svg(title: str, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, object]) -> str:
    """Return the picture, with the cheapest row first; skipped rows are listed below it."""
    measured = sorted((row for row in rows if row["skipped"] is None), key=lambda row: row["ns_min"])
    captions = _captions(title, rows, facts)
    bottom = _TOP + _ROW * len(measured)
    height = bottom + 34 + _CAPTION * len(captions)
    parts = [
        *drawing.opening(title, _WIDTH, height, _STYLE),
        drawing.text(_BY, 28, "The cost of a span, in nanoseconds", "head"),
        drawing.text(_WIDTH - _MARGIN, _TOP - 12, "minimum / median", "quiet number"),
    ]
    if measured:
        parts += _bars(measured, bottom)
    parts += (drawing.text(_BY, bottom + 38 + _CAPTION * i, caption, "quiet") for i, caption in enumerate(captions))
    return "\n".join([*parts, "</svg>", ""])


def _bars(rows: Sequence[Mapping[str, Any]], bottom: float) -> Iterator[str]:
    first = math.floor(math.log10(rows[0]["ns_min"]))
    last = max(first + 1, math.ceil(math.log10(max(row["ns_median"] for row in rows))))

    def place(ns: float) -> float:
        return round(_LEFT + (_RIGHT - _LEFT) * (math.log10(max(ns, 10**first)) - first) / (last - first), 1)

    for decade in range(first, last + 1):
        x = place(10**decade)
        yield f'<path class="line" d="M{x} {_TOP - 6}V{bottom}"/>'
        yield drawing.text(x, bottom + 14, f"{10**decade:,}", "quiet tick")
    for number, row in enumerate(rows):
        y = _TOP + _ROW * number
        kind = "ours" if row["by"] == _OURS else "other"
        least, middle = place(row["ns_min"]), place(row["ns_median"])
        yield drawing.text(_BY, y + 15, row["by"], "" if kind == "ours" else "quiet")
        yield drawing.text(_CASE, y + 15, row["case"], "code")
        yield f'<rect class="{kind}" x="{_LEFT}" y="{y + 5}" width="{round(least - _LEFT, 1)}" height="12"/>'
        if middle > least:
            width = round(middle - least, 1)
            yield f'<rect class="{kind} median" x="{least}" y="{y + 5}" width="{width}" height="12"/>'
        yield drawing.text(_WIDTH - _MARGIN, y + 15, f"{row['ns_min']:,.0f} / {row['ns_median']:,.0f}", "number")


def _captions(title: str, rows: Sequence[Mapping[str, Any]], facts: Mapping[str, object]) -> list[str]:
    lines = [
        f"{title}. Solid to the minimum, pale to the median; logarithmic.",
        f"{facts['cpu_model']}, {facts['cpus']} cores; brickd reads {facts['agent_clock']}; "
        f"Python {facts['python']}, Linux {facts['kernel']}.",
    ]
    absent = dict.fromkeys(row["by"] for row in rows if row["skipped"] is not None)
    return [*lines, f"Not in this run: {', '.join(absent)}."] if absent else lines
