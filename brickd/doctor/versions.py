"""Checks the installed versions, and whether the reader can be loaded.

Owns: the check of versions. Must not know: the version of a worker: its segment contains that.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.client.other_version import Build, installed, ours
from brickd.doctor.check import CheckResult, fine

_WANTED = "brickd and its reader"


class Versions(NamedTuple):
    """The build of brickd, the version of brick-agent (None: not installed) and of the format."""

    brickd: Build
    brick_agent: str | None
    format: str


def observe() -> Versions:
    """Read the versions of the installed distributions."""
    from brickd.shm import _reader

    return Versions(ours(), installed("brick-agent"), _reader.FORMAT)


def judge(versions: Versions) -> CheckResult:
    """Report the versions; a server may have its brick-agent elsewhere."""
    agent = versions.brick_agent or "not installed here"
    seen = f"brickd {versions.brickd.version or 'not installed'}, brick-agent {agent}, format {versions.format}"
    return fine("versions", seen, _WANTED)


def unloadable(reason: str) -> CheckResult:
    """Return the only finding if brickd's reader does not load: every other check needs it."""
    why = "in brickd's source folder: this build is for another Python or system"
    return CheckResult("versions", "broken", reason, _WANTED, "pip install --force-reinstall .", why)
