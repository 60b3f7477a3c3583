"""Dependencies in the call tree, as documents: the critical path, the slowest kernel, useless transfers.

Must not know: paths, screens, which nodes are shown. Invariant: the order of workers changes nothing.
"""

from __future__ import annotations

from typing import Any

from brickd.model.calltree.graph_needs import GraphNeeds


class Graph(GraphNeeds):
    """The dependencies of the nodes of many workers."""

    def needs_document(self, number: int, shown: dict[int, int]) -> list[dict[str, Any]]:
        """Return the needs of a node as JSON; `shown` maps the indexes of the shown nodes to their ids."""
        return [
            {
                "name": need.name,
                "id": None if need.place is None else shown.get(need.place),
                "found": need.place is not None,
                "count": need.count,
            }
            for need in self.needs[number]
        ]

    def document(self, shown: dict[int, int]) -> dict[str, Any]:
        """Return the dependencies as JSON; `shown` maps the indexes of the shown nodes to their ids."""
        return {
            "critical_path": {
                "length_ns": round(self.critical.length_ns),
                "steps": [
                    self._described(number, shown) | {"own_ns": round(self.own_ns[number])}
                    for number in self.critical.path
                    if self.is_timed(number)
                ],
                "cycles": [[self._described(number, shown) for number in each] for each in self.critical.cycles],
            },
            "slowest_kernel": self._slowest_kernel(shown),
            "returned": self._returned(shown),
            "unresolved_needs": [
                self._described(number, shown) | {"needs": need.name}
                for number, needs in enumerate(self.needs)
                for need in needs
                if need.place is None
            ],
        }

    def _described(self, number: int, shown: dict[int, int]) -> dict[str, Any]:
        place = self._order[number]
        return {
            "id": shown.get(number),
            "kind": place.kind,
            "name": place.name,
            "layer": place.layer,
            "inside": None if place.above is None else place.above.name,
        }

    def _slowest_kernel(self, shown: dict[int, int]) -> dict[str, Any] | None:
        """Return the kernel with the longest time. If no kernel has a time, return the one in the slowest brick."""
        kernels = [(number, place) for number, place in enumerate(self._order) if place.kernel is not None]
        timed = [(-round(each.total_ns), number, "own") for number, each in kernels if not each.timeless]
        bricks = [(-round(each.above.self_ns), number, "brick") for number, each in kernels if each.above is not None]
        if not (timed or bricks):
            return None
        _, number, by = min(timed or bricks)
        place = self._order[number]
        above = place.above
        assert place.kernel is not None
        time_ns = place.total_ns if by == "own" or above is None else above.self_ns
        return self._described(number, shown) | {
            "by": by,
            "time_ns": round(time_ns),
            "bounded": place.bounded,
            "launches": place.kernel.launches,
            "timed": place.count,
            "source_hash": place.kernel.source(),
        }

    def _returned(self, shown: dict[int, int]) -> list[dict[str, Any]]:
        """Return the transfers whose data was moved back immediately, the largest first."""
        found = [
            (-of.returned_bytes, -of.returned, number, of.document(place.count))
            for number, place in enumerate(self._order)
            if (of := place.transfer) is not None and of.returned
        ]
        return [self._described(number, shown) | moved for *_, number, moved in sorted(found)]
