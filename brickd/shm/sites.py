"""Sites of many workers under one number: digests of the names that workers use.

Owns: which digest stands for which text, and what sites are called. Must not know: segments, what was recorded there.
Invariants: the same text has the same digest for all workers of one process's life, and no worker can make two texts
share one; how many sites are known by name is bounded; what one calls its own site decides nothing of the others'.
"""

from __future__ import annotations

import functools
import hashlib
import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from brickd.shm import _reader

SITES_MAX = 65_536  # as many as are counted apart: BRICK_SITE_COUNTS_MAX of prints.h

_KEY = os.urandom(16)
_STATEFUL = re.compile(
    r"attn|attention|sdpa|(?<![a-z])(mla|mha|gqa|mqa)(?![a-z])|flash|cache|(?<![a-z])kv(?![a-z])|mamba|(?<![a-z])ssm"
    r"|lstm|(?<![a-z])(gru|rnn)|recurrent|(?<![a-z])sampl|multinomial|dropout|random",
    re.IGNORECASE,
)
# What the parts of an attention are called that read nothing but their inputs.
_PLAIN = re.compile(r"((.*_)?[qkvo]+|.*proj(ection)?|.*dense|.*norm|rotary.*|rope.*|out(put)?|add)", re.IGNORECASE)


class Site(NamedTuple):
    """Where numbers are compared; `layer` is -1 without one."""

    kernel: str
    layer: int
    category: str


class WorkerNames(NamedTuple):
    """What a worker's numbers stand for: names with the numbers of their categories, sites."""

    names: Sequence[tuple[str, int] | None]
    sites: Sequence[tuple[int, int, int] | None]

    def site(self, number: int) -> Site:
        """What a site is called."""
        row = self.sites[number] if number < len(self.sites) else None
        if row is None:
            return Site(f"site#{number}", -1, "other")
        name, layer, _ = row
        return Site(self.name(name), layer, self._category(name))

    def known(self, number: int) -> Site | None:
        """The same; None of one that was never named."""
        row = self.sites[number] if number < len(self.sites) else None
        named = row is not None and row[0] < len(self.names) and self.names[row[0]] is not None
        return self.site(number) if named else None

    def name(self, number: int) -> str:
        """The text of a name."""
        entry = self.names[number] if number < len(self.names) else None
        return f"name#{number}" if entry is None else entry[0]

    def _category(self, name: int) -> str:
        entry = self.names[name] if name < len(self.names) else None
        return self.name(entry[1]) if entry is not None and entry[1] else "other"


def is_stateful(site: Site) -> bool:
    """Whether its name suggests hidden state that decides its output: a cache, a random number."""
    if _PLAIN.fullmatch(site.kernel.rpartition(".")[2]):
        return False
    return site.category.casefold() == "attention" or _STATEFUL.search(site.kernel) is not None


@functools.lru_cache(maxsize=SITES_MAX)
def digest(text: str) -> int:
    """The digest of a text: any number of 64 bits but 0."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8, key=_KEY).digest(), "little") or 1


def site_digest(kernel: str, layer: int) -> int:
    """The digest of a site, without its category and the flag for hidden state."""
    return plain(digest(f"{layer}\0{kernel}"))


def plain(number: int) -> int:
    """The digest of the site that a worker has this number for."""
    return number & ~_reader.SITE_STATEFUL


@functools.lru_cache(maxsize=SITES_MAX)
def _number(site: Site) -> int:
    return site_digest(site.kernel, site.layer) | (_reader.SITE_STATEFUL if is_stateful(site) else 0)


class Sites:
    """The known sites, by number."""

    def __init__(self) -> None:
        self._known: dict[int, Site] = {}

    def copy(self) -> Sites:
        """A copy that may learn further sites."""
        other = Sites()
        other._known = self._known.copy()
        return other

    def number(self, site: Site) -> int:
        """The number of a site under this name: its digest, and whether a state decides there."""
        number = _number(site)
        if number not in self._known and len(self._known) < SITES_MAX:
            self._known[number] = site
        return number

    def __getitem__(self, number: int) -> Site:
        """The site of this number, or else of the other one with the same digest."""
        other = number ^ _reader.SITE_STATEFUL
        return self._known.get(number) or self._known.get(other) or Site(f"site#{number:x}", -1, "other")
