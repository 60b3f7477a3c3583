"""Checks the installed versions, and whether the reader can be loaded.

Owns: the check of versions. Must not know: the versions of workers, which are in their segments.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.client.other_version import Build, installed, ours
from brickd.doctor.check import CheckResult, fine

_WANTED = "brickd and its reader"


class Versions(NamedTuple):
    """The build of brickd, the version of brick-agent (None if not installed), and the version of the format."""

    brickd: Build
    brick_agent: str | None
    format: str


def observe() -> Versions:
    """Read the versions of the installed distributions."""
    from brickd.shm import _reader

    return Versions(ours(), installed("brick-agent"), _reader.FORMAT)


def judge(versions: Versions) -> CheckResult:
    """Report the versions. brick-agent may be missing here, because the server may have its own environment."""
    agent = versions.brick_agent or "not installed here"
    seen = f"brickd {versions.brickd.version or 'not installed'}, brick-agent {agent}, format {versions.format}"
    return fine("versions", seen, _WANTED)


def unloadable(reason: str) -> CheckResult:
    """Return the only finding that is possible if brickd's reader does not load: all other checks need the reader."""
    why = "in brickd's source folder: this build is for another Python or system"
    return CheckResult("versions", "broken", reason, _WANTED, "pip install --force-reinstall .", why)
