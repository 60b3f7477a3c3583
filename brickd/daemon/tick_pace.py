"""How long the loop rests between two ticks.

Owns: the balance between the fixed cost of a tick and the filling of rings. Must not know: what a tick does.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.base.units import SECOND

IDLE_NS = SECOND  # an idle loop ticks this often

# Checking how full the rings are is cheap, but a tick has a fixed cost. So a tick starts when the fullest ring has this
# fill. That happens rarely enough to cost little, and early enough to lose nothing.
FILL_WANTED = 0.5
FASTEST_NS, SLOWEST_NS = SECOND // 1000, SECOND // 25
LATEST_NS = SECOND // 4  # the longest time until a record is read
# The interval of checks after a tick without records. A ring of the usual size fills in this time if a thread suddenly
# records more than 40,000 times a second.
REST_NS = SECOND // 10
REST_WITH_SPANS_NS = SECOND // 40  # the same interval if every span is recorded, for 160,000 records a second


class Rest(NamedTuple):
    """How long the loop rests until the next tick.

    Attributes:
        every_ns: the interval at which the loop checks whether a ring is full enough.
        looks: the number of checks after which the next tick is due.
        enough: the fill of a ring at which a tick starts immediately; 0: any record starts a tick.
    """

    every_ns: int
    looks: int
    enough: float


def rest(fill: float, elapsed_ns: int, *, hurried: bool, spans: bool) -> Rest:
    """Return the rest after a tick.

    Args:
        fill: the fill of the fullest ring in the last pass.
        elapsed_ns: the time between the starts of the previous pass and this pass.
        hurried: whether work waits for another pass.
        spans: whether each single span is recorded.
    """
    if not fill and not hurried:
        every_ns = REST_WITH_SPANS_NS if spans else REST_NS
        return Rest(every_ns, IDLE_NS // every_ns, 0.0)
    due_ns = SLOWEST_NS if hurried and not fill else LATEST_NS
    if fill:  # at the rate of the last pass, a ring is then full enough
        due_ns = min(due_ns, max(int(elapsed_ns * FILL_WANTED / fill), FASTEST_NS))
    every_ns = min(due_ns, SLOWEST_NS)
    return Rest(every_ns, due_ns // every_ns, FILL_WANTED / 2)
