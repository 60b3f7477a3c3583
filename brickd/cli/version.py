"""The verb `version`.

Owns: the text about this installation and the places that it uses. Must not know: workers, segments, the daemon.
Invariant: this verb answers even if the installation is broken, because that is when it is needed.
"""

import os
import sys

import click

from brickd.base import escape
from brickd.base.paths import runtime
from brickd.cli.output import Document, emit, output_options
from brickd.client.other_version import ours
from brickd.errors import BrickdError


@click.command()
@output_options
def version(output: str) -> None:
    """Print versions, and the socket and directories that brickd uses."""
    here, build = runtime(), ours()
    document = {
        "schema_version": 1,
        "version": build.version,
        "build": build.sources,
        "python": ".".join(map(str, sys.version_info[:3])),
        "format": _format(),
        "socket": os.fspath(here.socket),
        "prefix": _prefix(),
        "runtime_directory": os.fspath(here.directory),
        "state_directory": os.fspath(here.state),
        "segments_directory": _segments(),
    }
    emit(document, output, table=lambda _: _lines(document))


def _lines(document: Document) -> list[str]:
    unknown = "unknown: the reader is not built"
    no_prefix = unknown if document["format"] is None else "invalid: see BRICKD_SHM_PREFIX"
    rows = {
        "brickd": document["version"] or "not installed",
        "build": document["build"] or "unknown: there are no sources",
        "python": document["python"],
        "format": document["format"] or unknown,
        "socket": document["socket"],
        "prefix": document["prefix"] or no_prefix,
        "runtime": document["runtime_directory"],
        "state": document["state_directory"],
        "segments": document["segments_directory"] or unknown,
    }
    # Users copy these paths into other commands, so no line is cut, even on a narrow screen.
    return [escape.text(f"{name:<8}  {value}") for name, value in rows.items()]


def _format() -> str | None:
    try:
        from brickd.shm import _reader
    except ImportError:
        return None
    return _reader.FORMAT


def _prefix() -> str | None:
    try:
        from brickd.shm.segment_files import prefix
    except ImportError:
        return os.environ.get("BRICKD_SHM_PREFIX")
    try:
        return prefix()
    except BrickdError:  # other verbs report this error
        return None


def _segments() -> str | None:
    try:
        from brickd.shm import _reader
    except ImportError:
        return None
    return _reader.DIRECTORY
