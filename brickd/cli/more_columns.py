"""Optional columns of the tables of bricks.

Owns: the option and the columns. Must not know: which tables exist. Invariant: a requested column is shown on any
screen.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from brickd.base import units
from brickd.cli.table import Column, Figure

_COLUMNS = {
    "p95": Figure(Column("P95", "right"), "p95_ns", units.duration),
    "cv": Figure(Column("CV", "right"), "cv", lambda cv: "-" if cv is None else f"{cv:.2f}"),
}

columns_option = click.option(
    "--column",
    "more",
    type=click.Choice(list(_COLUMNS)),
    multiple=True,
    help="Also show the 95th percentile (p95) or the coefficient of variation (cv). May be given several times.",
)


def with_columns(figures: Sequence[Figure], more: Sequence[str], before: str = "p99_ns") -> list[Figure]:
    """Insert the requested columns before the one with the key `before`."""
    at = next(place for place, each in enumerate(figures) if each.key == before)
    return [*figures[:at], *(each for name, each in _COLUMNS.items() if name in more), *figures[at:]]
