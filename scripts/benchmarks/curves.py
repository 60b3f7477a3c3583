"""A picture of how the daemon's cost depends on the rate of records and on the number of workers.

Both axes are logarithmic. Must not know: methods of measurement.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks import machine
from benchmarks.load import Load
from brickd.cli import svg as drawing
from brickd.cli.svg import Axis

_WORKERS = 16
_RATE = 100_000
_LINES = (("span rings on", True, "ours"), ("span rings off", False, "other"))

LOADS = tuple(
    dict.fromkeys(
        Load(case, workers, rate, ring=ring)
        for workers, rate in [(_WORKERS, rate) for rate in (10_000, _RATE, 1_000_000)]
        + [(workers, _RATE) for workers in (1, 4, _WORKERS, 64, 100)]
        for case, ring, _ in _LINES
    )
)

_WIDTH, _HEIGHT, _TOP, _BOTTOM, _MARGIN = 960, 400, 64, 300, 16
_LEFT, _PANEL, _GAP = 64, 390, 84
_STYLE = """
.curve{fill:none;stroke-width:2}
.curve.ours{stroke:#1a7f37}
.curve.other{stroke:#6e7781}
@media(prefers-color-scheme:dark){
.curve.ours{stroke:#3fb950}
.curve.other{stroke:#9198a1}
}"""


def svg(rows: Sequence[Mapping[str, Any]], facts: Mapping[str, object]) -> str:
    """Draw the rows, which are in the order of LOADS. Rows that were skipped are left out."""
    title = "The daemon's share of a core, in percent"
    measured = [(load, row) for load, row in zip(LOADS, rows, strict=True) if row["skipped"] is None]
    parts = [
        *drawing.opening(title, _WIDTH, _HEIGHT, _STYLE),
        drawing.text(_MARGIN, 28, title, "head"),
        *(
            drawing.text(_WIDTH - _MARGIN, 24 + 18 * i, case, f"{kind} number")
            for i, (case, _, kind) in enumerate(_LINES)
        ),
    ]
    if measured:
        height = Axis.over([row["core_percent_median"] for _, row in measured], _BOTTOM, _TOP)
        by_rate = [(load, load.rate, row) for load, row in measured if load.workers == _WORKERS]
        by_workers = [(load, load.workers, row) for load, row in measured if load.rate == _RATE]
        parts += _panel(_LEFT, height, by_rate, f"records per second, of {_WORKERS} workers")
        parts += _panel(_LEFT + _PANEL + _GAP, height, by_workers, f"workers, {_RATE:,} records per second together")
    captions = ("Medians, kernel time included; both axes are logarithmic.", machine.line(facts))
    parts += (drawing.text(_MARGIN, _BOTTOM + 64 + 18 * i, line, "quiet") for i, line in enumerate(captions))
    return "\n".join([*parts, "</svg>", ""])


def _panel(
    left: float, height: Axis, points: Sequence[tuple[Load, int, Mapping[str, Any]]], about: str
) -> Iterator[str]:
    if not points:
        return
    across = Axis.over([x for _, x, _ in points], left, left + _PANEL)
    for y, decade in height.decades():
        yield f'<path class="line" d="M{left} {y}H{left + _PANEL}"/>'
        yield drawing.text(left - 8, y + 4, _label(decade), "quiet number")
    for x, decade in across.decades():
        yield f'<path class="line" d="M{x} {_TOP}V{_BOTTOM}"/>'
        yield drawing.text(x, _BOTTOM + 18, _label(decade), "quiet tick")
    yield drawing.text(left + _PANEL / 2, _BOTTOM + 38, about, "tick")
    for _, ring, kind in _LINES:
        line = sorted(
            (across.place(x), height.place(row["core_percent_median"])) for load, x, row in points if load.ring == ring
        )
        if line:
            yield f'<path class="curve {kind}" d="M{" L".join(f"{x} {y}" for x, y in line)}"/>'
            yield from (f'<circle class="{kind}" cx="{x}" cy="{y}" r="3.5"/>' for x, y in line)


def _label(decade: int) -> str:
    return f"{10.0**decade:,.{max(0, -decade)}f}"
