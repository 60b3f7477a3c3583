"""A command in a container, as far as it concerns brickd, without a container runtime: see `test_container.py`.

Run as a program in a new pid namespace it makes the rest of the container and becomes the command: a /proc of its own,
a /dev/shm that may be another container's as well, a root that is read-only but for some folders, no network, a user
of its own with no capabilities.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import isolation
from isolation import NEWIPC, NEWNET, NEWUTS, NODEV, NOEXEC, NOSUID

_DIE_WITH_PARENT = 1


@dataclass(frozen=True)
class Container:
    """What one is made of.

    Attributes:
        shm: the folder that is its /dev/shm; where there is none it has one of its own.
        uid: its user.
        groups: of which its user is a member.
        writable: the folders that are.
        cgroup: the folder of its control group, where it has one.
    """

    uid: int
    groups: Sequence[int] = ()
    shm: str = ""
    writable: Sequence[str] = ()
    cgroup: str = ""

    @property
    def before(self) -> tuple[str, ...]:
        """What begins the command that runs in it."""
        return ("unshare", "--pid", "--fork", sys.executable, __file__, json.dumps(asdict(self)))


def _contain(container: Container) -> None:
    if container.cgroup:
        with open(f"{container.cgroup}/cgroup.procs", "w") as group:
            group.write("0")
    isolation.apart(NEWIPC, NEWNET, NEWUTS)
    shm = os.open(container.shm, os.O_PATH) if container.shm else -1
    isolation.hide("/root", "0")
    isolation.read_only("/")
    for folder in container.writable:
        isolation.bind(os.open(folder, os.O_PATH), folder)
        isolation.read_only(folder, False)
    isolation.mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)
    if shm < 0:
        isolation.mount("shm", "/dev/shm", "tmpfs", NOSUID | NODEV | NOEXEC, "mode=1777,size=64m")
    else:
        isolation.bind(shm, "/dev/shm")
        isolation.read_only("/dev/shm", False)
    isolation.unprivileged(container.uid, container.uid, container.groups)
    # Whoever changes its user has to say this again.
    isolation.done(isolation.libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0), "die with the test")


if __name__ == "__main__":
    _contain(Container(**json.loads(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])
