"""The ids of sites, which are the same for all workers: digests of the sites' names.

Owns: the digest of a text, and the names of sites. Must not know: segments, the records of a site. Invariants: Within
one process, a text has the same digest for all workers. A random key prevents a worker from constructing two texts with
the same digest. The number of sites with a known name is bounded. A worker's site does not affect sites with other
names.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from brickd.shm import _reader

SITES_MAX = 65_536  # BRICK_SITE_COUNTS_MAX of fingerprint_window.h

_KEY = os.urandom(16)
_TIERS = _reader.SITE_ROWS | _reader.SITE_HISTORY
_STATEFUL = re.compile(
    r"attn|attention|sdpa|(?<![a-z])(mla|mha|gqa|mqa)(?![a-z])|flash|cache|(?<![a-z])kv(?![a-z])|mamba|(?<![a-z])ssm"
    r"|lstm|(?<![a-z])(gru|rnn)|recurrent|(?<![a-z])sampl|multinomial|dropout|random",
    re.IGNORECASE,
)
# The names of those parts of an attention block that read only their inputs.
_PLAIN = re.compile(r"((.*_)?[qkvo]+|.*proj(ection)?|.*dense|.*norm|rotary.*|rope.*|out(put)?|add)", re.IGNORECASE)


class Tier(IntEnum):
    """The kinds of fingerprints. Those of different tiers are never compared."""

    TENSORS = _reader.TIER_TENSORS  # whole tensors, by their inputs
    ROWS = _reader.TIER_ROWS  # single rows, by their input rows
    HISTORY = _reader.TIER_HISTORY  # single rows, by their histories

    @property
    def evidence(self) -> str:
        """The class of evidence that follows from comparing fingerprints of this tier."""
        return _EVIDENCE[self]


# A service, and one of the tiers in which its fingerprints are compared.
ServiceTier = tuple[str, Tier]

_EVIDENCE = {Tier.TENSORS: "input", Tier.ROWS: "row", Tier.HISTORY: "history"}
_FLAGS = {Tier.TENSORS: 0, Tier.ROWS: _reader.SITE_ROWS, Tier.HISTORY: _reader.SITE_HISTORY}


class Site(NamedTuple):
    """A place where fingerprints are compared; `layer` is -1 outside of layers."""

    kernel: str
    layer: int
    category: str


class WorkerNames(NamedTuple):
    """A worker's tables: names with the ids of their categories, and sites."""

    names: Sequence[tuple[str, int] | None]
    sites: Sequence[tuple[int, int, int] | None]

    def site(self, number: int) -> Site:
        """Return the site with this id. An unknown site gets a placeholder name."""
        row = self.sites[number] if number < len(self.sites) else None
        if row is None:
            return Site(f"site#{number}", -1, "other")
        name, layer, _ = row
        return Site(self.name(name), layer, self._category(name))

    def known(self, number: int) -> Site | None:
        """Return the site with this id; None if it is unknown."""
        row = self.sites[number] if number < len(self.sites) else None
        named = row is not None and row[0] < len(self.names) and self.names[row[0]] is not None
        return self.site(number) if named else None

    def name(self, number: int) -> str:
        """Return the text of a name."""
        entry = self.names[number] if number < len(self.names) else None
        return f"name#{number}" if entry is None else entry[0]

    def _category(self, name: int) -> str:
        entry = self.names[name] if name < len(self.names) else None
        return self.name(entry[1]) if entry is not None and entry[1] else "other"


def is_stateful(site: Site) -> bool:
    """Whether the site's name suggests hidden state, such as a cache or a random number."""
    if _PLAIN.fullmatch(site.kernel.rpartition(".")[2]):
        return False
    return site.category.casefold() == "attention" or _STATEFUL.search(site.kernel) is not None


@functools.lru_cache(maxsize=SITES_MAX)
def digest(text: str) -> int:
    """Return the digest of a text: 64 bits, never 0."""
    from hashlib import blake2b  # imported here, because it loads OpenSSL, which takes 2 ms

    return int.from_bytes(blake2b(text.encode(), digest_size=8, key=_KEY).digest(), "little") or 1


def site_digest(kernel: str, layer: int) -> int:
    """Return the digest of a site, without its category and flags."""
    return plain(digest(f"{layer}\0{kernel}")) & ~_TIERS


def plain(number: int) -> int:
    """Return the id of a site, without the flag for hidden state."""
    return number & ~_reader.SITE_STATEFUL


def of_tier(number: int, tier: Tier) -> int:
    """Return the id under which fingerprints of this tier are compared at this site."""
    return plain(number) & ~_TIERS | _FLAGS[tier]


def tier_of(number: int) -> Tier:
    """Return the tier of the fingerprints that have this id as their site."""
    return next((tier for tier, flag in _FLAGS.items() if number & flag), Tier.TENSORS)


@functools.lru_cache(maxsize=SITES_MAX)
def _number(site: Site) -> int:
    return site_digest(site.kernel, site.layer) | (_reader.SITE_STATEFUL if is_stateful(site) else 0)


class Sites:
    """The known sites, by id."""

    def __init__(self) -> None:
        self._known: dict[int, Site] = {}

    def copy(self) -> Sites:
        """Return a copy that may get further sites."""
        other = Sites()
        other._known = self._known.copy()
        return other

    def number(self, site: Site) -> int:
        """Return the id of a site: its digest, with the flag for hidden state if the site has such state."""
        number = _number(site)
        if number not in self._known and len(self._known) < SITES_MAX:
            self._known[number] = site
        return number

    def __getitem__(self, number: int) -> Site:
        """Return the site with this id, whatever the flags of the id are."""
        number &= ~_TIERS
        other = number ^ _reader.SITE_STATEFUL
        return self._known.get(number) or self._known.get(other) or Site(f"site#{number:x}", -1, "other")
