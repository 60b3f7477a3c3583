"""The build of a brickd (its version and a digest of its sources), and how to treat a daemon of another build.

Owns: how a build is looked up, how an answer is decoded, which of two builds to upgrade. Must not know: sockets, views.
Invariants: Looking up a build imports nothing. Two installations with the same sources have the same build, wherever
they are. Within a `schema_version`, keys are only added. So the new keys in the answer of a newer daemon are ignored. A
key may be missing in the answer of an older daemon. Reading a missing key raises `OtherVersion`, never KeyError.
Missing keys get no default here, because a status without its list of problems would look healthy.

A daemon looks up its build once, when it starts, because an upgrade may replace the installed files while it runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from brickd.errors import OtherVersion

SCHEMA = 1
_RESTART = "restart the daemon with this {}: brickd down && brickd up -d"


class Build(NamedTuple):
    """The build of a brickd, as that brickd reports it.

    Attributes:
        version: the version of the distribution; None if unknown, or in a bare source tree.
        sources: the digest of the sources; None if unknown, for example because an older brickd does not report it.
    """

    version: str | None
    sources: str | None = None


def ours() -> Build:
    """Return the build that is installed here. The look-up takes 10 ms, because it reads 300 files."""
    return Build(installed("brickd"), _digest(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def installed(distribution: str) -> str | None:
    """Return the version of an installed distribution; None in a bare source tree."""
    from importlib import metadata  # imported here, because it takes 25 ms, half as long as click

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _digest(package: str) -> str | None:
    """Return the digest of the Python sources in a folder; None if there are none."""
    import hashlib

    digest, found = hashlib.sha256(), False
    for folder, inner, files in os.walk(package):
        inner.sort()
        for name in sorted(name for name in files if name.endswith(".py")):
            path = os.path.join(folder, name)
            try:
                with open(path, "rb") as file:
                    content = file.read()
            except OSError:  # an upgrade is just replacing the file
                return None
            digest.update(
                f"{os.path.relpath(path, package)} {len(content)}\n".encode(errors="surrogateescape") + content
            )
            found = True
    return digest.hexdigest()[:12] if found else None


def other_version(daemon: str, theirs: Build, what: str) -> OtherVersion:
    """Return the error that names both builds, and says which one to upgrade.

    Args:
        daemon: the path of the daemon's socket.
        theirs: the daemon's build.
        what: what is wrong with the daemon's answer.
    """
    mine = ours()
    if theirs == mine:
        return OtherVersion(f"the daemon at {daemon}: {what} (this is a defect of brickd: please report it)")
    return OtherVersion(f"the daemon at {daemon} {compared(theirs, mine)}: {what} ({advice(theirs, mine)})")


def compared(theirs: Build, mine: Build) -> str:
    """Say how two builds differ; the text continues the words "the daemon"."""
    if theirs.version != mine.version:
        return f"is brickd {theirs.version}, this is brickd {mine.version}"
    if theirs.sources is None:
        return f"is another build of brickd {theirs.version}"
    return f"is another build of brickd {theirs.version} ({theirs.sources}, this is {mine.sources})"


def advice(theirs: Build, mine: Build) -> str:
    """Say what to upgrade. If both builds have the same version, the daemon is the older one, because it already runs.

    >>> advice(Build("0.9.0"), Build("0.10.0"))
    'restart the daemon with this version: brickd down && brickd up -d'
    >>> advice(Build("0.10.0"), Build("0.9.0"))
    'upgrade this brickd to 0.10.0'
    >>> advice(Build("0.10.0", "1a"), Build("0.10.0", "2b"))
    'restart the daemon with this build: brickd down && brickd up -d'
    """
    if is_newer(theirs.version, mine.version):
        return f"upgrade this brickd to {theirs.version}"
    return _RESTART.format("build" if theirs.version == mine.version else "version")


def is_newer(theirs: str | None, ours: str | None) -> bool:
    """Whether a daemon's version is newer than that of this brickd; False if it is unknown."""
    return theirs is not None and _numbers(theirs) > _numbers(ours or "")


def remark(theirs: Build) -> str:
    """Return a hint for a query that a daemon refused: the daemon's build may not know it.

    Return "" if the daemon has the same build as this brickd.
    """
    mine = ours()
    return "" if theirs == mine else f" (the daemon {compared(theirs, mine)}: {advice(theirs, mine)})"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def decoded(body: bytes, refused: Callable[[str], OtherVersion]) -> dict[str, Any]:
    """Decode a daemon's answer; `refused` creates the error about the answer.

    Raises:
        OtherVersion: the answer has another schema. The same error is raised later if a caller reads a key that the
            answer does not have.
        ValueError: the answer is not a JSON object.
    """
    import json

    class ReceivedObject(dict[str, Any]):
        """An object in the answer."""

        def __missing__(self, key: str) -> NoReturn:
            raise refused(f"its answer has no key {key!r}")

    document = json.loads(body, object_hook=ReceivedObject)
    if not isinstance(document, dict):
        raise ValueError
    schema = document.get("schema_version", SCHEMA)
    if schema != SCHEMA:
        raise refused(f"its answer has schema_version {schema!r}, expected {SCHEMA}")
    return document
