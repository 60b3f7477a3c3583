"""The report of a profiler, as text and as JSON.

Owns: the report as text and as JSON. Must not know: where the figures come from. Invariants: bricks with the same time
are ordered by name; no name breaks a line or a terminal; supplied, bounded and missing values are marked; keys in the
JSON include units, and the document has a schema_version.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from brick_agent._compat.profiler.stats import BrickStats, CategoryStats, ratio
from brick_agent._compat.profiler.tiles import TileStats

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

SCHEMA_VERSION = 1
_ROUNDED_UP = 0.9995  # a figure above this fraction of the next unit is shown in that unit


@dataclass(frozen=True, slots=True)
class ProfilerReport:
    """The contents of a report."""

    settings: dict[str, object]
    wall_ns: int  # the time for which the profiler was enabled
    bricks: list[BrickStats]  # the longest total first
    categories: dict[str, CategoryStats]
    tiles: list[TileStats]
    supplied: dict[str, object]  # values supplied by a user, not measured
    pending: int  # the number of starts that no sync has covered yet
    lost: dict[str, int]  # the number of lost records, by reason
    columns: tuple[str, ...] = ()  # the requested columns, a part of MORE_COLUMNS

    @property
    def total_ns(self) -> int:
        """The time in all bricks; each moment counts once."""
        return sum(each.self_ns for each in self.bricks)

    @property
    def total_elements(self) -> int:
        """The elements of all bricks."""
        return sum(each.total_elements for each in self.bricks)


@dataclass(frozen=True, slots=True)
class TextColumn:
    """A column of a table: its title, its text for a row, and whether this text is something other than a number."""

    title: str
    cell: Callable[[Any], str]
    is_text: bool = False


def ordered(bricks: Iterable[BrickStats]) -> list[BrickStats]:
    """The bricks that ran, the longest total first."""
    return sorted((each for each in bricks if each.count), key=lambda each: (-each.total_ns, each.name))


def as_json(report: ProfilerReport) -> str:
    """Write the report as a JSON document."""
    return json.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "source": "process",
            **report.settings,
            "wall_ns": report.wall_ns,
            "total_ns": report.total_ns,
            "total_elements": report.total_elements,
            "elements_per_s": ratio(report.total_elements * 1e9, report.wall_ns),
            "elements_per_s_in_bricks": ratio(report.total_elements * 1e9, report.total_ns),
            "bricks": [_brick(each) for each in report.bricks],
            "categories": [_category(each) for each in report.categories.values()],
            "tiles": [_tile(each) for each in report.tiles],
            "supplied": report.supplied,
            "pending": report.pending,
            "not_recorded": report.lost,
        }
    )


def _members(of: object, names: str) -> dict[str, object]:
    """Return the object's attributes with these names, unchanged."""
    return {name: getattr(of, name) for name in names.split()}


def _brick(of: BrickStats) -> dict[str, object]:
    return {
        **_members(of, "name category count total_ns self_ns avg_ns std_ns min_ns min_exact max_ns max_exact"),
        "p50_ns": of.percentile_ns(50),
        "p90_ns": of.percentile_ns(90),
        "p95_ns": of.percentile_ns(95),
        "p99_ns": of.percentile_ns(99),
        "cv": of.cv,
        **_members(of, "bounded bounded_ns sync_latency_ns"),
        "elements": of.total_elements,
        "elements_per_s": of.throughput,
        "bytes": of.total_bytes,
        "compressed_bytes": of.total_compressed_bytes,
        "compression_ratio": of.compression_ratio,
        "bytes_per_s": of.gb_per_s * 1e9,
        "flops": of.total_flops,
        "flops_per_s": of.gflops * 1e9,
        "supplied": {
            "bottleneck": of.bottleneck.name.lower(),
            "cycles": of.total_cycles,
            "min_cycles": of.min_cycles,
            "max_cycles": of.max_cycles,
            "cycles_per_element": of.cycles_per_element,
            "diagnosis": of.diagnosis,
        },
    }


def _category(of: CategoryStats) -> dict[str, object]:
    return {
        **_members(of, "category count total_ns avg_ns"),
        "p95_ns": of.percentile_ns(95),
        "cv": of.cv,
        "elements": of.total_elements,
        "elements_per_s": of.throughput,
        "percent": of.percentage,
    }


def _tile(of: TileStats) -> dict[str, object]:
    return {
        "level": of.level.name.lower(),
        **_members(of, "count total_ns"),
        "avg_ns": of.avg_us * 1e3,
        **_members(of, "min_ns min_exact max_ns max_exact"),
        "p95_ns": of.percentile_ns(95),
        "cv": of.cv,
        "elements": of.total_elements,
        "flops": of.total_flops,
        "flops_per_s": of.gflops * 1e9,
        "flops_per_byte": of.arithmetic_intensity,
    }


def as_text(report: ProfilerReport) -> str:
    """Write the report as text."""
    parts = [headline(report)]
    for columns, rows in tables(report):
        parts += _table(columns, rows)
    for note in notes(report):
        parts += ["", note]
    return "\n".join(parts) + "\n"


def headline(report: ProfilerReport) -> str:
    """Return the first line: the profiler's name, and the totals."""
    speed = ratio(report.total_elements * 1e9, report.wall_ns)
    name, backend = report.settings.get("name"), report.settings.get("backend")
    return (
        f"{printable(f'{name}: ') if name else ''}{_duration(report.total_ns)} in bricks of "
        f"{_duration(report.wall_ns)}, {report.total_elements:,} elements, {speed:,.0f} a second"
        f"{f', backend {backend}' if backend else ''}"
    )


def tables(report: ProfilerReport) -> list[tuple[Sequence[TextColumn], list[Any]]]:
    """Return the tables that have rows: bricks, categories, tiles."""
    found: list[tuple[Sequence[TextColumn], list[Any]]] = [
        (_bricks(report.total_ns, report.columns), report.bricks),
        (_with(report.columns, _CATEGORIES, 4), [each for each in report.categories.values() if each.count]),
        (_with(report.columns, _TILES, 3), [each for each in report.tiles if each.count]),
    ]
    return [(columns, rows) for columns, rows in found if rows]


def notes(report: ProfilerReport) -> list[str]:
    """Return the notes: one line about supplied values, one about pending work, and one about losses."""
    found = []
    if report.supplied:
        supplied = ", ".join(f"{what} {value}" for what, value in report.supplied.items())
        found.append(f"supplied by the user, not measured: {supplied}")
    if report.pending:
        found.append(f"pending: {report.pending:,}, which finalize() ends")
    if lost := [f"{n:,} {printable(what)}" for what, n in report.lost.items() if n]:
        found.append(f"not recorded: {', '.join(lost)}")
    return found


def _marks(of: BrickStats) -> str:
    marks = []
    if of.bounded:
        marks.append(f"bounded {of.bounded:,}")
    if of.bottleneck:
        marks.append(f"{of.bottleneck.name.lower()} (supplied)")
    return ", ".join(marks)


def _table(columns: Sequence[TextColumn], rows: Sequence[Any]) -> list[str]:
    laid_out = []
    for column in columns:
        cells = [column.title, *map(column.cell, rows)]
        width = max(map(len, cells))
        laid_out.append([cell.ljust(width) if column.is_text else cell.rjust(width) for cell in cells])
    return ["", *("  ".join(line).rstrip() for line in zip(*laid_out, strict=True))]


def _duration(ns: float | None) -> str:
    if ns is None:
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size * _ROUNDED_UP:
            return f"{ns / size:.3g} {unit}" if ns < size * 1e3 * _ROUNDED_UP else f"{ns / size:,.0f} {unit}"
    return f"{ns:.0f} ns"


def printable(text: str) -> str:
    """Escape characters that would break a line or control a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


_CATEGORY = TextColumn("CATEGORY", lambda of: printable(of.category), is_text=True)
_SAMPLES = TextColumn("SAMPLES", lambda of: f"{of.count:,}")
_TOTAL = TextColumn("TOTAL", lambda of: _duration(of.total_ns))
_AVERAGE = TextColumn("AVG", lambda of: _duration(of.avg_ns))
_ELEMENTS = TextColumn("ELEMENTS", lambda of: f"{of.total_elements:,}")
_CATEGORIES = (
    _CATEGORY,
    _SAMPLES,
    TextColumn("TIME", _TOTAL.cell),
    _AVERAGE,
    TextColumn("%", lambda of: f"{of.percentage:.1f}"),
    _ELEMENTS,
)
_TILES = (
    TextColumn("TILE", lambda of: of.level.name.lower(), is_text=True),
    _SAMPLES,
    TextColumn("AVG µs", lambda of: f"{of.avg_us:,.2f}"),
    TextColumn("GFLOP/S", lambda of: f"{of.gflops:,.2f}"),
    TextColumn("FLOP/BYTE", lambda of: f"{of.arithmetic_intensity:,.2f}" if of.arithmetic_intensity else "unknown"),
    TextColumn("ELEMENTS/TILE", lambda of: f"{ratio(of.total_elements, of.count):,.0f}"),
)


MORE_COLUMNS = {
    "p95": TextColumn("P95", lambda of: _duration(of.percentile_ns(95))),
    "cv": TextColumn("CV", lambda of: f"{of.cv:.2f}"),
}


def _with(more: Sequence[str], columns: Sequence[TextColumn], place: int) -> list[TextColumn]:
    """Return the columns, with the requested columns inserted."""
    return [*columns[:place], *(MORE_COLUMNS[each] for each in MORE_COLUMNS if each in more), *columns[place:]]


def _bricks(total_ns: int, more: Sequence[str]) -> list[TextColumn]:
    columns = (
        TextColumn("BRICK", lambda of: printable(of.name), is_text=True),
        _CATEGORY,
        _SAMPLES,
        _TOTAL,
        _AVERAGE,
        TextColumn("P50", lambda of: _duration(of.percentile_ns(50))),
        TextColumn("P99", lambda of: _duration(of.percentile_ns(99))),
        TextColumn("SELF %", lambda of: f"{ratio(of.self_ns * 100, total_ns):.1f}"),
        _ELEMENTS,
        TextColumn("", _marks, is_text=True),
    )
    return _with(more, columns, 6)
