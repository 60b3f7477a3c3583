"""The runtime directory of one daemon, and the state in it.

Owns: the directory's mode and its lock, which checkpoint is restored. Must not know: what a daemon does. Invariants:
Only one process at a time uses the directory. No other user can change its content. When a checkpoint that cannot be
restored is replaced, it is kept under another name. A checkpoint that was made for another prefix is never replaced.
"""

from __future__ import annotations

import contextlib
import grp
import os
import shlex
import stat
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Self, TypeVar

from brickd.analysis.weights import codec
from brickd.analysis.weights.store import Weights
from brickd.base import state_file
from brickd.base.files import holder, process, take
from brickd.base.paths import Runtime
from brickd.errors import CheckpointRefused, CheckpointTooNew, DaemonRefused
from brickd.shm import removed_file
from brickd.shm.segment_files import find, identifier_of
from brickd.state import checkpoint
from brickd.state.daemon_state import Memory

Left = TypeVar("Left")


class Home:
    """The runtime directory of this process."""

    def __init__(self, runtime: Runtime, *, group: int | None = None) -> None:
        """Lock the directory, or raise DaemonRefused. The members of `group` get access to the socket."""
        self._runtime, self._group = runtime, group
        self._lock = self._take()
        self._restoring = threading.Lock()

    def _take(self) -> int:
        """Create the directory if it is missing, and lock it; return the descriptor of the lock."""
        runtime, directory = self._runtime, self._runtime.directory
        make_directory(directory)
        try:
            lock = os.open(runtime.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            text = f"{runtime.lock}: {error.strerror} (set BRICKD_RUNTIME_DIR to a directory of yours)"
            raise DaemonRefused(text) from None
        if not take(lock, 0):
            pid = holder(lock, 0)
            os.close(lock)
            ending = "`brickd down` stops it" if pid else "run `brickd down` in its pid namespace"
            raise DaemonRefused(f"a daemon is already running in {directory}: {process(pid or 0)} ({ending})")
        try:
            self._admit()
        except DaemonRefused:
            os.close(lock)
            raise
        return lock

    def _admit(self) -> None:
        """Give the group access to the socket."""
        if self._group is None:
            return
        directory = self._runtime.directory
        try:
            os.chown(directory, -1, self._group)
            directory.chmod(0o710)
        except OSError as error:
            raise DaemonRefused(
                f"{directory}: cannot be given to group {_name(self._group)} ({error.strerror}): set BRICKD_GROUP to a"
                f" group of which user {os.geteuid()} is a member"
            ) from None

    def restore(self, prefix: str) -> bool:
        """Lock the directory again if it was removed; return whether it was removed. Any thread may call it.

        Raises:
            DaemonRefused: the directory cannot be locked, or its checkpoint now has another prefix.
        """
        with self._restoring:
            if not self._removed():
                return False
            lock = self._take()
            try:
                self.memory(prefix)
            except DaemonRefused:
                os.close(lock)
                raise
            lost, self._lock = self._lock, lock
            # closing another descriptor of the same file would release the lock
            if not os.path.samestat(os.fstat(lost), os.fstat(lock)):
                os.close(lost)
            return True

    def _removed(self) -> bool:
        try:
            return not os.path.samestat(os.fstat(self._lock), self._runtime.lock.stat())
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError as error:
            why = f"{error.strerror} (check its owner and mode)"
            raise DaemonRefused(f"{self._runtime.lock}: cannot be read: {why}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock)

    def memory(self, prefix: str) -> tuple[Memory, str]:
        """Return the state of an earlier daemon, and why the state is lost ("" if it is not).

        Raises:
            DaemonRefused: the state has another prefix, has a later version, or cannot be read.
        """
        path = self._runtime.checkpoint
        memory, broken = self._left(path, checkpoint.decode)
        if memory is not None and memory.prefix != prefix:
            raise DaemonRefused(
                f"{path}: describes the segments {memory.prefix}*, but this daemon drains {prefix}*: {_way_out(path)},"
                " or set another BRICKD_RUNTIME_DIR"
            )
        return memory or Memory(prefix), broken

    def weights(self, prefix: str) -> tuple[Weights, str]:
        """Return the weights of an earlier daemon, and why they are lost ("" if they are not).

        Raises the errors of `memory`.
        """
        weights, broken = self._left(self._runtime.weights, lambda content: codec.decode(prefix, content))
        return weights or Weights(), broken

    def _left(self, path: Path, decode: Callable[[bytes], Left | None]) -> tuple[Left | None, str]:
        try:
            content = state_file.content_of(path)
            return (None if content is None else decode(content)), ""
        except OSError as error:
            raise DaemonRefused(f"{path}: cannot be read: {error.strerror}: {_way_out(path)}") from None
        except CheckpointTooNew as error:
            raise DaemonRefused(f"{path}: {error}, or {_way_out(path)}") from None
        except CheckpointRefused as error:
            # The file is moved only when another file replaces it. So if this daemon dies before its report, the next
            # daemon reports the loss.
            aside = path.with_name(path.name + ".refused")
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)
                aside.hardlink_to(path)
            return None, f"{path}: {error}; moved aside as {aside.name}: its contents are lost"

    def keep(self, content: bytes) -> None:
        """Replace the checkpoint."""
        checkpoint.save(self._runtime.checkpoint, content)

    def keep_weights(self, content: bytes) -> None:
        """Replace the state of weights. The checkpoint must never be newer than this state."""
        checkpoint.save(self._runtime.weights, content)

    def forget(self, prefix: str, uuids: Collection[str] | None = None) -> int:
        """Drop the dead workers with these uuids, or all dead workers, from the checkpoint; return their number.

        Like a daemon, this also moves records of removed workers into the checkpoint. A worker without a segment is
        dead.
        """
        memory = checkpoint.load(self._runtime.checkpoint) or Memory(prefix)
        if memory.prefix != prefix:
            path = self._runtime.checkpoint
            raise DaemonRefused(
                f"{path}: describes the segments {memory.prefix}*, expected {prefix}* (set BRICKD_SHM_PREFIX)"
            )
        records = removed_file.look(prefix)
        memory.fold(records.removed)
        there = {identifier_of(name) for name in find(prefix)}
        memory.known = {uuid: each for uuid, each in memory.known.items() if each.file is None or each.file in there}
        forgotten = memory.forget(uuids)
        if uuids is None:
            memory.removed.take_note()
        self.keep(checkpoint.encode(memory))
        removed_file.truncate(prefix, records.content)
        return forgotten


def make_directory(directory: Path) -> None:
    """Create a runtime directory if it is missing.

    Raises:
        DaemonRefused: it cannot be created, or another user can change it.
    """
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = directory.lstat()
    except OSError as error:
        raise DaemonRefused(f"{directory}: {error.strerror} (set BRICKD_RUNTIME_DIR to a directory of yours)") from None
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        seen = f"{stat.filemode(status.st_mode)} of user {status.st_uid}"
        expected = f"a directory that only user {os.geteuid()} may change"
        raise DaemonRefused(f"{directory}: is {seen}, expected {expected} (set BRICKD_RUNTIME_DIR)")


def _way_out(path: Path) -> str:
    """Return the command that moves a file aside, so that the next daemon starts without it."""
    return f"move it aside (mv {shlex.quote(os.fspath(path))} {shlex.quote(f'{path}.aside')})"


def _name(group: int) -> str:
    try:
        return grp.getgrgid(group).gr_name
    except KeyError:
        return str(group)
