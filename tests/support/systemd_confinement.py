"""Confines a command as systemd would, by the settings in the text of a unit.

When this module runs as a program, it confines itself and execs the command. The module needs root, libseccomp and
systemd-analyze. Every setting is either applied here or listed in ELSEWHERE. An unknown setting is an error, so that
none is skipped by mistake.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pwd
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import isolation
from isolation import BIND, NEWNET, NEWNS, NEWUTS, NODEV, NOEXEC, NOSUID, RDONLY, REC, REMOUNT

Settings = dict[str, list[str]]

# Settings that only systemd's manager can apply, and settings whose effect no test could see.
ELSEWHERE = {
    *("Type", "NotifyAccess", "WatchdogSec", "Restart", "RestartSec", "RemoveIPC", "KeyringMode", "ExecStart"),
    *("RuntimeDirectoryMode", "RuntimeDirectoryPreserve", "IPAddressDeny", "IPAddressAllow"),
}


def read(text: str, instance: str) -> Settings:
    """Return the values of each setting in the section [Service] of a unit, in order."""
    settings: Settings = {}
    section = ""
    for line in text.splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and line and not line.startswith("#"):
            name, _, value = line.partition("=")
            settings.setdefault(name, []).append(value.replace("%i", instance))
    return settings


def command(settings: Settings, runtime: Path, instead: Sequence[str] = ()) -> list[str]:
    """Return a command line that runs the unit's command, or another one, confined; `runtime` becomes its runtime
    directory.
    """
    program, *arguments = settings["ExecStart"][-1].split()
    assert Path(program).name == "brickd"
    asked = instead or [sys.executable, "-P", "-m", "brickd", *arguments]
    return [sys.executable, __file__, json.dumps(settings), os.fspath(runtime), *asked]


def place(settings: Settings) -> str:
    """Return the path of the runtime directory, as the confined service sees it."""
    return f"/run/{settings['RuntimeDirectory'][0]}"


def missing() -> str:
    """Return why nothing can be confined on this machine, or ""."""
    if os.geteuid() != 0:
        return "needs root, to confine a process"
    if shutil.which("systemd-analyze") is None:
        return "needs systemd-analyze, which knows the sets of system calls"
    try:
        ctypes.CDLL("libseccomp.so.2")
    except OSError:
        return "needs libseccomp"
    return ""


# ---- mounts

# The folders that a setting hides, and those that it leaves readable.
_HIDDEN = {
    "ProtectHome": ["/home", "/root"],
    "PrivateTmp": ["/tmp", "/var/tmp"],
    "ProtectKernelModules": ["/usr/lib/modules"],
}
_READ_ONLY = {"ProtectKernelTunables": ["/proc/sys", "/sys"], "ProtectControlGroups": ["/sys/fs/cgroup"]}


def _private_devices() -> None:
    shm = os.open("/dev/shm", os.O_PATH)
    nodes = {name: os.stat(name) for name in map("/dev/{}".format, ("null", "zero", "full", "random", "urandom"))}
    isolation.mount("tmpfs", "/dev", "tmpfs", NOSUID, "mode=755")
    for name, status in nodes.items():
        os.mknod(name, status.st_mode, status.st_rdev)
        os.chmod(name, status.st_mode & 0o777)
    os.mkdir("/dev/shm")
    isolation.bind(shm, "/dev/shm")
    isolation.mount("", "/dev", flags=REMOUNT | BIND | RDONLY | NOSUID | NOEXEC)


def _mounts(settings: Settings, runtime: str) -> None:
    spaces = {"PrivateNetwork": NEWNET, "ProtectHostname": NEWUTS}
    isolation.apart(*(flag for name, flag in spaces.items() if _on(settings, name)))
    held = os.open(runtime, os.O_PATH)
    isolation.hide("/run", "755")
    os.mkdir(place(settings))
    isolation.bind(held, place(settings))
    user, state = pwd.getpwnam(settings["User"][0]), f"/var/lib/{settings['StateDirectory'][0]}"
    isolation.hide("/var/lib", "755")
    os.mkdir(state)
    mode = settings["StateDirectoryMode"][0]
    isolation.mount("tmpfs", state, "tmpfs", NOSUID | NODEV, f"mode={mode},uid={user.pw_uid},gid={user.pw_gid}")
    if settings.get("ProtectSystem") == ["strict"]:
        isolation.read_only("/", True)
        for path in ("/dev", "/proc", "/sys", place(settings), state):
            isolation.read_only(path, False)
    for name, paths in _HIDDEN.items():
        for path in filter(os.path.isdir, paths if _on(settings, name) else []):
            isolation.hide(path, "1777" if name == "PrivateTmp" else "0")
    if _on(settings, "PrivateDevices"):
        _private_devices()
    if (protected := settings.get("ProtectProc", ["default"])[-1]) != "default":
        isolation.mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC, f"hidepid={protected}")
    for name, paths in _READ_ONLY.items():
        for path in paths if _on(settings, name) else []:
            isolation.mount(path, path, flags=BIND | REC)
            isolation.read_only(path, True)


# ---- system calls

_ALLOW, _ERRNO, _NOT_THERE = 0x7FFF0000, 0x00050000, -1
_UNLIKE, _EQUAL, _MORE, _HAS = 1, 4, 6, 7  # libseccomp's numbers for comparisons of an argument


class _Compared(ctypes.Structure):
    _fields_ = [("arg", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


class Denied(NamedTuple):
    """A system call that fails; if `how` is not 0, it fails only if the comparison `how` of an argument is true."""

    call: str
    error: int = errno.EPERM
    arg: int = 0
    how: int = 0
    value: int = 0


def _sets() -> dict[str, list[str]]:
    """Return systemd's named sets of system calls."""
    reported = subprocess.run(["systemd-analyze", "syscall-filter"], capture_output=True, text=True, check=True).stdout
    found: dict[str, list[str]] = {}
    members: list[str] = []
    for line in reported.splitlines():
        if line.startswith("@"):
            members = found.setdefault(line.strip(), [])
        elif (word := line.strip()) and not word.startswith("#"):
            members.append(word)
    return found


def allowed(settings: Settings) -> set[str]:
    """Return the system calls that SystemCallFilter= allows, together with those that systemd always allows."""
    sets = _sets()

    def expanded(names: Iterable[str]) -> set[str]:
        return {call for name in names for call in (expanded(sets[name]) if name.startswith("@") else {name})}

    calls = expanded(["@default", "execve"])
    filters = settings["SystemCallFilter"]
    assert not filters[0].startswith("~"), "SystemCallFilter= must begin with a list of allowed calls"
    for each in filters:
        calls = calls - expanded(each[1:].split()) if each.startswith("~") else calls | expanded(each.split())
    return calls


def _families(values: list[str]) -> list[Denied]:
    left = {int(getattr(socket, family)) for value in values for family in value.split()}
    others = [Denied("socket", errno.EAFNOSUPPORT, 0, _EQUAL, n) for n in range(max(left)) if n not in left]
    return [*others, Denied("socket", errno.EAFNOSUPPORT, 0, _MORE, max(left))]


def _namespaces(_: list[str]) -> list[Denied]:
    flags = (NEWNS, NEWUTS, NEWNET, 0x2000000, 0x8000000, 0x10000000, 0x20000000)
    denied = [Denied(call, errno.EPERM, 0, _HAS, flag) for call in ("unshare", "clone") for flag in flags]
    # clone3 passes its flags in memory, which no filter can read. So the filter reports that clone3 does not exist.
    return [*denied, Denied("setns"), Denied("clone3", errno.ENOSYS)]


def _set_ids(_: list[str]) -> list[Denied]:
    modes = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "mkdir": 1, "mkdirat": 2, "mknod": 1, "mknodat": 2}
    return [Denied(call, errno.EPERM, arg, _HAS, bit) for call, arg in modes.items() for bit in (0o4000, 0o2000)]


def _executable(_: list[str]) -> list[Denied]:
    write, execute = 2, 4
    later = [Denied(call, errno.EPERM, 2, _HAS, execute) for call in ("mprotect", "pkey_mprotect")]
    return [
        Denied("mmap", errno.EPERM, 2, _HAS, write | execute),
        *later,
        Denied("shmat", errno.EPERM, 2, _HAS, 0o100000),
    ]


# The system calls that each setting denies, by a separate filter.
_DENIED: dict[str, Callable[[list[str]], list[Denied]]] = {
    "LockPersonality": lambda _: [Denied("personality", errno.EPERM, 0, _UNLIKE, 0)],
    "MemoryDenyWriteExecute": _executable,
    "ProtectClock": lambda _: [Denied(call) for call in _sets()["@clock"]],
    "ProtectHostname": lambda _: [Denied("sethostname"), Denied("setdomainname")],
    "ProtectKernelLogs": lambda _: [Denied("syslog")],
    "ProtectKernelModules": lambda _: [Denied(call) for call in _sets()["@module"]],
    "RestrictAddressFamilies": _families,
    "RestrictNamespaces": _namespaces,
    "RestrictRealtime": lambda _: [Denied("sched_setscheduler", errno.EPERM, 1, _MORE, 0)],
    "RestrictSUIDSGID": _set_ids,
}


def _filters(settings: Settings) -> None:
    lib = ctypes.CDLL("libseccomp.so.2")
    lib.seccomp_init.restype = ctypes.c_void_p

    def load(otherwise: int, rules: Iterable[tuple[int, Denied]]) -> None:
        context = ctypes.c_void_p(lib.seccomp_init(ctypes.c_uint(otherwise)))
        for action, rule in rules:
            number = lib.seccomp_syscall_resolve_name(rule.call.encode())
            compared = _Compared(rule.arg, rule.how, rule.value, rule.value)
            given = (ctypes.c_uint(action), number, int(rule.how != 0), ctypes.byref(compared))
            # Some system calls of a set do not exist on this architecture or in this libseccomp.
            if number != _NOT_THERE and (wrong := -lib.seccomp_rule_add_array(context, *given)) not in (0, errno.EDOM):
                raise OSError(wrong, os.strerror(wrong), str(rule))
        if wrong := -lib.seccomp_load(context):
            raise OSError(wrong, os.strerror(wrong), "a filter of system calls")

    denied = [rule for name, rules in _DENIED.items() if name in settings for rule in rules(settings[name])]
    otherwise = getattr(errno, settings["SystemCallErrorNumber"][0])
    listed = [(_ALLOW, Denied(call)) for call in sorted(allowed(settings))]
    load(_ALLOW, [(_ERRNO | rule.error, rule) for rule in denied])
    load(_ERRNO | otherwise, listed)  # install this filter last, because it denies further filters


# ---- the process


def _on(settings: Settings, name: str) -> bool:
    if (value := settings.get(name, ["no"])[-1]) not in ("yes", "no"):
        raise ValueError(f"{name}={value}: expected yes or no")
    return value == "yes"


_OTHERS = {
    *("User", "SupplementaryGroups", "Environment", "RuntimeDirectory", "UMask", "LimitCORE", "OOMScoreAdjust"),
    *("StateDirectory", "StateDirectoryMode"),
    *("ProtectSystem", "ProtectHome", "PrivateTmp", "PrivateDevices", "PrivateNetwork", "ProtectProc"),
    *("ProtectKernelTunables", "ProtectControlGroups", "CapabilityBoundingSet", "NoNewPrivileges"),
    *("SystemCallArchitectures", "SystemCallFilter", "SystemCallErrorNumber"),
}


def _confine(settings: Settings, runtime: str) -> None:
    if unknown := settings.keys() - _OTHERS - _DENIED.keys() - ELSEWHERE:
        raise ValueError(f"unknown settings: {sorted(unknown)}")
    user = pwd.getpwnam(settings["User"][0])
    _mounts(settings, runtime)
    os.chdir("/")
    os.umask(int(settings["UMask"][0], 8))
    resource.setrlimit(resource.RLIMIT_CORE, (int(settings["LimitCORE"][0]),) * 2)
    Path("/proc/self/oom_score_adj").write_text(settings["OOMScoreAdjust"][0])
    assert settings["CapabilityBoundingSet"] == [""], "CapabilityBoundingSet= must be empty"
    assert _on(settings, "NoNewPrivileges")
    more = [int(group) for line in settings.get("SupplementaryGroups", []) for group in line.split()]
    isolation.unprivileged(user.pw_uid, user.pw_gid, [*os.getgrouplist(user.pw_name, user.pw_gid), *more])
    assert settings["SystemCallArchitectures"] == ["native"], "SystemCallArchitectures= must be native"
    _filters(settings)


def _environment(settings: Settings) -> dict[str, str]:
    """Return the variables that systemd sets, and the variables that isolate the test."""
    user = pwd.getpwnam(settings["User"][0])
    given = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": user.pw_dir, "USER": user.pw_name}
    given |= dict(each.split("=", 1) for each in settings.get("Environment", []))
    kept = ("BRICKD_SHM_PREFIX", "NOTIFY_SOCKET", "WATCHDOG_USEC")
    return given | {name: os.environ[name] for name in kept if name in os.environ}


def _become() -> None:
    settings: Settings = json.loads(sys.argv[1])
    environment = _environment(settings)
    _confine(settings, sys.argv[2])
    os.execve(sys.argv[3], sys.argv[3:], environment)


if __name__ == "__main__":
    _become()
