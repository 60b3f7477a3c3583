"""The guardian process restores settings after `brickd record` was killed. Without pidfd, no guardian starts, and
nothing fails.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from brickd.base.paths import runtime
from brickd.cli.inprocess_daemon import guarded


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.mark.usefixtures("prefix")
def test_without_pidfd_no_guardian_starts_and_nothing_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    before = children()
    with guarded(runtime(), None):
        assert len(children()) == len(before) + 1
    monkeypatch.setattr(os, "pidfd_open", refuse)
    with guarded(runtime(), None):
        assert children() == before
