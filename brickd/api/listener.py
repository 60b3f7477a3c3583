"""The socket of the API.

Owns: the file of the socket: its mode and group, which file it may replace, and when it is removed. Must not know:
HTTP, the application. Invariants: The mode of the file is never wider than intended, not even briefly. While the file
exists, the socket listens. An existing file is replaced only if it is a socket, and only if this process holds the
daemon's lock. A listener removes only its own file.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from pathlib import Path
from typing import Self

from brickd.errors import BrickdError

_LONGEST = 107  # the bytes of sun_path, without the final zero
_DRAFT = ".new"
_BACKLOG = 32  # how many clients may wait before the server sets its own limit


class Listener:
    """A listening unix socket and its file. The owner of the file, root and the members of `group` may connect."""

    def __init__(self, path: Path, *, group: int | None = None, replace: bool = False) -> None:
        """Create the file, or raise BrickdError. `replace` says whether an existing socket belongs to a dead daemon."""
        draft = path.with_name(path.name + _DRAFT)
        if len(os.fsencode(draft)) > _LONGEST:
            most = _LONGEST - len(_DRAFT)
            raise BrickdError(
                f"{path}: has {len(os.fsencode(path))} bytes, expected at most {most} in a socket's path"
                " (set BRICKD_SOCKET to a shorter one)"
            )
        _require_free(path, replace=replace)
        self.path, self.group = path, group
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            # The kernel creates the file with the socket's mode minus the umask, so the mode is never wider. The file
            # is renamed only after it has its group and the socket listens, so clients always find a listening socket.
            os.fchmod(self.socket.fileno(), 0o600)
            with contextlib.suppress(FileNotFoundError):
                draft.unlink()
            self.socket.bind(os.fspath(draft))
            if group is not None:
                os.chown(draft, -1, group)
            draft.chmod(0o600 if group is None else 0o660)
            self._made = draft.stat()
            self.socket.listen(_BACKLOG)
            draft.rename(path)
        except BaseException:
            self.socket.close()
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def close(self) -> None:
        """Stop listening, and remove the file."""
        self.remove()
        self.socket.close()

    def remove(self) -> None:
        """Remove the file if the file still belongs to this socket. After that, no client finds the daemon."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self._made, self.path.lstat()):
                self.path.unlink()

    def missing(self) -> bool:
        """Return whether the file was removed. Another file with the same name is not touched."""
        return not os.path.lexists(self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _require_free(path: Path, *, replace: bool) -> None:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(there.st_mode):
        mode = stat.filemode(there.st_mode)
        raise BrickdError(f"{path}: exists but is not a socket (mode {mode}): remove it, or set BRICKD_SOCKET")
    if not replace:
        raise BrickdError(f"{path}: the socket of another daemon exists: stop that daemon (brickd down)")
