"""Work that one profiler has handed to a device, until a common sync ends it.

Owns: the pending starts, and the division of the time up to a sync. Must not know: clocks, devices, segments.
Invariants: each start is pending, bounded, or counted as refused; each moment of time is assigned to one start, so the
parts never add up to more than the elapsed time; the number of pending starts is limited.
"""

from __future__ import annotations

from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    Start = tuple[int, str, int]  # start_ns by the machine's monotonic clock, the brick's name, elements
    # The name of the brick, its part of the time in ns, the time from its start to the sync in ns, and its elements.
    Part = tuple[str, int, int, int]

WAITING_MAX = 16_384


class Waiting:
    """Pending starts. Any thread may add starts at any time, but only one thread at a time settles them.

    A nested call of `settle`, for example in a signal handler, settles nothing: its starts stay pending.
    """

    def __init__(self) -> None:
        self._waiting: deque[Start] = deque()
        self._given_ns = 0  # the time up to this moment is already divided
        self._settling = False

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, start: Start) -> bool:
        """Add a start; return False if there is no room."""
        if len(self._waiting) >= WAITING_MAX:
            return False
        self._waiting.append(start)
        return True

    def settle(self, end_ns: int) -> list[Part]:
        """Remove the starts before the sync at `end_ns`, and return the part of the time that belongs to each of them.

        A part ends at the next start; the last part ends at the sync. If a start is added only after a later sync was
        settled, its part begins at that sync.
        """
        if self._settling:
            return []
        self._settling = True
        try:
            over = sorted((self._waiting.popleft() for _ in range(len(self._waiting))), key=lambda start: start[0])
            while over and over[-1][0] > end_ns:
                self._waiting.appendleft(over.pop())
            parts = list(self._parts(over, end_ns))
            if over:
                self._given_ns = max(self._given_ns, end_ns)
            return parts
        finally:
            self._settling = False

    def _parts(self, over: list[Start], end_ns: int) -> Iterator[Part]:
        for n, (start_ns, name, elements) in enumerate(over, 1):
            until_ns = over[n][0] if n < len(over) else end_ns
            yield name, max(0, until_ns - max(start_ns, self._given_ns)), end_ns - start_ns, elements
