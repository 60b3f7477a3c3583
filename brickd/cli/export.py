"""The verb `export`.

Owns: the options of `export`, the report on stderr. Must not know: formats, how spans are read. Invariant: only data
goes to stdout (`-o -`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from brickd.base import units
from brickd.base.units import plural
from brickd.cli import progress
from brickd.cli.output import print_message
from brickd.cli.query_options import asks
from brickd.errors import BrickdError
from brickd.export.formats import BINARY, FORMATS, Exported, export_files
from brickd.export.longest_spans import wanted
from brickd.export.output_file import STDOUT
from brickd.export.recorded_steps import require_recordings
from brickd.query.queries import ExportQuery
from brickd.screens.spans import NO_SPANS


@click.command()
@asks(ExportQuery)
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), required=True, help="Write this format.")
@click.option("-o", "--output", "file", metavar="FILE", required=True, help="Write this file; - for stdout.")
def export(query: ExportQuery, recordings: Sequence[str], form: str, file: str) -> None:
    """Write the spans of a recording for other tools.

    Replaces FILE when the export is complete. Needs a recording with spans ("brickd record --spans"). A recording may
    consist of several files. "brickd spans" shows the longest spans in a table.

    \b
    Formats:
      perfetto   a timeline for ui.perfetto.dev
      pprof      self times by stack, for pprof, Pyroscope and Parca
      collapsed  self times by stack in µs, for flame graphs and speedscope
      jsonl      a JSON document for each span
      csv        a row for each span
      parquet    a row for each span (pip install 'brickd[export]')

    \b
    Examples:
      brickd export run.brick -f perfetto -o run.pftrace
      brickd export run.brick api/0 --brick moe_gemm --longer 5ms -f csv -o slow.csv
    """  # noqa: D301
    require_recordings("export", recordings, query.names, f" -f {form} -o {file}")
    if file == STDOUT and form in BINARY and sys.stdout.isatty():
        raise BrickdError(f"-f {form} is not text, and stdout is a terminal: use -o FILE")
    with progress.reading() as reads:
        done = export_files(recordings, form, file, query.names, query.brick, wanted(query.step, query.longer), reads)
    report(done, file)


def report(done: Exported, file: str) -> None:
    """Print the notes, and what was written."""
    for words in done.words:
        print_message(words)
    if not done.counts.spans:
        print_message(NO_SPANS if done.has_no_spans else "no span matches the filters")
    workers = plural(len(done.recorded.workers), "worker")
    to = "to stdout" if file == STDOUT else f"to {file}"
    print_message(f"wrote {plural(done.counts.spans, 'span')} of {workers} {to} ({units.size(done.bytes)})")
