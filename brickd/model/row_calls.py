"""The calls of a worker that were examined for rows. The worker counts them on special paths of its segment.

Owns: which paths count such calls, what a word in these paths means, and how long it takes until each site has had its
turn. Must not know: rows, how they are compared, screens. Invariants: A word that this version does not know is taken
as a reason why a call has no rows. A site that has no calls is counted only if its worker will never examine it.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.segment_copy import Reading

# How the tokens of a call are laid out: [batch, 1, ...], [batch, more, ...], or without a dimension for sequences.
PHASES = ("decode", "prefill", "packed")
_LASTING = ("compiled", "quantized", "stateful", "not_row_wise")  # reasons that hold for a site even without a call
_HISTORY = "history:"  # begins the reasons why a sequence's history is unknown
_EPOCH_BLOCK = 8  # in a block of epochs, each turn comes at least once; the length of a block is a multiple of this


class RowSite(NamedTuple):
    """A site that was examined for rows; `layer` is -1 outside of layers."""

    kernel: str
    layer: int


class RowCalls(NamedTuple):
    """The calls of some workers.

    Attributes:
        phases: for each phase, the number of calls with rows.
        unknown: for each reason and site, the number of calls without rows.
        turns: the sites are examined in turns, and this is the number of turns. 0 if all sites are examined all the
            time.
        kernels: for each kernel and phase, the number of calls with rows, in all layers together.
        histories: for each reason, in how many steps the history of a sequence was unknown, one step per sequence.
    """

    phases: Mapping[str, int]
    unknown: Mapping[str, Mapping[RowSite, int]]
    turns: int
    kernels: Mapping[str, Mapping[str, int]] = MappingProxyType({})
    histories: Mapping[str, int] = MappingProxyType({})

    @property
    def reasons(self) -> dict[str, int]:
        """For each reason, the number of sites without rows; the most frequent reason comes first."""
        return dict(sorted(((why, len(sites)) for why, sites in self.unknown.items()), key=lambda each: -each[1]))

    @property
    def cycle_seconds(self) -> int:
        """The time in which each site has its turn at least once; 0 if sites take no turns."""
        return -(-self.turns // _EPOCH_BLOCK) * _EPOCH_BLOCK * _reader.EPOCH_SECONDS

    def why(self, site: RowSite) -> dict[str, int]:
        """For each reason, the number of calls of a site that have no rows."""
        return {why: sites[site] for why, sites in self.unknown.items() if site in sites}


def row_calls(workers: Iterable[Worker]) -> RowCalls:
    """Add up the calls of the live workers since they started; if no worker is live, those of all workers."""
    fold, turns, rows = _reader.Fold(), 0, _Rows()
    readings = [worker.reading for worker in workers]
    for reading in [each for each in readings if each.alive] or readings:
        turns = max([turns, *(lane["rows_turns"] for number, lane, _ in reading.lanes if number == 0)])
        if (of := rows.of(reading)) is not None:
            parents, flags = array("i", [-1]) * len(of), bytes([_reader.PART_OUTER | _reader.PART_NS]) * len(of)
            fold.add(reading.summaries, of, parents, flags, reading.tick_ns)
    phases, histories, kernels = Counter[str](), Counter[str](), dict[str, Counter[str]]()
    unknown: dict[str, dict[RowSite, int]] = {}
    for (word, site), (_, _, calls) in zip(rows.known, fold.sums(), strict=False):
        if word in PHASES:
            phases[word] += calls
            kernels.setdefault(site.kernel, Counter())[word] += calls
        elif word.startswith(_HISTORY):
            histories[word.removeprefix(_HISTORY)] += calls
        elif calls or word in _LASTING:
            unknown.setdefault(word, {})[site] = calls
    return RowCalls(dict(phases), unknown, turns, kernels, dict(histories.most_common()))


class _Rows:
    """The row index of each pair of a word and a site. For workers with the same paths, it is computed only once."""

    def __init__(self) -> None:
        self.known: dict[tuple[str, RowSite], int] = {}
        self._like: tuple[object, ...] = ()
        self._last: array[int] | None = None

    def of(self, reading: Reading) -> array[int] | None:
        """Return each path's row (-1 if it counts no calls); None if no path counts calls."""
        like = (reading.paths, reading.names)
        if like != self._like:
            self._like, self._last = like, self._of(reading)
        return self._last

    def _of(self, reading: Reading) -> array[int] | None:
        rows = array("i", [-1]) * len(reading.paths)
        for number, path in enumerate(reading.paths):
            if path is None or path.unit != _reader.UNIT_ROWS or path.parent < 0:
                continue
            if (word := reading.paths[path.parent]) is not None:
                key = reading.name(word.name), RowSite(reading.name(path.name), path.layer)
                rows[number] = self.known.setdefault(key, len(self.known))
        return rows if max(rows, default=-1) >= 0 else None
