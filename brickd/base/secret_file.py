"""A secret in a file that only its owner can read.

Owns: which files are accepted. Must not know: the use of a secret. Invariant: no message contains the secret.
"""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from brickd.errors import WrongQuestion

_SECRET_BYTES_MAX = 4096


def secret_of(path: Path, option: str) -> bytes:
    """Read the secret in the file that an option names.

    Raises:
        WrongQuestion: other users have access to the file, or the secret is empty or too long.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        why = f"{error.strerror} (check the path, its owner and mode)"
        raise WrongQuestion(f"{option} {path}: cannot be opened: {why}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            mode = stat.filemode(status.st_mode)
            raise WrongQuestion(f"{option} {path} has mode {mode}, expected a regular file")
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise WrongQuestion(
                f"{option} {path} has owner {status.st_uid} and mode {stat.S_IMODE(status.st_mode):04o},"
                f" expected owner {os.geteuid()} and mode 0600 (chmod 600 {shlex.quote(os.fspath(path))})"
            )
        secret = os.read(fd, _SECRET_BYTES_MAX + 2).strip()  # a newline may follow the secret
    finally:
        os.close(fd)
    if not 0 < len(secret) <= _SECRET_BYTES_MAX:
        seen = f"more than {_SECRET_BYTES_MAX:,}" if secret else "0"
        raise WrongQuestion(f"{option} {path} has {seen} bytes, expected 1 to {_SECRET_BYTES_MAX:,} bytes")
    return secret


def token_of(path: Path, option: str) -> bytes:
    """Read a token, which is a secret that fits into a header.

    Raises:
        WrongQuestion: as for `secret_of`, or the secret is not one line of text.
    """
    token = secret_of(path, option)
    if any(byte < 0x20 or byte == 0x7F for byte in token):
        raise WrongQuestion(f"{option} {path} has several lines or control characters, expected one line of text")
    return token
