"""The verb `version`.

Owns: the text about this installation. Must not know: workers, segments, the daemon. Invariant: it answers even if the
installation is broken, because then it is needed.
"""

import sys

import click

from brickd.base.installed_version import installed
from brickd.cli.output import emit, output_options


@click.command()
@output_options
def version(output: str) -> None:
    """Print the versions of brickd, Python and the segment format."""
    document = {
        "schema_version": 1,
        "version": installed("brickd"),
        "python": ".".join(map(str, sys.version_info[:3])),
        "format": _format(),
    }
    lines = [
        f"brickd  {document['version'] or 'not installed'}",
        f"python  {document['python']}",
        f"format  {document['format'] or 'unknown: the reader is not built'}",
    ]
    emit(document, output, table=lambda _: lines)


def _format() -> str | None:
    try:
        from brickd.shm import _reader
    except ImportError:
        return None
    return _reader.FORMAT
