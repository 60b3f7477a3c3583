"""The workers of a service whose rows are compared. Their number is limited, because rows are compared for each pair.

Owns: which workers are admitted, and the count of rows that are left out. Must not know: windows, records.
Invariants: A row of a worker that is not admitted never counts as compared. When the rows of an admitted worker are
evicted, another worker may take its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from brickd.shm._reader import ROW_WORKERS_MAX
from brickd.shm.sites import ServiceTier

_ASK_AGAIN = 64  # after this many attempts of other workers, the admitted workers are checked again


class RowWorkers:
    """The admitted workers of all services.

    `left_out`: for each service and tier, the rows that were left out since the last `take`.
    """

    def __init__(self) -> None:
        self.left_out: Counter[ServiceTier] = Counter()
        self._admitted: dict[str, set[str]] = {}
        self._attempts = 0

    def admits(self, service: str, uuid: str, holds: Callable[[str], bool]) -> bool:
        """Whether a worker's rows may be added; `holds` tells whether the window has rows of a given worker."""
        admitted = self._admitted.get(service, set())
        if uuid in admitted or len(admitted) < ROW_WORKERS_MAX:
            return True
        self._attempts += 1
        if self._attempts % _ASK_AGAIN == 1:
            admitted.intersection_update([each for each in admitted if holds(each)])
        return len(admitted) < ROW_WORKERS_MAX

    def add(self, service: str, uuid: str) -> None:
        """Admit a worker whose rows were added."""
        self._admitted.setdefault(service, set()).add(uuid)

    def forget(self, service: str, uuid: str) -> None:
        """Drop a worker, and its service if this was the last worker."""
        admitted = self._admitted.get(service, set())
        admitted.discard(uuid)
        if not admitted:
            self._admitted.pop(service, None)

    def take(self) -> Counter[ServiceTier]:
        """Return how many rows were left out since the last call, by service and tier."""
        taken, self.left_out = self.left_out, Counter()
        return taken
