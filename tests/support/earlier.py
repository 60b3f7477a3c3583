"""An earlier brickd and brick-agent, built from this repository's history.

Owns: which commit is the earlier version, where its build is kept, how its programs are started. Must not know: the
tests that use it.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
# A commit of 24 November 2026: it has format 1.7, and its daemon cannot silence problems.
COMMIT = "7861fb48afb03077c41728db2ad402b6d81cb39a"
MINOR = 7


class Earlier:
    """The folder in which both distributions are installed."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a Python program that imports the earlier packages instead of the current packages."""
        return subprocess.Popen(
            [sys.executable, "-P", *arguments],
            env=os.environ | {"PYTHONPATH": str(self._folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def brickd(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a verb of the earlier brickd."""
        with self.start("-m", "brickd", *arguments) as process:
            stdout, stderr = process.communicate()
        return subprocess.CompletedProcess(arguments, process.returncode, stdout, stderr)


def built() -> Earlier:
    """Build the earlier packages, unless an earlier run has built them; skip the test if the git history lacks the
    commit.
    """
    folder = ROOT / "build" / "earlier" / COMMIT[:12]
    if not folder.exists():
        archive = subprocess.run(["git", "archive", COMMIT], cwd=ROOT, capture_output=True, check=False)
        if archive.returncode:
            pytest.skip(f"the history has no commit {COMMIT[:12]}: {archive.stderr.decode().strip()}")
        source, draft = folder.with_suffix(".source"), folder.with_suffix(".draft")
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(source, filter="fully_trusted")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-build-isolation", "--no-deps", "--target"]
        subprocess.run([*pip, draft, source, source / "agent"], check=True)
        draft.rename(folder)
    return Earlier(folder)
