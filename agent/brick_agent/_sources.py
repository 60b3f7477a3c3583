"""Sources: the texts that kernels are compiled from, told once to whoever reads this worker's events.

Owns: which texts are known here, and how much of each is told. Must not know: rings, records. Invariants: a text is
known by its hash for good; what found no room is told later, when the source is next used; no more texts are kept than
there is a limit for, and none once it is told.
"""

from __future__ import annotations

import os
import threading

from brick_agent._core import _source_hash, _tell

# typing takes longer to import than everything else here together: only type checkers see it.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

KNOWN_MAX = 1_024
_ALL = -1


class Source(int):
    """A source by its hash: what brick.kernel(source=) takes."""

    text: str | None
    name: str | None
    path: str | None
    told: int
    uses: int

    def __new__(cls, text: str, name: str | None, path: str | None) -> Self:
        """The source of a text, of which nothing is told yet."""
        self = super().__new__(cls, _source_hash(text))
        self.text, self.name, self.path = text, name, path
        self.told = self.uses = 0
        return self

    def __repr__(self) -> str:
        """As brickd calls it."""
        return f"<source {self:016x}>"

    def tell(self) -> None:
        """Tell what is left of it: at the first, second, fourth, eighth ... use, for a ring may stay full."""
        if self.text is None:
            return
        self.uses += 1
        if self.uses & (self.uses - 1):
            return
        self.told = _tell(self.text, self.name, self.path, int(self), self.told)
        if self.told == _ALL:
            self.text = None


_known: dict[str, Source] = {}
_lock = threading.Lock()


def source(text: str | Source, /, *, name: str | None = None, path: str | None = None) -> Source:
    """What a kernel is compiled from: make it once, and give it to brick.kernel(source=).

    The text is told to the daemon in pieces, as far as there is room; `brickd source HASH` shows it.

    >>> ptx = brick.source(".visible .entry rmsnorm_kernel() { ret; }", path="rmsnorm.ptx")
    >>> brick.kernel("rmsnorm_kernel", grid=16, block=256, source=ptx)
    >>> ptx
    <source 2457de3a2a827c90>
    """
    if isinstance(text, Source):
        text.tell()
        return text
    if not isinstance(text, str):
        if os.environ.get("BRICKD_STRICT") == "1":
            raise TypeError(f"brick_agent: a source must be a text, not {text!r} (BRICKD_STRICT=1)")
        text = f"<{type(text).__name__}>"
    found = _known.get(text)
    if found is None:
        plain = str(text).encode("utf-8", "backslashreplace").decode()
        found = Source(plain, _label(name), _label(path))
        with _lock:
            if len(_known) < KNOWN_MAX:
                found = _known.setdefault(text, found)
    found.tell()
    return found


def _label(text: str | None) -> str | None:
    """A name or a path that UTF-8 and C can hold."""
    if text is None:
        return None
    return str(text).encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")
