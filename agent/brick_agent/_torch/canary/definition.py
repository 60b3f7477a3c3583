"""The definitions of canaries, which `brickd canary add` writes into the state directory.

Owns: where the files are, and which of them may be read. Must not know: models, orders. Invariant: a file is believed
only if this user owns it, no other user may write to it, and it has the digest that was ordered.
"""

from __future__ import annotations

import os
import stat

from brick_agent._core import _source_hash
from brick_agent._torch.canary.refusal import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Definition = tuple[str, list[int], list[int], int]  # name, tokens, forced tokens, chunk

BYTES_MAX = 1 << 16
FILES_MAX = 64
_FLAGS = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def definition_of(digest: int) -> Definition:
    """Return the definition with this digest; raise a RefusalError if there is no valid one."""
    directory = _directory()
    for content in _contents(directory):
        if _source_hash(content) >> 32 == digest:
            return _decoded(content)
    raise RefusalError("definition", f"no file of this user in {directory} has the digest {digest:08x}")


def _directory() -> str:
    """Return the directory, as `brickd` finds it."""
    state = os.environ.get("BRICKD_STATE_DIR")
    common = os.environ.get("XDG_STATE_HOME")
    home = os.path.join(os.path.expanduser("~"), ".local", "state")
    return os.path.join(state or os.path.join(common or home, "brickd"), "canaries")


def _contents(directory: str) -> Iterator[str]:
    try:
        names = sorted(name for name in os.listdir(directory) if name.endswith(".json"))
    except OSError as error:
        raise RefusalError("definition", f"{directory}: {error.strerror}") from None
    for name in names[:FILES_MAX]:
        try:
            fd = os.open(os.path.join(directory, name), _FLAGS)
        except OSError:
            continue
        with open(fd, "rb") as file:
            found = os.fstat(fd)
            is_ours = found.st_uid == os.geteuid() and not found.st_mode & _OTHERS_WRITE
            if stat.S_ISREG(found.st_mode) and is_ours and found.st_size <= BYTES_MAX:
                yield file.read(BYTES_MAX).decode("utf-8", "replace")


def _decoded(content: str) -> Definition:
    import json  # here, because few workers run canaries

    try:
        found = json.loads(content)
        return str(found["name"]), list(found["tokens"]), list(found["forced"]), found["chunk"]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise RefusalError("definition", f"is invalid: {type(error).__name__}") from None
