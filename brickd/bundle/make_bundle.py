"""A bundle, made: all parts are collected, redacted and written into one archive.

Owns: the order of the parts, the deadline of each, what is redacted. Must not know: options, screens, the formats of
the parts. Invariants: A part that fails is missing from the archive, with the reason in the manifest, and the other
parts are made. Each part has a deadline. A redacted bundle contains no document that was not redacted, and the reasons
and notes in its manifest are redacted as well.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from brickd.base.timestamps import rfc3339
from brickd.bundle import documents, machine_documents, recording_copy, recordings
from brickd.bundle.archive_writer import archive
from brickd.bundle.document_redaction import DocumentRedaction
from brickd.bundle.documents import DaemonAnswer
from brickd.bundle.manifest import (
    KEPT,
    MANIFEST,
    README,
    RECORDING_SUFFIX,
    REMOVED,
    BundleManifest,
    BundleMember,
    diff_name,
    encoded,
)
from brickd.bundle.parts import BundleParts, Shows
from brickd.bundle.private_words import of_this_machine
from brickd.client.other_version import ours
from brickd.errors import BrickdError, RecordingRefused
from brickd.recording.chunks import open_recording

_COPY_SECONDS = 60.0
_SERVICES_MAX = 64
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class BundleOrder:
    """What a bundle contains.

    Attributes:
        seconds: how long to record; None: include no recording, not even one of the flight recorder.
        recordings: recordings to include instead of making one, by path or by the daemon's id.
    """

    seconds: float | None = 3.0
    recordings: tuple[str, ...] = ()
    redact: bool = True
    force: bool = False


class MadeBundle(NamedTuple):
    """The archive: its path, its size, its manifest."""

    path: str
    bytes: int
    manifest: BundleManifest

    def document(self) -> dict[str, Any]:
        """Return the result as JSON."""
        return {"schema_version": 1, "path": self.path, "bytes": self.bytes, "manifest": self.manifest.document()}


def make(path: Path, order: BundleOrder, shows: Shows) -> MadeBundle:
    """Make a bundle.

    Raises:
        BrickdError: the archive cannot be written, or a named recording cannot be included.
    """
    made_ns = time.time_ns()
    given = recordings.find(order.recordings)
    hosts = _require_usable(given, redact=order.redact)
    words = of_this_machine(os.environ, hosts) if order.redact else None
    parts = BundleParts(words, DocumentRedaction(os.urandom(_KEY_BYTES)), shows)
    with archive(path, made_ns // 1_000_000_000, force=order.force) as file, tempfile.TemporaryDirectory() as folder:
        answer = _documents(parts)
        _recordings(parts, order, given, Path(folder), answer)
        _flights(parts, order, given, Path(folder), answer)
        readme = _readme(parts, redacted=order.redact).encode()
        parts.contents[README] = readme
        parts.members.insert(
            0, BundleMember(README, len(readme), hashlib.sha256(readme).hexdigest(), "how to look inside")
        )
        manifest = _manifest(parts, order, made_ns, answer)
        file.add(MANIFEST, encoded(manifest.document()))
        for each in manifest.members:
            shows(f"writing {each.name}")
            content = parts.contents[each.name]
            if isinstance(content, bytes):
                file.add(each.name, content)
            else:
                with content.open("rb") as source:
                    file.copy(each.name, source, each.bytes)
    return MadeBundle(os.fspath(path), path.stat().st_size, manifest)


def _require_usable(paths: Sequence[str], *, redact: bool) -> list[str]:
    """Refuse a recording that cannot be included; return the hosts of the recordings."""
    hosts = []
    for path in paths:
        with open_recording(path) as form:
            beginning = recording_copy.beginning(form)
        if redact and not beginning.redacted:
            raise RecordingRefused(path, "is not redacted: record with --redact, or use --no-redact")
        hosts.append(beginning.host)
    return hosts


# ---- documents


def _documents(parts: BundleParts) -> DaemonAnswer:
    """Add all documents; return whether a daemon answers."""
    asked = parts.call("the daemon", documents.ask_for_daemon)
    answer = DaemonAnswer(f"the daemon did not answer: {asked.reason}", silent=True)
    if asked.value is not None:
        answer = DaemonAnswer(*asked.value)
    status = None
    for name, (query, about) in documents.VERBS.items():
        answer, document = _verb(parts, answer, name, f"{name}.json", query, about)
        status = document if name == documents.STATUS else status
    services = [] if status is None else documents.services(status)
    if status is None:
        parts.lack("diff", "the services are not known, because status.json is missing")
    for service in services[:_SERVICES_MAX]:
        name = diff_name(parts.private(service), set(parts.contents))
        query, about = documents.diff_query(service), f"brickd diff {parts.private(service)}: where the numbers differ"
        answer, _ = _verb(parts, answer, documents.DIFF, name, query, about, service)
    if len(services) > _SERVICES_MAX:
        parts.lack("diff", f"only {_SERVICES_MAX} of {len(services)} services are compared")
    _machine(parts, services, answer)
    return answer


def _verb(
    parts: BundleParts, answer: DaemonAnswer, verb: str, name: str, query: Any, about: str, service: str | None = None
) -> tuple[DaemonAnswer, Any]:
    """Add the document of a verb. If the daemon is late, read shared memory, and do not ask the daemon again."""
    found = parts.call(name, lambda: documents.verb_document(verb, query, answer.why))
    if found.late and answer.why is None:
        answer = DaemonAnswer(f"the daemon did not answer: {found.reason}", silent=True)
        found = parts.call(name, lambda: documents.verb_document(verb, query, answer.why))
    if found.value is None:
        parts.lack(name, found.reason or "it has no content")
        return answer, None
    if found.value["missed"] is not None:
        answer = DaemonAnswer(found.value["missed"], silent=True)
    parts.add(name, found.value["document"], about, notes=found.value["notes"], service=service)
    return answer, found.value["document"]


def _machine(parts: BundleParts, services: Sequence[str], answer: DaemonAnswer) -> None:
    """Add the documents about this machine."""
    environment = "variables of brickd, Python, kernel, clock, limits of the control group"
    calls: dict[str, tuple[Callable[[], Any], str]] = {
        "doctor": (
            lambda: documents.doctor_document(silent=answer.silent),
            "brickd doctor: problems of brickd on this machine, with their fixes",
        ),
        "configuration": (
            lambda: machine_documents.configuration(services, answer.why),
            "settings of services, thresholds, paths, limits of processes",
        ),
        "environment": (lambda: machine_documents.environment(os.environ), environment),
    }
    for part, (call, about) in calls.items():
        name = f"{part}.json"
        found = parts.call(name, call)
        if found.value is None:
            parts.lack(name, found.reason or "it has no content")
        elif part == "environment" and parts.words is not None:
            parts.add(name, machine_documents.without_values(found.value), about)
        else:
            parts.add(name, found.value, about)


# ---- recordings


def _recordings(
    parts: BundleParts, order: BundleOrder, given: Sequence[str], folder: Path, answer: DaemonAnswer
) -> None:
    """Add the named recordings, or one that is made now."""
    for number, path in enumerate(given):
        name = f"recording{f'-{number + 1}' if number else ''}{RECORDING_SUFFIX}"
        _include(parts, name, Path(path), folder / f"copy-{number}", "a recording that was named")
    if given:
        return
    name = f"recording{RECORDING_SUFFIX}"
    if order.seconds is None:
        parts.lack(name, "it was left out, because of --no-recording")
    elif answer.silent:
        parts.lack(name, answer.why or "")
    else:
        made, label = folder / name, f"recording for {order.seconds:g} s"
        parts.shows(label)
        try:
            recordings.record(made, order.seconds, redact=order.redact, waits=lambda: parts.shows(label))
        except BrickdError as error:
            parts.lack(name, str(error))
            return
        _include(parts, name, made, folder / "copy", f"all workers for {order.seconds:g} s")


def _flights(parts: BundleParts, order: BundleOrder, given: Sequence[str], folder: Path, answer: DaemonAnswer) -> None:
    """Add the recordings of the flight recorder, under the names that are in events.json."""
    if order.seconds is None:
        return
    found = parts.call("the flight recorder", lambda: recordings.of_flights(silent=answer.silent))
    if found.value is None:
        parts.lack("flight recordings", found.reason or "they cannot be listed")
        return
    inside = {os.path.realpath(path) for path in given}
    for number, (path, made) in enumerate(found.value):
        if os.path.realpath(path) not in inside:
            about = f"a recording of the flight recorder, begun {made}"
            _include(parts, Path(path).name, Path(path), folder / f"flight-{number}", about)


def _include(parts: BundleParts, name: str, source: Path, copy: Path, about: str) -> None:
    """Add a copy of a recording, because a file that is still written would change."""
    found = parts.call(name, lambda: recording_copy.copy_file(source, copy, parts.words), _COPY_SECONDS)
    if found.reason is not None:
        parts.lack(name, found.reason)
    else:
        parts.add_file(name, copy, about)


# ---- the manifest and the introduction


def _manifest(parts: BundleParts, order: BundleOrder, made_ns: int, answer: DaemonAnswer) -> BundleManifest:
    build = ours()
    return BundleManifest(
        made=rfc3339(made_ns),
        redacted=order.redact,
        version=build.version,
        build=build.sources,
        daemon=parts.private(answer.document()),
        host=parts.private(machine_documents.host(named=not order.redact)),
        members=tuple(parts.members),
        missing=tuple(parts.missing),
        removed=REMOVED if order.redact else (),
        kept=KEPT if order.redact else (),
    )


def _readme(parts: BundleParts, *, redacted: bool) -> str:
    """Return five lines on how to look inside."""
    recorded = [each.name for each in parts.members if each.name.endswith(RECORDING_SUFFIX)]
    show = f"brickd status {recorded[0]}" if recorded else "no recording is inside: manifest.json says why"
    words = "redacted" if redacted else "NOT redacted: it has names, paths, numbers of tensors, texts of steps, sources"
    return (
        "A bundle of brickd, for one incident. Check it first: brickd bundle --check FILE.tar.gz\n"
        f"It is {words}. manifest.json lists the members, what is missing and why, and what was removed.\n"
        f"Unpack it into an empty folder (tar -xzf FILE.tar.gz); then look at the recording: {show}\n"
        "Every command that shows data takes the recording: brickd tree, brickd hang, brickd diff, brickd events.\n"
        'The other files are what `brickd VERB --json` printed. Begin with "problems" in status.json.\n'
    )
