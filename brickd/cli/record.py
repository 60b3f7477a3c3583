"""The verb `record`.

Owns: who makes the recording (the daemon, or without one this process), where its files come to lie, what is said of
it. Must not know: what is in it. Invariants: no file that was there is written over; whatever ends it, the recording is
kept, and where it lies is said; a daemon that records for nobody any more ends by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import click

from brickd import client, escape, units
from brickd.cli import waiting
from brickd.cli.asking import asks
from brickd.cli.output import emit, say
from brickd.cli.tab import complete_workers
from brickd.client import NoAnswer
from brickd.errors import BrickdError, NoDaemon
from brickd.naming import as_argument
from brickd.orders import Ending, Recording
from brickd.questions.question import to_query
from brickd.recording.volumes import SUFFIX, numbered
from brickd.runtime import runtime

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STEP_SECONDS = 0.5

Document = dict[str, Any]
Told = Iterator[tuple[str, Document]]


@click.command()
@click.option("-o", "--output", "file", metavar="FILE", help="The recording; else one with the time in its name, here.")
@asks(Recording, complete_workers, keyword="order")
@click.option("--json", "as_json", is_flag=True, help="Say what it came to as JSON.")
def record(order: Recording, file: str | None, as_json: bool) -> None:
    """Record what all workers do, to be looked at later by every verb that reads."""
    out = Path(file or time.strftime("brickd-%Y%m%d-%H%M%S.brick"))
    _require_free(out)
    try:
        document = _by_daemon(order, out)
    except NoAnswer as error:
        if error.why not in ("none", "stale", "elsewhere"):
            raise
        document = _here(order, out)
    if document["why"] not in ("asked", "over", "exited"):
        ended = "the daemon ended" if document["why"] == "daemon_ended" else "by a defect of brickd: brickd events"
        say(f"ended before its time: {ended}")
    emit({"schema_version": 1, **document}, "json" if as_json else "table", table=lambda _: _render(document))


def _require_free(out: Path) -> None:
    """Refuse now what would fail once the first file is full, or all is recorded."""
    for taken in [out] if os.path.lexists(out) else _following(out):
        raise BrickdError(f"{taken} is there already: remove it, or say another with -o")
    if not os.access(out.parent, os.W_OK | os.X_OK):
        reason = "no directory that may be written" if out.parent.exists() else "no such directory"
        raise BrickdError(f"{out.parent}: {reason}: say another with -o FILE")


def _following(first: Path) -> list[Path]:
    """What lies where the files of a set would that follow the first one."""
    numbers = re.compile(rf"{re.escape(first.name.removesuffix(SUFFIX))}\.[1-9][0-9]*{re.escape(SUFFIX)}")
    try:
        return sorted(path for path in first.parent.iterdir() if numbers.fullmatch(path.name))
    except OSError:  # it may be written to and not listed: then it is told in time
        return []


# ---- who records


def _by_daemon(order: Recording, out: Path) -> Document:
    told = client.ask("record", to_query(order), post=True).events()
    name, begun = next(told)

    def end() -> None:
        with contextlib.suppress(BrickdError):  # it has ended already, or with the daemon
            client.ask("record/end", to_query(Ending(begun["recording"])), post=True).document()

    document = _followed(order, [(name, begun)], told, end)
    for each in document["files"]:
        each["path"] = os.fspath(_fetched(Path(each["path"]), numbered(out, each["number"])))
    return document


def _here(order: Recording, out: Path) -> Document:
    from brickd.cli import draining

    with draining.draining(runtime(), draining.group()) as daemon:
        recorder = daemon.record(order, out)

        def told() -> Told:
            while not recorder.over.wait(_STEP_SECONDS):
                yield "progress", recorder.document()
            yield "done", recorder.document()

        return _followed(order, [("begun", recorder.document())], told(), lambda: recorder.end("asked"))


def _followed(order: Recording, begun: Iterable[tuple[str, Document]], told: Told, end: Callable[[], None]) -> Document:
    """Show how far it comes until it is over: what it came to. A signal ends it, a second one this process."""

    def ended(number: int, _: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.default_int_handler)
        end()

    document: Document = {}
    with _signals(ended):
        for _, document in begun:
            say(_begun(order, document))
        try:
            for name, document in told:
                waiting.tell(_progress(document))
                if name == "done":
                    return document
        finally:
            waiting.tell("")
    raise NoDaemon(f"the daemon has ended; what it recorded lies in {document['files'][-1]['path']}")


@contextlib.contextmanager
def _signals(handler: Callable[[int, FrameType | None], object]) -> Iterator[None]:
    """Have those that would end this process go to a function; afterwards they do what they did before."""
    before = {each: signal.signal(each, handler) for each in _SIGNALS}
    try:
        yield
    finally:
        for number, was in before.items():
            signal.signal(number, was)


# ---- where it lies


def _fetched(path: Path, out: Path) -> Path:
    """Move a file of the daemon's; where it lies then."""
    try:
        try:
            os.link(path, out)
        except FileExistsError:
            raise
        except OSError:  # on another file system, or not ours to link
            _copy(path, out)
        path.unlink()
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM) and out.exists():  # copied, and not ours to remove
            return out
        say(f"{out}: {error.strerror}: the recording stays in {path}")
        return path
    return out


def _copy(path: Path, out: Path) -> None:
    with path.open("rb") as source, open(out, "xb", opener=_for_us_alone) as target:
        try:
            shutil.copyfileobj(source, target, 1 << 20)
        except BaseException:
            out.unlink()
            raise


def _for_us_alone(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)  # as it was where it was recorded


# ---- what is said


def _begun(order: Recording, document: Document) -> str:
    until = "until they end" if order.until_exit else ""
    if order.duration is not None:
        until += f"{' or ' if until else ''}for {order.duration:g} s"
    return f"recording {units.many(document['workers'], 'worker')} {until or 'until Ctrl-C'}".rstrip()


def _progress(document: Document) -> str:
    said = "  ".join(
        (
            f"recording {units.duration(document['elapsed_ns'])}",
            units.size(document["bytes"]),
            units.many(document["workers"], "worker"),
        )
    )
    return f"{said}  {document['trouble']}: not recorded now" if document["trouble"] else said


def _render(document: Document) -> list[str]:
    files = document["files"]
    took, size = units.duration(document["elapsed_ns"]), units.size(document["bytes"])
    paths = " ".join(as_argument(each["path"]) for each in files)
    workers, volumes = units.many(document["workers"], "worker"), units.many(len(files), "file")
    lines = [f"recorded {workers} for {took}: {size} in {volumes}"]
    if document["removed_files"]:
        lines.append(f"removed, the oldest: {units.many(document['removed_files'], 'file')} (--files keeps more)")
    lacking = [units.many(n, what.removesuffix("s")) for what, n in document["not_recorded"].items() if n]
    if lacking:
        lines.append(f"not recorded, for there was no room: {', '.join(lacking)}")
    return [escape.text(line) for line in [*lines, f"look at it: brickd status {paths}"]]
