"""The output of a verb.

Owns: the output options, the four formats, messages on stderr. Must not know: individual verbs, the meaning of a
document. Invariants: Data goes to stdout and messages to stderr. A verb builds one document, and every format,
including the human text, is a rendering of it. JSON is ASCII and has no NaN. A string in CSV is neither a formula nor a
terminal escape.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from brickd.base import escape

if TYPE_CHECKING:
    from brickd.screens.screen import Screen

Result = TypeVar("Result")
Document = Mapping[str, Any]

_FORMATS = ("table", "json", "jsonl", "csv")


def output_options(verb: Callable[..., Result]) -> Callable[..., Result]:
    """Add -o/--output and --json to a verb. The verb receives the format in the keyword `output`, for `emit`."""

    @click.option(
        "-o", "--output", type=click.Choice(_FORMATS), help="Print the result in this format (default: table)."
    )
    @click.option("--json", "as_json", is_flag=True, help="Same as -o json.")
    @functools.wraps(verb)
    def with_output(*args: Any, output: str | None, as_json: bool, **kwargs: Any) -> Result:
        if as_json and output not in (None, "json"):
            raise click.UsageError(f"--json contradicts --output {output}: give one of them")
        return verb(*args, output="json" if as_json else output or "table", **kwargs)

    return with_output


def column_option(verb: Callable[..., Result]) -> Callable[..., Result]:
    """Add --column to a verb that shows a table of bricks. The verb receives the columns in the keyword `more`."""
    from brickd.screens import brick_columns  # imported late, because most verbs show no bricks

    return click.option(
        "--column",
        "more",
        type=click.Choice(list(brick_columns.OPTIONAL)),
        multiple=True,
        help="Also show the 95th percentile (p95) or the coefficient of variation (cv). May be given several times.",
    )(verb)


def emit(document: Document, output: str, *, table: Callable[[Screen], Iterable[str]], rows: str | None = None) -> None:
    """Print a verb's result on stdout.

    Args:
        document: a document that is valid JSON, with its `schema_version`.
        output: the value from `output_options`.
        table: a function that returns the lines of human text. It must escape every string that comes from a worker.
        rows: the key of the list of rows for jsonl and csv; an empty list gives an empty csv, without titles. If it is
            None, the document is the only row.
    """
    elements = [document] if rows is None else document[rows]
    match output:
        case "json":
            sys.stdout.write(_json(document, indent=2) + "\n")
        case "jsonl":
            sys.stdout.writelines(_json(element) + "\n" for element in elements)
        case "csv":
            _write_csv(elements)
        case _:
            from brickd.screens.screen import screen_of  # imported late, because a completion prints only words

            sys.stdout.writelines(line + "\n" for line in table(screen_of(sys.stdout)))


def print_message(message: str) -> None:
    """Print a line for the user on stderr."""
    # If stderr is also closed, the message cannot be shown.
    with contextlib.suppress(OSError):
        click.echo(f"brickd: {escape.text(message)}", err=True)


def _write_csv(elements: Iterable[Document]) -> None:
    import csv

    elements = list(elements)
    if not elements:
        return
    columns = list(dict.fromkeys(key for element in elements for key in element))
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow([escape.csv_cell(column) for column in columns])
    writer.writerows([_cell(element.get(column)) for column in columns] for element in elements)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return escape.csv_cell(value) if isinstance(value, str) else _json(value)


def _json(value: Any, indent: int | None = None) -> str:
    import json

    separators = (",", ":") if indent is None else None
    return json.dumps(value, indent=indent, separators=separators, ensure_ascii=True, allow_nan=False)
