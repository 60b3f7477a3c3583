"""Installed versions, and the rule for a daemon of another version than this brickd.

Owns: how a version is looked up (nothing is imported for that; a daemon asks once, when it starts: what is installed
may be upgraded while it runs), how an answer is decoded, which of the two to upgrade. Must not know: sockets, views.
Invariants: within a
`schema_version`, keys are only added. So an answer of a newer daemon is read, without its new keys. An answer of an
older daemon may lack a key: reading that key raises `OtherVersion`, never KeyError. No key has a default here: without
its list of problems, a status would look healthy.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from brickd.errors import OtherVersion

SCHEMA = 1


def installed(distribution: str) -> str | None:
    """The version of an installed distribution; None in a bare source tree."""
    from importlib import metadata  # takes 25 ms, half of click's import time

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def other_version(daemon: str, theirs: str | None, what: str) -> OtherVersion:
    """The error that names both versions, and which to upgrade.

    Args:
        daemon: the path of the daemon's socket.
        theirs: its version; None: unknown.
        what: what is wrong with its answer.
    """
    ours = installed("brickd")
    both = f"is another build of brickd {ours}" if theirs == ours else f"is brickd {theirs}, this is brickd {ours}"
    return OtherVersion(f"the daemon at {daemon} {both}: {what} ({advice(theirs, ours)})")


def advice(theirs: str | None, ours: str | None) -> str:
    """Say what to upgrade. If two builds have the same version, the daemon, which already runs, is the older one.

    >>> advice("0.9.0", "0.10.0")
    'restart the daemon with this version: brickd down && brickd up -d'
    >>> advice("0.10.0", "0.9.0")
    'upgrade this brickd to 0.10.0'
    """
    if is_newer(theirs, ours):
        return f"upgrade this brickd to {theirs}"
    return "restart the daemon with this version: brickd down && brickd up -d"


def is_newer(theirs: str | None, ours: str | None) -> bool:
    """Whether a daemon is newer than this brickd; an unknown version is not."""
    return theirs is not None and _numbers(theirs) > _numbers(ours or "")


def remark(theirs: str | None) -> str:
    """A hint to add to a daemon's refusal, if the daemon's version may not know the query; else ""."""
    ours = installed("brickd")
    return "" if theirs == ours else f" (the daemon is brickd {theirs}, this is brickd {ours}: {advice(theirs, ours)})"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d{1,9}", version)]


def decoded(body: bytes, refused: Callable[[str], OtherVersion]) -> dict[str, Any]:
    """Decode a daemon's answer; `refused` creates the error about it.

    Raises:
        OtherVersion: it has another schema; also later, when a key is read that it lacks.
        ValueError: it is no JSON object.
    """
    import json

    class ReceivedObject(dict[str, Any]):
        """An object of this answer."""

        def __missing__(self, key: str) -> NoReturn:
            raise refused(f"its answer has no {key!r}")

    document = json.loads(body, object_hook=ReceivedObject)
    if not isinstance(document, dict):
        raise ValueError
    schema = document.get("schema_version", SCHEMA)
    if schema != SCHEMA:
        raise refused(f"its answer has schema_version {schema!r}, expected {SCHEMA}")
    return document
