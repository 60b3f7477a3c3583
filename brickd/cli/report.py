"""The verb `report`.

Owns: the options of `report`, its file. Must not know: what a report contains, HTML. Invariants: The file has mode
0600, gets its name when it is complete, and replaces another one only with --force.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from brickd.base import units
from brickd.base.draft_file import name_draft
from brickd.base.timestamps import rfc3339
from brickd.bundle.archive_writer import require_free
from brickd.cli import progress
from brickd.cli.completion import with_recordings
from brickd.cli.output import print_message
from brickd.errors import BrickdError
from brickd.recording.rotation import parted

_STDOUT = "-"


@click.command()
@click.argument("words", nargs=-1, metavar="[RECORDING]...", shell_complete=with_recordings(None))
@click.option(
    "-o", "--output", "file", metavar="FILE", help="Write to FILE (default: brickd-DATE-TIME.html in this directory)."
)
@click.option("--md", "as_text", is_flag=True, help="Write Markdown for a ticket, by default to stdout.")
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
def report(words: Sequence[str], file: str | None, as_text: bool, force: bool) -> None:
    """Write one HTML page that anybody can open.

    The page is the one that "brickd up --http" serves, with its data inside: it needs no daemon and no network. Without
    RECORDING, it shows this machine as it is now. It is not redacted: it has the names, checksums and statistics that
    the other verbs print. To leave out what is private, report a recording made with "brickd record --redact".

    \b
    Examples:
      brickd report
      brickd report night.brick -o night.html
      brickd report --md
    """  # noqa: D301
    recordings, others = parted(words)
    if others:
        raise click.UsageError(f"{others[0]} is not a recording (brickd record -o FILE writes one)")
    if file == "":
        raise click.UsageError("--output is empty, expected the name of a file")
    now = time.time()
    if file is None:
        file = _STDOUT if as_text else time.strftime("brickd-%Y%m%d-%H%M%S.html", time.localtime(now))
    if file == _STDOUT and not as_text:
        raise click.UsageError("-o - is only for --md: name the file of the page")
    if file != _STDOUT:
        require_free(Path(file), force=force)
    content, left_out = _content(recordings, rfc3339(int(now * 1e9)), as_text=as_text)
    if file == _STDOUT:
        click.echo(content, nl=False)
        return
    _write(Path(file), content, force=force)
    print_message(f"wrote {file}: {units.size(len(content))}")
    for line in left_out:
        print_message(f"left out: {line}")


def _content(recordings: Sequence[str], made: str, *, as_text: bool) -> tuple[bytes, list[str]]:
    """Return the file, and lines about the parts that it does not have."""
    from brickd.web import report_documents

    with report_documents.answers_of(recordings, progress.reading) as (answers, histories):
        if as_text:
            from brickd.web.report_text import report_text

            # The text has no latency of single bricks.
            documents = report_documents.report_documents(answers, histories, bricks_seconds=0.0)
            return report_text(documents, made).encode(), []
        from brickd.web.report import report_page

        documents = report_documents.report_documents(answers, histories)
    return report_page(documents, made), report_documents.left_out(documents)


def _write(path: Path, content: bytes, *, force: bool) -> None:
    try:
        fd, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.")
        try:
            with open(fd, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(fd)
            name_draft(Path(draft), path, replace=force)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(draft)
    except FileExistsError:
        raise BrickdError(f"{path}: already exists: use another -o FILE, or --force") from None
    except OSError as error:
        raise BrickdError(f"{path}: cannot be written: {error.strerror}: use another -o FILE") from None
