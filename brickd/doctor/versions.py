"""What is installed here, and whether it can be loaded.

Owns: versions. Must not know: which version a worker runs: a segment says that itself. Invariant: nothing is imported
to learn its version.
"""

from __future__ import annotations

from importlib import metadata
from typing import NamedTuple

from brickd.doctor.check import CheckResult, fine

_WANTED = "brickd and its reader"


class Versions(NamedTuple):
    """Of the two distributions (None: not installed here) and of the format that is read."""

    brickd: str | None
    brick_agent: str | None
    format: str


def observe() -> Versions:
    """Ask the installed distributions."""
    from brickd.shm import _reader

    return Versions(installed("brickd"), installed("brick-agent"), _reader.FORMAT)


def installed(distribution: str) -> str | None:
    """The version of an installed distribution; None in a bare source tree."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def judge(versions: Versions) -> CheckResult:
    """Which versions are here? A server may well have its brick-agent elsewhere."""
    agent = versions.brick_agent or "not installed here"
    seen = f"brickd {versions.brickd or 'not installed'}, brick-agent {agent}, format {versions.format}"
    return fine("versions", seen, _WANTED)


def unloadable(reason: str) -> CheckResult:
    """The only finding where brickd's own reader does not load: every other check needs it."""
    why = "in brickd's source folder: this build is for another Python or system"
    return CheckResult("versions", "broken", reason, _WANTED, "pip install --force-reinstall .", why)
