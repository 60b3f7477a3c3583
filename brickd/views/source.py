"""The view `source`: the texts from which kernels were compiled.

Owns: the schema of the document, the look-up by a prefix of a hash. Must not know: how sources are sent and kept,
screens. Invariants: A source that kernels refer to is listed even if its text is unknown. An unknown text is never
shown as an empty text.
"""

from __future__ import annotations

from collections.abc import Iterable

from brickd.base.units import listed, plural
from brickd.datasources.world import World
from brickd.errors import NoSuchSource, WrongQuestion
from brickd.model.kernel_sources.assembly import PIECE, SourceHead
from brickd.model.kernel_sources.launches import Referred, referred
from brickd.query.queries import SourceQuery
from brickd.views.common import Answer, Document, begun

_COUNTED = ("dropped", "refuted", "differing", "refused", "removed")
_NOTHING = SourceHead("", "", None, 0)
_SHOWN_MAX = 8  # how many matching hashes an error names


def answer(world: World, query: SourceQuery) -> Answer:
    """List the sources, or return the text of one source."""
    found = world.survey()
    known = world.sources(found.workers)
    heads, used = known.heads(), referred(found.workers)
    meant = _meant(query.hash, heads.keys() | used.keys())
    entries = [_entry(hash_, heads.get(hash_, _NOTHING), used.get(hash_, Referred())) for hash_ in meant]
    entries.sort(key=lambda entry: (-entry["launches"], entry["hash"]))
    counts = {what: known.counts.get(what, 0) for what in _COUNTED}
    document: Document = {**begun(world), "hash": None, "text": None, "sources": entries, "not_kept": counts}
    if query.hash is not None:
        source = known.read(meant[0])
        if source is None:
            raise NoSuchSource(f"the text of source {meant[0]:016x} is not known: {_lacking(heads.get(meant[0]))}")
        # Bytes that are not UTF-8 were replaced, and are restored on output.
        document |= {"hash": entries[0]["hash"], "text": source.text.decode("utf-8", "surrogateescape")}
    return Answer(document, found.words)


def _meant(prefix: str | None, every: Iterable[int]) -> list[int]:
    """Return the only hash with this prefix, or all hashes without a prefix.

    Raises:
        NoSuchSource: no hash matches.
        WrongQuestion: several hashes match.
    """
    if prefix is None:
        return list(every)
    digits = prefix.removeprefix("@").removeprefix("0x").lower()
    meant = sorted(hash_ for hash_ in every if digits and f"{hash_:016x}".startswith(digits))
    if not meant:
        raise NoSuchSource(
            f"no source {prefix}: no kernel refers to it and no worker sent it (brickd source lists the sources)"
        )
    if len(meant) > 1:
        hashes = listed([f"{hash_:016x}" for hash_ in meant], _SHOWN_MAX)
        raise WrongQuestion(f"source {prefix} is not unique: {hashes}: give more digits of its hash")
    return meant


def _lacking(head: SourceHead | None) -> str:
    if head is None or head.pieces == 0:
        return "kernels refer to this source, but no worker has sent the text yet"
    if head.pieces is None:
        return "the file with the text can no longer be read"
    if head.size is None:
        return f"{plural(head.pieces, 'piece')} of the text arrived, but not the last piece"
    wanted = -(-head.size // PIECE)
    if head.pieces >= wanted:
        return "the text that was sent does not match this hash"
    return f"{head.pieces:,} of {plural(wanted, 'piece')} of the text arrived"


def _entry(hash_: int, head: SourceHead, used: Referred) -> Document:
    whole = head.pieces is None
    return {
        "hash": f"{hash_:016x}",
        "name": head.name or None,
        "path": head.path or None,
        "size_bytes": head.size,
        "known": whole,
        "lacking": None if whole else _lacking(head),
        "pieces": head.pieces,
        "pieces_wanted": None if head.size is None else -(-head.size // PIECE),
        "differing": head.differing,
        "launches": used.launches.total(),
        "kernels": [{"name": name, "launches": count} for name, count in sorted(used.launches.items())],
        "workers": used.workers,
    }
