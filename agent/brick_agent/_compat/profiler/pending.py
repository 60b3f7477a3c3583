"""Work that was handed to a device through one profiler, until a common sync says that it is over.

Owns: what pends, and how the time up to a sync is shared out. Must not know: clocks, devices, where else it is told.
Invariants: each start is pending, bounded, or counted as refused; the parts of one process's time are given once, so
that they never add up to more than the time that passed; what pends is limited.
"""

from __future__ import annotations

from collections import deque
from operator import itemgetter

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Handed = tuple[int, str, int]  # when it began, by the machine's monotonic clock; the brick's name; elements
    Part = tuple[str, int, int, int]  # the brick's name, its part of the time, from its start to the sync, elements

WAITING_MAX = 16_384


class Waiting:
    """What pends. Starts are added by any thread at any time; one at a time settles them.

    One in the middle of that, as a signal handler of the same thread, settles nothing: what it added pends still.
    """

    def __init__(self) -> None:
        self._waiting: deque[Handed] = deque()
        self._given_ns = 0  # the time up to here has been shared out
        self._settling = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, start: Handed) -> bool:
        """Keep it; False: there is no room."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(start)
        return True

    def settle(self, end_ns: int) -> list[Part]:
        """What had started by the sync at that time is over: the part of each.

        Each has the time from its start to the next one's, the last one to the sync. A start before the last sync that
        is told after it has what is left of its part.
        """
        if self._settling:
            return []
        self._settling = True
        try:
            return self._settled(end_ns)
        finally:
            self._settling = False

    def _settled(self, end_ns: int) -> list[Part]:
        taken = sorted((self._waiting.popleft() for _ in range(len(self._waiting))), key=itemgetter(0))
        while taken and taken[-1][0] > end_ns:
            self._waiting.appendleft(taken.pop())
        parts = list(self._parts(taken, end_ns))
        if taken:
            self._given_ns = max(self._given_ns, end_ns)
        return parts

    def _parts(self, over: list[Handed], end_ns: int) -> Iterator[Part]:
        given_ns = self._given_ns
        for n, (start_ns, name, elements) in enumerate(over, 1):
            until_ns = over[n][0] if n < len(over) else end_ns
            yield name, max(0, until_ns - max(start_ns, given_ns)), end_ns - start_ns, elements
