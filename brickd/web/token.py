"""The token with which a client may read data at a TCP port.

Owns: the file of the token: when it is created, and which file is accepted. Must not know: HTTP, who serves the data.
Invariants: Only this user can read the file, under any umask. A file of another user, a link, or a file that others may
read is never used and never replaced. No message contains the token. Processes that start at the same time get the same
token.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shlex
import stat
from collections.abc import Iterator
from pathlib import Path

from brickd.base.draft_file import name_draft
from brickd.errors import BrickdError

_BYTES = 32
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43}")  # 32 bytes in base64, without padding


def create_token(path: Path) -> bytes:
    """Return the token in a file. If there is no file, or no token in it, create one.

    The directory must exist, and only this user may change it.

    Raises:
        BrickdError: the file belongs to another user, is no regular file, others may read it, or it cannot be created.
    """
    try:
        with _alone_in(path.parent):
            return read_token(path) or _created(path)
    except OSError as error:
        raise BrickdError(f"{path}: cannot be created: {error.strerror} (check the directory)") from None


def read_token(path: Path) -> bytes | None:
    """Return the token in a file; None if there is no file, or no token in it.

    Raises:
        BrickdError: the file belongs to another user, is no regular file, others may read it, or it cannot be read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BrickdError(f"{path}: cannot be opened: {error.strerror} ({_removal(path)})") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise BrickdError(
                f"{path}: is {stat.filemode(status.st_mode)} of user {status.st_uid}, expected a file of user"
                f" {os.geteuid()} with mode 0600 ({_removal(path)})"
            )
        content = os.read(fd, 1024).removesuffix(b"\n")
    finally:
        os.close(fd)
    return content if _TOKEN.fullmatch(content) else None


def _created(path: Path) -> bytes:
    import secrets  # here, because only a new token needs it

    token = secrets.token_urlsafe(_BYTES).encode("ascii")
    draft = path.with_name(path.name + ".new")
    draft.unlink(missing_ok=True)  # left by a process that was killed
    try:
        fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            os.fchmod(fd, 0o600)  # a umask may have removed the owner's permission
            os.write(fd, token + b"\n")
            os.fsync(fd)
        finally:
            os.close(fd)
        name_draft(draft, path, replace=True)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    return token


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Let no other process create a token in this directory meanwhile."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _removal(path: Path) -> str:
    return f"remove it: rm {shlex.quote(os.fspath(path))}"
