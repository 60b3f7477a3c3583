"""Kernel sources, which are sent once to the readers of this worker's events.

Owns: the known sources, and how much of each source was sent. Must not know: rings, records. Invariants: a text keeps
its hash; a piece for which the ring has no room is sent at a later use of the source; if KNOWN_MAX sources are known, a
new source is only counted as dropped; a text is freed once it was sent; there are no locks, because a signal handler
may interrupt any line; a forked child sends again every source that its parent had not sent completely.
"""

from __future__ import annotations

import os

from brick_agent._core import _send_source, _source_hash

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Self

KNOWN_MAX = 1_024
_ALL = -1


class Source(int):
    """The hash of a source, for brick.kernel(source=)."""

    text: str | None
    name: str | None
    path: str | None
    next_piece: int
    uses: int

    def __new__(cls, text: str, name: str | None, path: str | None) -> Self:
        """Create the source of a text, without sending it."""
        self = super().__new__(cls, _source_hash(text))
        self.text, self.name, self.path = text, name, path
        self.next_piece = self.uses = 0
        return self

    def __repr__(self) -> str:
        """Return the hash as brickd shows it."""
        return f"<source {self:016x}>"

    def send(self) -> None:
        """Try to send the rest of the text, but only at use 1, 2, 4, 8 and so on, because a ring may stay full."""
        text = self.text
        if text is None:
            return
        self.uses += 1
        if self.uses & (self.uses - 1):
            return
        self.next_piece = max(next_piece := _send_source(text, self.name, self.path, int(self), self.next_piece), 0)
        if next_piece == _ALL:
            self.text = None


# The keys are Python's hash and the length, because the texts are not kept.
_known: dict[tuple[int, int], Source] = {}


def _forked() -> None:
    for each in list(_known.values()):
        each.next_piece = each.uses = 0  # a forked child has sent nothing


os.register_at_fork(after_in_child=_forked)


def source(text: str | Source, /, *, name: str | None = None, path: str | os.PathLike[str] | None = None) -> Source:
    """Create the source of a kernel once, and pass it to brick.kernel(source=).

    The daemon receives the text in pieces while there is room; `brickd source HASH` shows the text.

    >>> ptx = brick.source(".visible .entry rmsnorm_kernel() { ret; }", path="rmsnorm.ptx")
    >>> brick.kernel("rmsnorm_kernel", grid=16, block=256, source=ptx)
    >>> ptx
    <source 2457de3a2a827c90>
    """
    if isinstance(text, Source):
        text.send()
        return text
    if not isinstance(text, str):
        if os.environ.get("BRICKD_STRICT") == "1":
            raise TypeError(f"brick_agent: a source must be a text, not {text!r} (BRICKD_STRICT=1)")
        text = f"<{type(text).__name__}>"
    text = str.__str__(text)  # a plain str: a subclass may override methods
    key = (hash(text), len(text))
    known = _known.get(key)
    if known is None:
        known = Source(_plain(text), _label(name), _label(path))
        if len(_known) < KNOWN_MAX:
            known = _known.setdefault(key, known)
        else:
            _send_source(None, None, None, int(known), 0)  # counts a dropped record
            known.text = None
    known.send()
    return known


def _plain(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()


def _label(label: object) -> str | None:
    """Convert a label to a text that C can read. An invalid label causes no exception."""
    if label is None:
        return None
    try:
        text = str(label)
    except Exception:
        text = f"<{type(label).__name__}>"
    return _plain(text).replace("\0", "\\0")
