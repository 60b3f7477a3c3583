"""Whether the values of one group tend to be greater than those of another, by their ranks.

Owns: the statistic of Mann and Whitney over values that are known by cell only. Must not know: what is measured, how
wide a cell is. Invariants: it is worked out in whole numbers and rounded once; with the groups changed over its sign
changes and nothing else; what lies in one cell is a tie, and where there is nothing but ties nothing is said.

The variance is that of ties, the tail that of a normal distribution. The correction for continuity is half of the
greatest step that a value makes by changing to the next cell in use: 1/2 of U without ties, that of Yates with two
cells. (With 1/2 always, 1 in 14 draws of 10 and of 2,000 values from the same, 1 % of it in a second cell, had a
p-value below 0.01: 1 in 200 has now.) It still says too much of the two or three values that are not in the cell of
nearly all: whoever concludes something asks for more than `p_value`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple


class Ranks(NamedTuple):
    """How two groups stand to each other.

    Attributes:
        ahead: of all pairs with one of each group, those in which the second's is greater, less those in which the
            first's is.
        p_value: how likely that or more is, either way, where both are drawn from the same.
    """

    ahead: int
    p_value: float


def ranks(first: Sequence[int], second: Sequence[int]) -> Ranks:
    """Compare two groups.

    Args:
        first: how many values it has in each cell, the cell of the least values first.
        second: the same of the other group.
    """
    ahead = ones = others = ties = step = below = 0
    for one, other in zip(first, second, strict=True):
        here = one + other
        if here == 0:
            continue
        ahead += other * ones - one * others
        ones += one
        others += other
        ties += here**3
        step = max(step, below + here) if below else step
        below = here
    both = ones + others
    room = ones * others * (both**3 - ties)
    if room == 0:
        return Ranks(0, 1.0)
    # U = (ones * others + ahead) / 2, and its variance is room / (12 * both * (both - 1)).
    square = 3 * max(2 * abs(ahead) - step, 0) ** 2 * both * (both - 1) / (4 * room)
    return Ranks(ahead, math.erfc(math.sqrt(square / 2)))
