"""Runs a command in the way that a container would, but without a container runtime: see `test_container.py`.

When this module runs as a program in a new pid namespace, it sets up the rest of the container and execs the command.
The container has its own /proc, a /dev/shm that another container may share, a root that is read-only except for some
folders, no network, and its own user without capabilities.
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
    """The parts of a container.

    Attributes:
        shm: the folder that is mounted as /dev/shm; empty: a new /dev/shm.
        uid: the user.
        groups: the groups of the user.
        writable: the writable folders.
        cgroup: the folder of the control group, if there is one.
    """

    uid: int
    groups: Sequence[int] = ()
    shm: str = ""
    writable: Sequence[str] = ()
    cgroup: str = ""

    @property
    def before(self) -> tuple[str, ...]:
        """The beginning of a command line that runs in the container."""
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
    # The signal must be set again: the kernel sends it when the parent dies, but a change of the user cancels it.
    isolation.done(isolation.libc.prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0), "die with the test")


if __name__ == "__main__":
    _contain(Container(**json.loads(sys.argv[1])))
    os.execv(sys.argv[2], sys.argv[2:])
