"""Sources: the texts from which kernels are compiled. Workers send them.

Owns: the incomplete and the complete sources, and what happens to sources for which there is no room. Must not know:
rings, callers, how a source is assembled. Invariants: A source is kept once, even if many workers send it. If several
texts have the same hash, the first one is kept, and the senders of the others are counted. Everything is limited, and
what exceeds a limit is counted and logged. A complete source stays in memory until it is in its file.
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Protocol

from brickd.base.json_values import bits, limited, pieces, plain, unicode, whole
from brickd.base.units import plural
from brickd.model.event_log import LogEvent
from brickd.model.kernel_sources.assembly import PIECE, KernelSource, Making, SourceHead, packed_source, unpacked_source
from brickd.model.kernel_sources.files import Filed

MAKING_MAX = 256
MAKING_BYTES_MAX = 8 << 20
WHOLE_BYTES_MAX = 16 << 20  # the limit for complete sources that are not in a file yet
DIFFERING_MAX = 4_096
_CACHE_BYTES_MAX = 8 << 20  # the limit for texts that are compared with those of other workers

Pieces = Iterable[tuple[int, int, bytes]]
"""The hash of a source, the number of the first piece, and the text of consecutive pieces."""


class KnownSources(Protocol):
    """The sources that a daemon, a recording or the shared memory knows."""

    @property
    def counts(self) -> Mapping[str, int]:
        """The counts of irregular events; see `Sources`."""

    def heads(self) -> Mapping[int, SourceHead]:
        """Return the heads of all sources, including incomplete ones."""

    def read(self, hash_: int, /) -> KernelSource | None:
        """Return the source with this hash if it is complete."""


def _drop_event(kind: str, text: str, **_: object) -> None: ...


class Sources:
    """All sources of a daemon. One thread adds pieces; any thread may read.

    Attributes:
        counts: the counts of irregular events. dropped: sources that were dropped because there was no room. refuted:
            texts that do not match their hash. differing: workers that sent another text for a hash. refused: invalid
            pieces. removed: least recently used files above the limits.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self._making: dict[int, Making] = {}
        self._size = 0  # the bytes of incomplete sources
        self._whole: dict[int, KernelSource] = {}
        self._differing: dict[tuple[int, str], None] = {}
        self._filed: Filed | None = None
        self._in_files: set[int] = set()
        self._touched: set[int] = set()  # sources with a file that were sent again since the last write
        self._cache: OrderedDict[int, KernelSource] = OrderedDict()
        self._log_event: LogEvent = _drop_event
        self._trouble = ""
        self._lock = threading.Lock()

    def go_into(self, filed: Filed, log_event: LogEvent = _drop_event) -> None:
        """Write complete sources into files from now on."""
        self._filed, self._log_event = filed, log_event
        self._in_files = set(filed.hashes())
        for hash_ in self._in_files & self._making.keys():
            self._size -= self._making.pop(hash_).size

    def take(self, sender: str, sent: Pieces, service: str | None = None, worker: str | None = None) -> None:
        """Add pieces, in any order, from the worker with the uuid `sender`."""
        of: defaultdict[int, list[tuple[int, bytes]]] = defaultdict(list)
        for hash_, piece, text in sent:
            of[hash_].append((piece, text))
        with self._lock:
            begun = 0
            for hash_, each in of.items():
                source, is_new = self._found(hash_), hash_ not in self._making
                if source is None and is_new and begun == MAKING_MAX:
                    self._drop(hash_, sum(len(text) for _, text in each) // PIECE)
                elif source is None:
                    is_whole = self._make(sender, hash_, each, service, worker)
                    begun += is_new and not is_whole
                elif not all(source.agrees(piece, text) for piece, text in each):
                    self._differ(source, {sender}, service, worker)
                else:
                    self._touched.add(hash_)

    def _found(self, hash_: int) -> KernelSource | None:
        """Return the complete source, so that new pieces can be compared with it."""
        if (source := self._whole.get(hash_)) is not None:
            return source
        if hash_ not in self._in_files or self._filed is None:
            return None
        source = self._cache.pop(hash_, None) or self._filed.read(hash_)
        if source is None:  # the file was removed or changed
            self._in_files.discard(hash_)
            return None
        self._cache[hash_] = source
        while sum(len(each.text) for each in self._cache.values()) > _CACHE_BYTES_MAX:
            self._cache.popitem(last=False)
        return source

    def _make(
        self, sender: str, hash_: int, sent: list[tuple[int, bytes]], service: str | None, worker: str | None
    ) -> bool:
        """Add pieces of an incomplete source; return whether the source is now complete."""
        making = self._making.setdefault(hash_, Making(hash_, sender))
        before = making.size
        for _ in filter(None, [not making.put(sender, piece, text) for piece, text in sent]):
            self._count("refused", f"a worker sent an invalid part of source {hash_:016x}", service, worker)
        was_refuted = making.refuted
        if (source := making.source(sender)) is not None:
            del self._making[hash_]
            self._whole[hash_] = source
            self._differ(source, making.differing(source))
            self._size -= before
            self._limit_whole()
            return True
        if making.refuted and not was_refuted:
            text = f"the text sent as source {hash_:016x} does not match its hash: it is not kept"
            self._count("refuted", text, service, worker)
        self._size += making.size - before
        if len(self._making) > MAKING_MAX or self._size > MAKING_BYTES_MAX:
            self._limit()
        return False

    def _differ(
        self, source: KernelSource, senders: set[str], service: str | None = None, worker: str | None = None
    ) -> None:
        for sender in senders:
            if (source.hash, sender) in self._differing:
                continue
            if len(self._differing) < DIFFERING_MAX:
                self._differing[source.hash, sender] = None
            text = f"two texts have the hash {source.hash:016x}: the first one is kept"
            self._count("differing", text, service, worker, f"brickd source {source.hash:016x}")

    def _count(
        self,
        what: str,
        text: str,
        service: str | None = None,
        worker: str | None = None,
        command: str = "brickd source",
    ) -> None:
        """Count an irregular event. The event is logged only when the count reaches a power of two."""
        self.counts[what] += 1
        so_often = self.counts[what]
        if so_often & (so_often - 1) == 0:
            again = f" ({so_often:,} times so far)" if so_often > 1 else ""
            self._log_event(f"source_{what}", f"{text}{again}", service=service, worker=worker, command=command)

    def _limit(self) -> None:
        """Drop the oldest sources of the largest sender, down to 7/8 of the limit, so that this rarely runs."""
        taken: Counter[str] = Counter()
        for making in self._making.values():
            taken[making.sender] += making.size + 1  # a source without pieces counts as one byte
        while len(self._making) > MAKING_MAX // 8 * 7 or self._size > MAKING_BYTES_MAX // 8 * 7:
            sender = max(taken, key=taken.__getitem__)
            hash_ = next(hash_ for hash_, making in self._making.items() if making.sender == sender)
            gone = self._making.pop(hash_)
            taken[sender] -= gone.size + 1
            self._size -= gone.size
            self._drop(hash_, gone.head().pieces or 0)

    def _limit_whole(self) -> None:
        while sum(len(each.text) for each in self._whole.values()) > WHOLE_BYTES_MAX:
            hash_ = next(iter(self._whole))
            self._drop(hash_, -(-len(self._whole.pop(hash_).text) // PIECE))

    def _drop(self, hash_: int, here: int) -> None:
        self._count("dropped", f"source {hash_:016x} was dropped for lack of room, after {plural(here, 'piece')}")

    def file(self) -> None:
        """Write complete sources to files. A source that cannot be written stays in memory."""
        if self._filed is None or not (self._whole or self._touched):
            return
        while self._touched:
            self._filed.touch(self._touched.pop())
        trouble = ""
        written = []
        for source in tuple(self._whole.values()):
            try:
                self._filed.write(source)
            except OSError as error:
                trouble = error.strerror or str(error)
                break
            written.append(source.hash)
        if trouble and not self._trouble:
            text = f"{self._filed.directory}: sources cannot be written: {trouble}; they stay in the checkpoint"
            self._log_event("sources_unwritten", text)
        self._trouble = trouble
        removed = self._filed.make_room()
        with self._lock:
            self._in_files.update(written)
            self._in_files.difference_update(removed)
            for hash_ in written:
                del self._whole[hash_]
            for hash_ in removed:
                self._cache.pop(hash_, None)
                self._count("removed", f"source {hash_:016x} was removed to make room for newer ones")

    def heads(self) -> dict[int, SourceHead]:
        """Return the heads of all sources, including incomplete ones."""
        filed = {} if self._filed is None else self._filed.heads()
        with self._lock:
            making = {hash_: each.head() for hash_, each in self._making.items()}
            found = making | filed | {hash_: each.head() for hash_, each in self._whole.items()}
            differing = Counter(hash_ for hash_, _ in self._differing)
        return {hash_: head._replace(differing=differing[hash_]) for hash_, head in found.items()}

    def read(self, hash_: int) -> KernelSource | None:
        """Return the source with this hash if it is complete."""
        with self._lock:
            source = self._whole.get(hash_)
        return source if source is not None or self._filed is None else self._filed.read(hash_)

    def pieces(self) -> Iterator[str]:
        """Return the JSON text of all sources that are in no file, in pieces."""
        return pieces(
            {
                "counts": [plain(self.counts)],
                "making": pieces({f"{hash_:016x}": [each.text()] for hash_, each in self._making.items()}),
                "whole": pieces({f"{hash_:016x}": [packed_source(each)] for hash_, each in self._whole.items()}),
                "differing": [plain([(f"{hash_:016x}", sender) for hash_, sender in self._differing])],
            }
        )

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Sources:
        """Decode the output of `pieces`."""
        self = cls()
        self.counts.update({unicode(what): whole(count) for what, count in document["counts"].items()})
        making = ((bits(hash_, 64), each) for hash_, each in limited(document["making"], MAKING_MAX).items())
        self._making = {hash_: Making.of(hash_, each) for hash_, each in making}
        self._size = sum(each.size for each in self._making.values())
        sources = map(unpacked_source, document["whole"].values())
        self._whole = {source.hash: source for source in sources}
        differing = limited(document["differing"], DIFFERING_MAX)
        self._differing = {(bits(hash_, 64), unicode(sender)): None for hash_, sender in differing}
        return self
