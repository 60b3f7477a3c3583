"""Restricts mounts, users and privileges before a test program execs another one. Needs root.

The installation that runs the tests stays visible, even below a hidden folder.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterable
from pathlib import Path

INSTALLATION = (sys.base_prefix, os.fspath(Path(__file__).parent.parent.parent))

RDONLY, NOSUID, NODEV, NOEXEC, REMOUNT, BIND, REC, SLAVE = 1, 2, 4, 8, 32, 4096, 16384, 1 << 19
NEWNS, NEWUTS, NEWIPC, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x40000000
_SET_ATTRIBUTES, _RECURSIVE, _HERE = 442, 0x8000, -100
_NO_NEW_PRIVILEGES, _DROP_BOUND = 38, 24

libc = ctypes.CDLL(None, use_errno=True)


def done(result: int, what: str) -> None:
    """Check the result of a call of libc."""
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), what)


def apart(*spaces: int) -> None:
    """Move this process into a new mount namespace, and into new namespaces of these other kinds."""
    done(libc.unshare(NEWNS | sum(spaces)), "unshare")
    mount("none", "/", flags=SLAVE | REC)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Call mount(2)."""
    given = (os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    done(libc.mount(*given), f"mount {target}")


def bind(fd: int, target: str) -> None:
    """Bind an open folder to a path, even if the folder's own path is already hidden."""
    mount(f"/proc/self/fd/{fd}", target, flags=BIND | REC)
    os.close(fd)


class _Attributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns")]


def read_only(path: str, yes: bool = True) -> None:
    """Make a mount and all mounts below it read-only."""
    change = _Attributes(RDONLY if yes else 0, 0 if yes else RDONLY)
    given = (os.fsencode(path), ctypes.c_uint(_RECURSIVE), ctypes.byref(change), ctypes.sizeof(change))
    done(libc.syscall(_SET_ATTRIBUTES, _HERE, *given), f"remount {path}")


def hide(path: str, mode: str) -> None:
    """Mount an empty folder over a path, but keep the installation that runs the tests."""
    kept = [(each, os.open(each, os.O_PATH)) for each in INSTALLATION if Path(each).is_relative_to(path)]
    mount("tmpfs", path, "tmpfs", NOSUID | NODEV, f"mode={'755' if kept and mode == '0' else mode}")
    for each, fd in kept:
        os.makedirs(each, exist_ok=True)
        bind(fd, each)


def unprivileged(uid: int, gid: int, groups: Iterable[int]) -> None:
    """Become this user without capabilities; this cannot be undone."""
    for capability in range(int(Path("/proc/sys/kernel/cap_last_cap").read_text()) + 1):
        done(libc.prctl(_DROP_BOUND, capability, 0, 0, 0), "the bounding set")
    os.setgroups(list(groups))
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    done(libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
