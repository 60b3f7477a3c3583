"""Sources: the texts that kernels are compiled from, told once to whoever reads this worker's events.

Owns: which texts are known here, and how much of each is told. Must not know: rings, records. Invariants: a text is
known by its hash for good; what found no room is told later, when the source is next used; no more sources are told
than there is a limit for, the others are counted; no text is kept once it is told; nothing is locked, for a signal
handler may come back to where it interrupted; a forked child tells anew what its parent had not told to its end.
"""

from __future__ import annotations

import os

from brick_agent._core import _source_hash, _tell

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
        text = self.text
        if text is None:
            return
        self.uses += 1
        if self.uses & (self.uses - 1):
            return
        self.told = max(told := _tell(text, self.name, self.path, int(self), self.told), 0)
        if told == _ALL:
            self.text = None

    def forked(self) -> None:
        """In a child, of whose events there are none yet."""
        self.told = self.uses = 0


# By what Python knows a text by, since the texts themselves are not to be kept.
_known: dict[tuple[int, int], Source] = {}


def _forked() -> None:
    for each in list(_known.values()):
        each.forked()


os.register_at_fork(after_in_child=_forked)


def source(text: str | Source, /, *, name: str | None = None, path: str | os.PathLike[str] | None = None) -> Source:
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
    text = str.__str__(text)  # a plain one, whatever its class may do
    place = (hash(text), len(text))
    found = _known.get(place)
    if found is None:
        found = Source(_plain(text), _label(name), _label(path))
        if len(_known) < KNOWN_MAX:
            found = _known.setdefault(place, found)
        else:
            _tell(None, None, None, int(found), 0)  # counts
            found.text = None
    found.tell()
    return found


def _plain(text: str) -> str:
    """As UTF-8 can hold it."""
    return text.encode("utf-8", "backslashreplace").decode()


def _label(label: object) -> str | None:
    """A name or a path that C can hold too; whatever was given, a host is not to fail for it."""
    if label is None:
        return None
    try:
        text = str(label)
    except Exception:
        text = f"<{type(label).__name__}>"
    return _plain(text).replace("\0", "\\0")
