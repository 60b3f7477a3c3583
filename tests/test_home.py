"""The runtime directory: whoever has it keeps it, and what lies there is lost to no other daemon."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from brickd.runtime import runtime

_TAKE = """
import os
from brickd.errors import DaemonRefused
from brickd.home import Home
from brickd.runtime import runtime
for _ in range(3):
    try:
        Home(runtime(), group={group})
    except DaemonRefused as error:
        print(len(os.listdir("/proc/self/fd")), error)
"""


def refused(*before: str, group: int | None = None) -> list[str]:
    """Three tries of another process to take the directory: its descriptors then, and why it was refused."""
    command = [*before, sys.executable, "-P", "-c", _TAKE.format(group=group)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.usefixtures("prefix")
def test_a_group_of_which_the_user_is_no_member_is_refused_by_its_name_and_leaves_nothing_open(
    nobody: list[str],
) -> None:
    os.chown(runtime().directory, 65534, 65534)
    said = refused(*nobody, group=0)
    assert len(said) == 3
    assert len(set(said)) == 1, "no descriptor more with each try"
    assert "cannot be given to group root (Operation not permitted): set BRICKD_GROUP to a group of which" in said[0]
