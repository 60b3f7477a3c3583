"""The verb `record`.

Owns: the choice whether the daemon or this process records, and the messages about this choice. Must not know: the
content of a recording, how its files are fetched. Invariants: No existing file is overwritten. However the recording
ends, its files are kept and a message gives their path. If the client disconnects, the daemon ends the recording.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click

from brickd.base import escape, units
from brickd.base.paths import runtime
from brickd.cli import progress, recording_fetch
from brickd.cli.completion import complete_workers
from brickd.cli.output import emit, print_message
from brickd.cli.query_options import asks
from brickd.client import client
from brickd.client.client import NoAnswer
from brickd.errors import BrickdError, Exit, NoDaemon
from brickd.model.worker_names import as_argument
from brickd.query.orders import EndRecording, StartRecording
from brickd.query.query import to_query
from brickd.recording.library import ENDING, NO_DAEMON, flight_recordings, unfetched
from brickd.recording.rotation import SUFFIX

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STEP_SECONDS = 0.5

Document = dict[str, Any]
Messages = Iterator[tuple[str, Document]]


@click.command()
@click.option(
    "-o", "--output", "file", metavar="FILE", help="Write to FILE (default: brickd-DATE-TIME.brick in this directory)."
)
@asks(StartRecording, complete_workers, keyword="order")
@click.option("--fetch", metavar="RECORDING", help="Record nothing; fetch this recording from the daemon.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def record(order: StartRecording, file: str | None, fetch: str | None, as_json: bool) -> Exit | None:
    """Record the workers into a file.

    The daemon makes the recording. Without a daemon, this process makes it. Ctrl-C ends the recording and keeps the
    file. Every verb that shows data accepts the file as RECORDING. If a recording stays with the daemon, fetch it with
    --fetch. The daemon keeps the eight newest recordings, and "brickd doctor" lists them.

    \b
    Examples:
      brickd record -o night.brick --duration 60
      brickd record --workers api --spans --until-exit
      brickd record --redact -o share.brick
    """  # noqa: D301
    if file == "":
        raise click.UsageError("--output is empty, expected the name of a file")
    out = Path(file or time.strftime("brickd-%Y%m%d-%H%M%S.brick"))
    _require_free(out)
    if fetch is None:
        return _emitted(*_recorded(order, out), as_json)
    if order != StartRecording():
        raise click.UsageError(
            f"--{to_query(order)[0][0]} contradicts --fetch, which records nothing: give one of them"
        )
    found = _unfetched(fetch)
    return _emitted(found, _fetched(found, out), as_json)


def _emitted(document: Document, complete: bool, as_json: bool) -> Exit | None:
    emit({"schema_version": 1, **document}, "json" if as_json else "table", table=lambda _: _render(document))
    return None if complete else Exit.TROUBLE


def _require_free(out: Path) -> None:
    """Refuse a path that would cause a failure later, such as when the recording ends."""
    for taken in [out] if os.path.lexists(out) else _following(out):
        raise BrickdError(f"{taken}: already exists: remove it, or use another -o FILE")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        reason = "not a writable directory" if out.parent.exists() else "no such directory"
        raise BrickdError(f"{out.parent}: {reason}: use another -o FILE")


def _following(first: Path) -> list[Path]:
    """Return the existing files that have a name which this recording would need for its later files."""
    numbers = re.compile(rf"{re.escape(first.name.removesuffix(SUFFIX))}\.[1-9][0-9]*{re.escape(SUFFIX)}")
    try:
        return sorted(path for path in first.parent.iterdir() if numbers.fullmatch(path.name))
    except OSError:  # the directory cannot be listed; a name that is taken is found when the file is created
        return []


# ---- the daemon or this process


def _recorded(order: StartRecording, out: Path) -> tuple[Document, bool]:
    """Record; return the document of the recording, and whether all its files are at `out`."""
    complete = True
    try:
        document = _by_daemon(order)
        complete = _fetched(document, out)
    except NoAnswer as error:
        if error.why not in NO_DAEMON:
            raise
        document = _here(order, out)
    if document["why"] not in ("asked", "over", "exited"):
        ended = "the daemon ended" if document["why"] == "daemon_ended" else "brickd has a defect (brickd events)"
        print_message(f"the recording ended early, because {ended}")
    return document, complete


def _by_daemon(order: StartRecording) -> Document:
    def messages() -> Messages:
        asked = client.ask("record", to_query(order), post=True)
        events = asked.events()
        first = next(events, None)
        if first is None:
            raise asked.no_event()
        yield first
        yield from events

    def end(recording: str) -> None:
        with contextlib.suppress(BrickdError):  # the recording may already have ended, with the daemon
            client.ask("record/end", to_query(EndRecording(recording)), post=True).document()

    return _followed(order, messages(), end)


def _here(order: StartRecording, out: Path) -> Document:
    from brickd.cli import inprocess_daemon

    here, group = runtime(), inprocess_daemon.group()
    with inprocess_daemon.guarded(here, group), inprocess_daemon.draining(here, group, stays=False) as daemon:
        recorder = daemon.record(order, out)

        def messages() -> Messages:
            yield "begun", recorder.document()
            while not recorder.over.wait(_STEP_SECONDS):
                yield "progress", recorder.document()
            yield "done", recorder.document()

        return _followed(order, messages(), lambda _: recorder.end("asked"))


def _followed(order: StartRecording, messages: Messages, end: Callable[[str], None]) -> Document:
    """Show progress until the recording is over; return its document.

    The first signal ends the recording, even if it arrives before the first message; the second signal ends this
    process.
    """
    recording: str | None = None
    interrupted = False

    def ended(number: int, _: FrameType | None) -> None:
        nonlocal interrupted
        interrupted = True
        for each in taken:
            signal.signal(each, signal.default_int_handler)
        if recording is not None:
            end(recording)

    document: Document = {}
    with _signals(ended) as taken:
        try:
            for name, document in messages:
                if recording is None:
                    recording = document["recording"]
                    print_message(_begun(order, document))
                    if interrupted:
                        end(recording)
                progress.show(_progress(document))
                if name == "done":
                    return document
        finally:
            progress.show("")
    path, command = document["files"][-1]["path"], f"brickd record --fetch {document['recording']}"
    raise NoDaemon(f"the daemon has ended; the recording is in {path} ({command})")


@contextlib.contextmanager
def _signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[Collection[int]]:
    """Handle the signals that would end this process; restore the old handlers at the end.

    Yields:
            The handled signals. A signal is not handled if nohup or the shell of a script made this process ignore it.
    """
    handled = [each for each in _SIGNALS if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, handler) for each in handled}
    try:
        yield before.keys()
    finally:
        for number, was in before.items():
            signal.signal(number, was)


# ---- the files


def _unfetched(recording: str) -> Document:
    """Return the recording with this id, if it was not fetched yet."""
    for each in (*unfetched(), *flight_recordings()):
        if each["recording"] == recording:
            if each["written"]:
                raise BrickdError(f"recording {recording} is still being written: end it first ({ENDING})")
            return each
    raise BrickdError(f"the daemon has no recording {recording} (brickd doctor lists the recordings)")


def _fetched(document: Document, out: Path) -> bool:
    with _signals(signal.default_int_handler):
        return recording_fetch.fetch(document["recording"], document["files"], out)


# ---- messages


def _begun(order: StartRecording, document: Document) -> str:
    until = "until they end" if order.until_exit else ""
    if order.duration is not None:
        until += f"{' or ' if until else ''}for {order.duration:g} s"
    return f"recording {units.many(document['workers'], 'worker')} {until or 'until Ctrl-C'}".rstrip()


def _progress(document: Document) -> str:
    size, workers = units.size(document["bytes"]), units.many(document["workers"], "worker")
    line = f"recording {units.duration(document['elapsed_ns'])}  {size}  {workers}"
    return f"{line}  nothing is recorded now: {document['trouble']}" if document["trouble"] else line


def _render(document: Document) -> list[str]:
    files = document["files"]
    size = f"{units.size(document['bytes'])} in {units.many(len(files), 'file')}"
    paths = " ".join(as_argument(each["path"]) for each in files)
    lines = _came_to(document, size) if "workers" in document else [f"fetched {size}"]
    return [escape.text(line) for line in [*lines, f"look at it: brickd status {paths}"]]


def _came_to(document: Document, size: str) -> list[str]:
    workers, took = units.many(document["workers"], "worker"), units.duration(document["elapsed_ns"])
    degree = ", redacted" if document["redacted"] else ", with the values of tensors" if document["values"] else ""
    lines = [f"recorded {workers} for {took}: {size}{degree}"]
    if document["removed_files"]:
        lines.append(f"removed the oldest {units.many(document['removed_files'], 'file')} (--files keeps more)")
    lacking = [units.many(n, what.removesuffix("s")) for what, n in document["not_recorded"].items() if n]
    if lacking:
        lines.append(f"not recorded, because there was no room: {', '.join(lacking)}")
    return lines
