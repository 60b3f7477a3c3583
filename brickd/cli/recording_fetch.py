"""Fetches the daemon's recordings.

Owns: how a file is fetched: as a link if possible, else as a copy that the daemon sends. Must not know: the recorder,
the content of a file. Invariants: The daemon keeps a file until the whole content is at the new path. No existing file
is overwritten. After any failure a message says where the file is.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from brickd.base import units
from brickd.base.draft_file import name_draft
from brickd.cli import progress
from brickd.cli.output import print_message
from brickd.client import client
from brickd.errors import BrickdError
from brickd.model.worker_names import as_argument
from brickd.query.orders import RecordedFile
from brickd.query.query import to_query
from brickd.recording.chunks import open_recording
from brickd.recording.rotation import numbered

_FILE_SECONDS = 30.0  # the daemon may take this long to read one piece of a file
_QUIET_SECONDS = 1.0


def fetch(recording: str, files: list[dict[str, Any]], first: Path) -> bool:
    """Fetch the files of a recording; return whether all were fetched.

    Args:
        recording: the id of the recording.
        files: the daemon's entries for the files. This function writes the new path of each file into its entry.
        first: the new path of the first file.
    """
    fetched = 0
    for each in files:
        out, path = numbered(first, each["number"]), Path(each["path"])
        asked = RecordedFile(recording, each["number"])
        try:
            if not _linked(path, out, asked):
                _copied(out, asked, each["bytes"])
        except KeyboardInterrupt:
            print_message(f"{out}: interrupted: {_stays(path, recording)}")
            raise
        except (BrickdError, OSError) as error:
            reason = error.strerror if isinstance(error, OSError) else str(error)
            print_message(f"{out}: {reason}: {_stays(path, recording)}")
        else:
            each["path"] = os.fspath(out)
            fetched += 1
    return fetched == len(files)


def _stays(path: Path, recording: str) -> str:
    return f"the recording stays in {as_argument(os.fspath(path))} (brickd record --fetch {recording})"


def _linked(path: Path, out: Path, asked: RecordedFile) -> bool:
    """Move a file without copying it, if it belongs to this user and is on the same file system."""
    try:
        with open_recording(os.fspath(path)) as found:  # in another mount namespace, the path may be another file
            if (found.title.id.hex(), found.title.number) != (asked.recording, asked.number):
                return False
        os.link(path, out, follow_symlinks=False)
    except FileExistsError:
        raise
    except (BrickdError, OSError):
        return False
    with contextlib.suppress(OSError):  # if this fails, the file keeps both names
        path.unlink()
    return True


def _copied(out: Path, asked: RecordedFile, length: int) -> None:
    """Copy a file from the daemon, then tell the daemon to remove its own file."""
    draft = out.with_name(f".{out.name}.{os.getpid()}")
    pieces = client.ask("record/file", to_query(asked), seconds=_FILE_SECONDS).pieces()
    fd = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
    )  # the same mode as in the daemon's directory
    try:
        # unbuffered, because a buffer is written at close even after an error
        with open(fd, "wb", buffering=0) as file:
            for piece in _shown(pieces, length):
                rest = memoryview(piece)
                while rest:
                    rest = rest[file.write(rest) :]
            os.fsync(fd)
        name_draft(draft, out)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    try:
        client.ask("record/remove", to_query(asked), post=True).document()
    except BrickdError as error:
        print_message(f"{out} is complete, but the daemon keeps its copy: {error}")


def _shown(pieces: Iterator[bytes], length: int) -> Iterator[bytes]:
    """Forward the pieces of a file; show progress if this takes long."""
    begun, received = time.monotonic(), 0
    try:
        for piece in pieces:
            yield piece
            received += len(piece)
            if time.monotonic() - begun >= _QUIET_SECONDS:
                progress.show(f"fetching {units.size(received)} of {units.size(length)}")
    finally:
        progress.show("")
