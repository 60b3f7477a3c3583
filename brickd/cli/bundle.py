"""The verb `bundle`.

Owns: the options of `bundle`, the report on what was written or checked, the signals. Must not know: what a bundle
contains, how an archive is read. Invariant: after Ctrl-C, SIGTERM or SIGHUP, nothing is left.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from brickd.base import escape, units
from brickd.cli import progress
from brickd.cli.completion import with_recordings
from brickd.cli.output import emit
from brickd.cli.query_options import ParameterType
from brickd.errors import Exit
from brickd.model.worker_names import as_argument
from brickd.query.parameters import Duration

_PATIENCE_SECONDS = 1.0
_LINE_MAX = 1_000  # cells; a text in an archive of another person may have megabytes
_ENDING = (signal.SIGTERM, signal.SIGHUP)


@click.command()
@click.argument("recordings", nargs=-1, metavar="[RECORDING]...", shell_complete=with_recordings(None))
@click.option(
    "-o", "--output", "file", metavar="FILE", help="Write to FILE (default: brickd-DATE-TIME.tar.gz in this directory)."
)
@click.option(
    "--duration", "seconds", type=ParameterType(Duration(0.1, 3600, "")), metavar="DURATION", default="3s",
    show_default=True, help="Record the workers for this time.",
)  # fmt: skip
@click.option("--no-recording", is_flag=True, help="Include no recording.")
@click.option(
    "--no-redact",
    is_flag=True,
    help="Include names of the host and of users, paths, values of variables, checksums and statistics of tensors,"
    " texts of steps, and sources of kernels.",
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--check", metavar="FILE", help="Write nothing; check this bundle, and list what is inside.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.pass_context
def bundle(
    context: click.Context,
    recordings: Sequence[str],
    file: str | None,
    seconds: float,
    no_recording: bool,
    no_redact: bool,
    force: bool,
    check: str | None,
    as_json: bool,
) -> Exit | None:
    """Write one archive for an incident.

    The archive has the status, diff, coverage, weights, stragglers, events, history, doctor, the configuration, the
    environment, a short recording, and the recordings of the flight recorder. It is redacted, so that you can send it.
    Works without a daemon and with a daemon that hangs: a part that fails is missing, and the archive says why. Instead
    of making a recording, it includes each RECORDING: a file, or the id of a recording that the daemon keeps. Exits 1
    if --check finds a fault.

    \b
    Examples:
      brickd bundle
      brickd bundle -o incident.tar.gz --duration 30s
      brickd bundle night.brick -o incident.tar.gz
      brickd bundle --check incident.tar.gz
    """  # noqa: D301
    if check is not None:
        _require_alone(context)
        return _checked(check, as_json)
    if file == "":
        raise click.UsageError("--output is empty, expected the name of a file")
    if recordings and no_recording:
        raise click.UsageError(f"--no-recording contradicts recording {recordings[0]}: give one of them")
    if (recordings or no_recording) and _is_given(context, "seconds"):
        raise click.UsageError("--duration needs a recording that is made now: leave it out")
    from brickd.bundle.make_bundle import BundleOrder, make

    order = BundleOrder(None if no_recording else seconds, tuple(recordings), redact=not no_redact, force=force)
    with _shown() as shows:
        made = make(Path(file or time.strftime("brickd-%Y%m%d-%H%M%S.tar.gz")), order, shows)
    document = made.document()
    emit(document, "json" if as_json else "table", table=lambda _: _escaped(_written(document)))
    return None


def _require_alone(context: click.Context) -> None:
    """Refuse other options next to --check."""
    for each in context.command.params:
        if each.name not in ("check", "as_json") and _is_given(context, each.name or ""):
            raise click.UsageError(f"--check contradicts {each.opts[0]}: give one of them")


def _is_given(context: click.Context, name: str) -> bool:
    """Whether the command line has this parameter."""
    return context.get_parameter_source(name) == click.core.ParameterSource.COMMANDLINE


@contextmanager
def _shown() -> Iterator[Callable[[str], object]]:
    """Show the part that is being made, if the bundle takes long; make SIGTERM and SIGHUP end it like Ctrl-C."""
    begun = time.monotonic()

    def shows(part: str) -> None:
        if time.monotonic() - begun >= _PATIENCE_SECONDS:
            progress.show(f"bundle: {part}")

    handled = [each for each in _ENDING if signal.getsignal(each) is not signal.SIG_IGN]
    before = {each: signal.signal(each, signal.default_int_handler) for each in handled}
    try:
        yield shows
    finally:
        progress.show("")
        for number, was in before.items():
            signal.signal(number, was)


def _written(document: dict[str, Any]) -> Iterator[str]:
    manifest = document["manifest"]
    yield f"wrote {document['path']}: {units.size(document['bytes'])}, {_many(manifest['members'])}"
    yield from _contents({each["name"]: (each["bytes"], each["about"]) for each in manifest["members"]})
    yield from _missing(manifest)
    if manifest["redacted"]:
        yield from (f"removed: {each}" for each in manifest["redaction"]["removed"])
        yield from (f"still inside: {each}" for each in manifest["redaction"]["kept"])
    else:
        yield (
            "not redacted: names of the host and of users, paths, checksums and statistics of tensors, texts of steps"
            " and sources of kernels are inside"
        )
    yield f"check it: brickd bundle --check {as_argument(document['path'])}"


def _checked(path: str, as_json: bool) -> Exit:
    from brickd.bundle.archive_check import check

    document = check(path).document()
    emit(document, "json" if as_json else "table", table=lambda _: _escaped(_report(document)))
    return Exit.OK if document["valid"] else Exit.DIFFERS


def _report(document: dict[str, Any]) -> Iterator[str]:
    manifest, faults = document["manifest"], document["faults"]
    found = f"{units.size(document['bytes'])}, {_many(document['members'])}"
    verdict = "complete and unchanged" if document["valid"] else units.plural(len(faults), "fault")
    yield f"{document['path']}: {found}: {verdict}"
    yield from (f"fault: {each}" for each in faults)
    if manifest is not None:
        brickd = manifest["brickd"]
        redacted = "redacted" if manifest["redacted"] else "not redacted"
        build = f"{brickd['version']} ({brickd['build']})"
        yield f"its manifest says: made {manifest['made']} by brickd {build}, {redacted}"
    yield from _contents({each["name"]: (each["bytes"], each["content"]) for each in document["members"]})
    yield from () if manifest is None else _missing(manifest)


def _contents(members: dict[str, tuple[int, str]]) -> Iterator[str]:
    wide = max(map(len, members), default=0)
    for name, (length, about) in members.items():
        yield f"  {name:<{wide}}  {units.size(length):>6}  {about}"


def _missing(manifest: dict[str, Any]) -> Iterator[str]:
    yield from (f"missing: {each['name']}: {each['reason']}" for each in manifest["missing"])


def _many(members: Sequence[object]) -> str:
    return units.plural(len(members), "member")


def _escaped(lines: Iterable[str]) -> list[str]:
    return [escape.text(line, _LINE_MAX) for line in lines]
