"""What is installed here, and whether it can be loaded.

Owns: versions. Must not know: the version of a worker: its segment contains that. Invariant: nothing is imported to
learn its version.
"""

from __future__ import annotations

from importlib import metadata
from typing import NamedTuple

from brickd.doctor.check import CheckResult, fine

_WANTED = "brickd and its reader"


class Versions(NamedTuple):
    """The versions of the two distributions (None: not installed) and of the format."""

    brickd: str | None
    brick_agent: str | None
    format: str


def observe() -> Versions:
    """Read the versions of the installed distributions."""
    from brickd.shm import _reader

    return Versions(installed("brickd"), installed("brick-agent"), _reader.FORMAT)


def installed(distribution: str) -> str | None:
    """The version of an installed distribution; None in a bare source tree."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def judge(versions: Versions) -> CheckResult:
    """Report the versions; a server may have its brick-agent elsewhere."""
    agent = versions.brick_agent or "not installed here"
    seen = f"brickd {versions.brickd or 'not installed'}, brick-agent {agent}, format {versions.format}"
    return fine("versions", seen, _WANTED)


def unloadable(reason: str) -> CheckResult:
    """The only finding if brickd's own reader does not load: every other check needs it."""
    why = "in brickd's source folder: this build is for another Python or system"
    return CheckResult("versions", "broken", reason, _WANTED, "pip install --force-reinstall .", why)
