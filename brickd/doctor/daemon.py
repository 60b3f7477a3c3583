"""Checks the daemon, and the directory of its state.

Owns: the observed facts about the runtime directory, and the verdict. Must not know: what a daemon does. Invariants: A
missing daemon is not a fault, because every verb works without a daemon. The check changes nothing and starts no
daemon.
"""

from __future__ import annotations

import os
import shlex
import stat
from typing import NamedTuple

from brickd.base.files import holder, process
from brickd.base.paths import Runtime
from brickd.client import client
from brickd.client.other_version import Build, compared, is_newer
from brickd.doctor.check import CheckResult, fine
from brickd.errors import BrickdError, CheckpointRefused
from brickd.state import checkpoint

MIB = 1 << 20
# A checkpoint of 64 dead workers with 1,000 paths each has 6.8 MB. The draft of a checkpoint and the live workers also
# need room.
_ROOM_BYTES = 32 * MIB
_RESTART = "brickd down && brickd up -d"
_OWN = "export BRICKD_RUNTIME_DIR=/a/directory/of/yours"


class DaemonFacts(NamedTuple):
    """The state of the runtime directory and of its daemon. A text is "" if there is nothing to report.

    Attributes:
        directory: the directory of the daemon's state.
        owner: the other user who owns the directory and whose daemon answers; None if there is no such user.
        wrong: what is wrong with the directory.
        missing: why the directory cannot be created.
        pid: the process that holds the daemon's lock; 0 if it is in another pid namespace, None if there is none.
        ended: the socket that a killed daemon left.
        build: the daemon's build of brickd.
        silence: why the daemon does not answer.
        trouble: why the daemon cannot save its state, as it reports; "" if it can.
        checkpoint: the path of the checkpoint.
        damage: why the checkpoint cannot be read.
        free_bytes: the free room in the directory's file system; None if unknown.
    """

    directory: str
    owner: int | None = None
    wrong: str = ""
    missing: str = ""
    pid: int | None = None
    ended: str = ""
    build: Build = Build(None)
    silence: str = ""
    trouble: str = ""
    checkpoint: str = ""
    damage: str = ""
    free_bytes: int | None = None


def observe(place: Runtime, uid: int) -> DaemonFacts:
    """Examine the directory, and query its daemon."""
    found = DaemonFacts(os.fspath(place.directory))
    try:
        status = place.directory.lstat()
    except FileNotFoundError:
        above = next(parent for parent in place.directory.parents if parent.exists())
        may = os.access(above, os.W_OK | os.X_OK)
        return found if may else found._replace(missing=f"this user cannot write to {above}")
    except OSError as error:
        return found._replace(missing=error.strerror or str(error))
    if status.st_uid != uid and (theirs := _asked(found._replace(owner=status.st_uid))).pid is not None:
        return theirs
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != uid or status.st_mode & 0o022:
        return found._replace(wrong=f"{stat.filemode(status.st_mode)} of user {status.st_uid}")
    space = os.statvfs(place.directory)
    found = found._replace(free_bytes=space.f_bavail * space.f_frsize, pid=_holder(place))
    if place.checkpoint.exists():
        found = found._replace(checkpoint=os.fspath(place.checkpoint), damage=_damage(place))
    return found._replace(ended=_ended(place)) if found.pid is None else _asked(found)


def _holder(place: Runtime) -> int | None:
    try:
        fd = os.open(place.lock, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return holder(fd, 0)
    finally:
        os.close(fd)


def _damage(place: Runtime) -> str:
    try:
        checkpoint.load(place.checkpoint)
    except (CheckpointRefused, OSError) as error:
        return str(error)
    return ""


def _ended(place: Runtime) -> str:
    """Return the socket if no process listens on it. A socket that the user configured may belong to another daemon."""
    try:
        client.ask("").document()
    except BrickdError as error:
        if isinstance(error, client.NoAnswer) and error.why == "stale":
            return os.fspath(place.socket)
    return ""


def _asked(found: DaemonFacts) -> DaemonFacts:
    try:
        document = client.ask("").document()
    except BrickdError as error:
        return found._replace(silence=error.what if isinstance(error, client.NoAnswer) else str(error))
    pid = document.get("pid") if found.pid is None else found.pid
    trouble = str(document.get("checkpoint_problem") or "")
    return found._replace(pid=pid, trouble=trouble, build=Build(document.get("version"), document.get("build")))


def judge(daemon: DaemonFacts, ours: Build) -> list[CheckResult]:
    """Judge whether the daemon answers and has our build.

    Judge also whether its directory can be used, and whether its state is saved.
    """
    return [_running(daemon, ours), _directory(daemon), _kept(daemon)]


def _running(daemon: DaemonFacts, ours: Build) -> CheckResult:
    wanted = "a daemon of this build that answers, or no daemon"
    if daemon.ended:
        seen = f"no process listens at {daemon.ended}: its daemon was killed"
        why = "until a daemon runs, no process reads the rings, and events without room are lost"
        return CheckResult("daemon", "advice", seen, wanted, "brickd up -d", why)
    if daemon.pid is None:
        return fine("daemon", "no daemon runs: brickd reads shared memory", wanted)
    if not daemon.silence and daemon.build != ours:
        seen = f"{process(daemon.pid)} answers and {compared(daemon.build, ours)}"
        fix = "pip install --upgrade ." if is_newer(daemon.build.version, ours.version) else _RESTART
        return CheckResult("daemon", "advice", seen, wanted, fix, "some answers of the daemon may not be usable")
    if not daemon.silence:
        return fine("daemon", f"{process(daemon.pid)} answers", wanted)
    seen = f"{process(daemon.pid)} runs and does not answer: {daemon.silence}"
    return CheckResult("daemon", "broken", seen, wanted, _RESTART, "the daemon keeps its state across the restart")


def _directory(daemon: DaemonFacts) -> CheckResult:
    name, wanted = "daemon-directory", "a directory that only this user can write"
    if daemon.wrong:
        fix = f"chmod 700 {shlex.quote(daemon.directory)}"
        return CheckResult(name, "broken", f"{daemon.directory}: {daemon.wrong}", wanted, fix, f"or {_OWN}")
    if daemon.missing:
        seen = f"{daemon.directory} cannot be created: {daemon.missing}"
        return CheckResult(name, "advice", seen, wanted, _OWN, "without it no daemon can start")
    if daemon.owner is not None:
        return fine(name, f"{daemon.directory} belongs to user {daemon.owner}, whose daemon answers", wanted)
    if daemon.free_bytes is not None and daemon.free_bytes < _ROOM_BYTES:
        seen = f"{daemon.directory} has {daemon.free_bytes / MIB:,.1f} MiB free"
        why = "or make room: events that the daemon cannot save stay in the workers' rings, until these are full"
        return CheckResult(name, "advice", seen, f"at least {_ROOM_BYTES // MIB} MiB free", _OWN, why)
    return fine(name, daemon.directory, wanted)


def _kept(daemon: DaemonFacts) -> CheckResult:
    name, wanted = "checkpoint", "a checkpoint that can be read, or none yet"
    if daemon.trouble:
        fix = f"df {shlex.quote(daemon.directory)}"
        return CheckResult(
            name, "broken", f"cannot be written: {daemon.trouble}", wanted, fix, "the daemon tries again every second"
        )
    if daemon.damage:
        seen, path = f"{daemon.checkpoint}: {daemon.damage}", shlex.quote(daemon.checkpoint)
        why = "the totals of ended workers and the deferred work in it are lost; a new daemon also moves it"
        return CheckResult(name, "broken", seen, wanted, f"mv {path} {path}.refused", why)
    return fine(name, daemon.checkpoint or "none yet", wanted)
