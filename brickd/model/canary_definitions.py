"""The definitions of canaries: a file for each, in the state directory, which workers of the same user read.

Owns: the names, the content and the limits of the files. Must not know: workers, results. Invariants: a file is
complete or missing, and only its owner may access it; the name is in the content, so two canaries never have the same
digest by accident.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path
from typing import Any, NamedTuple

from brickd.base.json_values import document, listed, plain, require, text, validating, whole
from brickd.base.paths import runtime
from brickd.base.state_file import content_of, replace
from brickd.errors import BrickdError, CheckpointRefused, WrongQuestion
from brickd.shm import _reader

BYTES_MAX = 1 << 16
FILES_MAX = 64
_CHUNK_MAX = 64
_TOKEN_MAX = 2**31 - 1
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_WANTED_NAME = "1 to 64 letters, digits, '.', '_' or '-', the first a letter or a digit"


class CanaryDefinition(NamedTuple):
    """A canary: a prompt, and the tokens that follow it."""

    name: str
    tokens: tuple[int, ...]
    forced: tuple[int, ...] = ()
    chunk: int = 1

    def encoded(self) -> bytes:
        """Return the content of the file."""
        return plain({"name": self.name, "tokens": self.tokens, "forced": self.forced, "chunk": self.chunk}).encode()

    @property
    def digest(self) -> int:
        """The 32 bits that identify the definition in an order."""
        return _reader.source_hash(self.encoded()) >> 32


def decoded(name: str, content: bytes) -> CanaryDefinition:
    """Decode a file that a user wrote; raise a ValueError if it is invalid."""
    require(_NAME.fullmatch(name) is not None, f"a name of {_WANTED_NAME}", name)
    with validating():
        found = document(content, BYTES_MAX)
        require(isinstance(found, dict), "an object", found)
        unknown = sorted(found.keys() - {"name", "tokens", "forced", "chunk"})
        require(not unknown, "only the keys tokens, forced and chunk", unknown)
        require(text(found.get("name", name)) == name, f"the name {name}", found.get("name"))
        tokens, forced = _tokens(found["tokens"]), _tokens(found.get("forced", []))
        require(len(tokens) > 0, "at least one token", tokens)
        return CanaryDefinition(name, tokens, forced, whole(found.get("chunk", 1), 1, _CHUNK_MAX))


def _tokens(value: Any) -> tuple[int, ...]:
    return tuple(whole(each, most=_TOKEN_MAX) for each in listed(value, BYTES_MAX))


class CanaryFiles:
    """The directory of definitions."""

    def __init__(self, directory: Path | None = None) -> None:
        self.directory = runtime().canaries if directory is None else directory

    def all(self) -> tuple[list[CanaryDefinition], list[str]]:
        """Return the definitions by name, and what is wrong with the other files."""
        found, wrong = [], []
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for path in sorted(self.directory.glob("*.json"))[:FILES_MAX]:
                try:
                    content = content_of(path) or b""
                    each = decoded(path.stem, content)
                    require(each.encoded() == content, "a file that `brickd canary add` wrote", content)
                    found.append(each)
                except (OSError, ValueError, CheckpointRefused) as error:
                    wrong.append(f"{path}: {error}")
        return found, wrong

    def add(self, name: str, content: bytes) -> CanaryDefinition:
        """Add a canary, or replace the one with this name; raise WrongQuestion if it is invalid."""
        try:
            each = decoded(name, content)
            require(len(each.encoded()) <= BYTES_MAX, f"at most {BYTES_MAX} bytes", len(each.encoded()))
        except ValueError as error:
            raise WrongQuestion(f"canary {name}: {error}") from None
        path = self.directory / f"{name}.json"
        if not path.exists() and len(list(self.directory.glob("*.json"))) >= FILES_MAX:
            raise WrongQuestion(f"there are {FILES_MAX} canaries, and no more are possible (brickd canary rm NAME)")
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            replace(path, each.encoded(), follows=False)
        except OSError as error:
            raise BrickdError(f"{path}: {error.strerror}") from None
        return each

    def remove(self, name: str) -> None:
        """Remove a canary; raise WrongQuestion if it does not exist."""
        try:
            require(_NAME.fullmatch(name) is not None, "a name", name)
            os.unlink(self.directory / f"{name}.json")
        except (FileNotFoundError, NotADirectoryError, ValueError):
            raise WrongQuestion(f"no canary {name} (brickd canary ls lists them)") from None
        except OSError as error:
            raise BrickdError(f"{self.directory / name}.json: {error.strerror}") from None
