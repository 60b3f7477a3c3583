"""The results of a sub-command: tables for people, JSON for machines.

A row is a dictionary with the names of the JSON as keys, units included. `passed` is True or False; it is None if the
row has no goal or was skipped, and `skipped` then has the reason. Must not know: what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

SCHEMA_VERSION = 1
_UNSHOWN = (
    "fault",
    "architecture",
    "traffic",
    "reference_ns_min",
    "reference_ns_median",
    "attempt",
    "cpu",
    "distance",
    "note",
    "skipped",
)
_WORDS = {True: "yes", False: "NO", None: "-"}


@dataclass(frozen=True)
class Table:
    """Rows of one kind; `note` is a remark, or the reason why the table is empty.

    If rows come from several attempts, the JSON has each attempt in full.
    """

    key: str
    title: str
    rows: Sequence[dict[str, Any]]
    note: str = ""
    attempts: Sequence[Sequence[dict[str, Any]]] = ()

    def text(self) -> str:
        """Return a table with aligned columns, words to the left and numbers to the right. The notes on single rows
        follow.
        """
        lines = [self.title + (f" ({self.note})" if self.note else "")]
        if self.rows:
            columns = [key for key in self.rows[0] if key not in _UNSHOWN]
            cells = [[key.replace("_", " ") for key in columns], *([_cell(r[c]) for c in columns] for r in self.rows)]
            numbers = [any(isinstance(row[key], int | float) for row in self.rows) for key in columns]
            widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
            for line in cells:
                padded = (
                    cell.rjust(width) if number else cell.ljust(width)
                    for cell, width, number in zip(line, widths, numbers, strict=True)
                )
                lines.append("  " + "  ".join(padded).rstrip())
        remarks = [(str(next(iter(row.values()))), _remark(row)) for row in self.rows if _remark(row)]
        wide = max((len(name) for name, _ in remarks), default=0)
        lines += [f"  {name:{wide}}  {remark}" for name, remark in remarks]
        return "\n".join(lines)


def _remark(row: dict[str, Any]) -> str:
    why = row.get("skipped")
    return row.get("note", "") if why is None else f"skipped: {why}"


def _cell(value: object) -> str:
    if value is None or isinstance(value, bool):
        return _WORDS[value]
    if isinstance(value, float):
        return f"{value:.2f}" if value < 100 else f"{value:.0f}"
    return str(value)


@dataclass(frozen=True)
class Report:
    """The result of one sub-command."""

    command: str
    machine: dict[str, object]
    tables: Sequence[Table]
    picture: str = ""  # the picture as SVG, or ""

    @property
    def passed(self) -> bool:
        """Return whether no goal was missed."""
        return not any(row["passed"] is False for table in self.tables for row in table.rows)

    def text(self) -> str:
        facts = ", ".join(f"{key.replace('_', ' ')}: {_cell(value)}" for key, value in self.machine.items())
        missed = sum(row["passed"] is False for table in self.tables for row in table.rows)
        untried = sum(row.get("skipped") is not None and row["goal"] is not None for t in self.tables for row in t.rows)
        end = "All goals met" if self.passed else f"Goals missed: {missed}"
        end += f"; not tried: {untried}." if untried else "."
        return "\n\n".join([facts, *(table.text() for table in self.tables), end])

    def json(self) -> str:
        body: dict[str, Any] = {
            "schema_version": SCHEMA_VERSION,
            "command": self.command,
            "passed": self.passed,
            "machine": self.machine,
        }
        for table in self.tables:
            body[table.key] = {"note": table.note, "rows": table.rows}
            if table.attempts:
                body[table.key] |= {"attempts": table.attempts}
        return json.dumps(body, indent=1)
