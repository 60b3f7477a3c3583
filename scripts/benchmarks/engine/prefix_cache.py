"""The blocks of a paged cache. Some are free, some are in use, and some can be reused by another request with the same
prefix.

Owns: references, contents by key, the order of reuse. Must not know: tensors, requests. Invariants: a block with
references is never given out; a key belongs to one block; equal keys mean that the tokens of the block and all tokens
before them are equal; a block that is reused keeps its note, which says how its content was computed. Block 0 is never
given out: padding is written there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

BLOCK = 16  # the number of tokens in a block
Note = TypeVar("Note")


def keys(tokens: Sequence[int]) -> Iterator[bytes]:
    """The key of each full block."""
    key = b""
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        content = b"".join(token.to_bytes(4, "little") for token in tokens[start : start + BLOCK])
        key = hashlib.blake2b(key + content, digest_size=16).digest()
        yield key


@dataclass
class _Block(Generic[Note]):
    references: int = 0
    key: bytes | None = None
    note: Note | None = None


class PrefixCache(Generic[Note]):
    """The blocks of a replica. Each full block may have a note about its content."""

    def __init__(self, blocks: int) -> None:
        self._blocks: list[_Block[Note]] = [_Block() for _ in range(blocks)]
        self._free: dict[int, None] = dict.fromkeys(range(1, blocks))  # the first one is the next to be used
        self._known: dict[bytes, int] = {}

    @property
    def free(self) -> int:
        """The number of blocks without references."""
        return len(self._free)

    def take(self) -> int | None:
        """Take a block, and forget its content. Return None if all blocks are in use."""
        number = next(iter(self._free), None)
        if number is None:
            return None
        del self._free[number]
        block = self._blocks[number]
        if block.key is not None:
            del self._known[block.key]
        self._blocks[number] = _Block(references=1)
        return number

    def reuse(self, tokens: Sequence[int]) -> list[int]:
        """Take the blocks of the longest known prefix, but never those of the last token, which must be computed."""
        found = []
        for key in keys(tokens[:-1]):
            number = self._known.get(key)
            if number is None:
                break
            self._blocks[number].references += 1
            self._free.pop(number, None)
            found.append(number)
        return found

    def publish(self, number: int, key: bytes, note: Note) -> None:
        """Let other requests reuse a full block, unless another block with the same content can be reused."""
        if self._blocks[number].key is None and key not in self._known:
            self._known[key] = number
            self._blocks[number].key, self._blocks[number].note = key, note

    def note(self, number: int) -> Note | None:
        """The note about the content of a block."""
        return self._blocks[number].note

    def release(self, numbers: Sequence[int]) -> None:
        """Give blocks back. `take` returns blocks without a key first, and then the blocks that were given back first.

        The blocks at the end of a prefix are given back before those at its beginning.
        """
        empty = []
        for number in reversed(numbers):
            block = self._blocks[number]
            block.references -= 1
            if block.key is None:  # such a block has only one reference
                empty.append(number)
            elif block.references == 0:
                self._free[number] = None
        if empty:
            self._free = dict.fromkeys(empty) | self._free
