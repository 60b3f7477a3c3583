"""The bricks that have their own series in the metrics of a daemon, and the tick lengths of the sums.

Owns: which bricks have series, which length of a tick is used. Must not know: metrics, where this is saved. Invariants:
Once a brick has series, it keeps them. Once all places are taken, no other brick gets series. So no sum ever decreases.
The length of a tick that the sums use does not change while a worker has it, although each reading measures the length
again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from brickd.base.json_values import flag, limited, listed, number, require, unicode

BRICKS_MAX = 50  # of a service
SERVICES_MAX = 256  # with such bricks, because the state of a daemon has their names
OTHER = "other"

TICKS_MAX = 64  # of a clock: as many as the totals of dead workers that a daemon keeps
_UNLIKE = 0.001  # clocks of one machine differ by less (brickd/shm/clock.py)

Brick = tuple[str, bool]  # the name, and whether its times are only upper bounds


class ExportedSeries(NamedTuple):
    """The data that must not change while this daemon, or a later one, exports series.

    Attributes:
        bricks: for each service, the bricks with series, in the order in which they got series.
        ticks: for each clock, the known lengths of a tick in ns.
    """

    bricks: Mapping[str, tuple[Brick, ...]] = MappingProxyType({})
    ticks: Mapping[str, tuple[float, ...]] = MappingProxyType({})

    def with_bricks(self, service: str, found: Iterable[Brick]) -> ExportedSeries:
        """Return a copy in which these bricks of a service have series.

        If there are too few free places, the last of these bricks get none.
        """
        if service not in self.bricks and len(self.bricks) >= SERVICES_MAX:
            return self
        have = self.bricks.get(service, ())
        more = [brick for brick in found if brick[0] != OTHER and brick not in have][: BRICKS_MAX - len(have)]
        return self._replace(bricks={**self.bricks, service: (*have, *more)}) if more else self

    def only(self, services: Collection[str]) -> ExportedSeries:
        """Return a copy without other services."""
        return self._replace(bricks={name: bricks for name, bricks in self.bricks.items() if name in services})

    def with_ticks(self, clock: str, measured: Sequence[float]) -> ExportedSeries:
        """Return a copy that knows a similar length for each of these lengths of a tick.

        If there are too few places, a length that no worker has any more gives up its place. If all known lengths are
        in use, the last of the new lengths get none.
        """
        known = self.ticks.get(clock, ())
        for tick_ns in measured:
            if _similar(known, tick_ns) is None:
                if len(known) >= TICKS_MAX:
                    used = {_similar(known, each) for each in measured}
                    known = tuple(each for each in known if each in used)
                known = (*known, tick_ns)[:TICKS_MAX]
        return self if known == self.ticks.get(clock, ()) else self._replace(ticks={**self.ticks, clock: known})

    def tick(self, clock: str, tick_ns: float) -> float:
        """Return the known tick length to use for a measured one: the first that is similar, or else the nearest."""
        known = self.ticks[clock]
        similar = _similar(known, tick_ns)
        return min(known, key=lambda each: abs(each / tick_ns - 1)) if similar is None else similar

    def plain(self) -> dict[str, Any]:
        """Return the JSON."""
        return {
            "bricks": {name: list(bricks) for name, bricks in self.bricks.items()},
            "ticks": {clock: list(ticks) for clock, ticks in self.ticks.items()},
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ExportedSeries:
        """Decode the output of `plain`. An invalid document may raise any exception."""
        bricks = {
            unicode(service): tuple((unicode(name), flag(bounded)) for name, bounded in listed(found, BRICKS_MAX))
            for service, found in limited(document["bricks"], SERVICES_MAX).items()
        }
        ticks = {
            unicode(clock): tuple(_tick(each) for each in listed(found, TICKS_MAX))
            for clock, found in document["ticks"].items()
        }
        return cls(bricks, ticks)


def _similar(known: Iterable[float], tick_ns: float) -> float | None:
    return next((each for each in known if abs(each / tick_ns - 1) < _UNLIKE), None)


def _tick(value: Any) -> float:
    require(0 < number(value) < 1e9, "the ns of a tick", value)
    return float(value)
