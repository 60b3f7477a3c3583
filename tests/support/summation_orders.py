"""Results of equal work that was summed in different orders, and wrong results."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from checked_record import CheckedRecord, Tensor

FLOAT16, BFLOAT16, INT32 = 10, 11, 3
_PLACES = np.arange(16)

# The results that a worker may have for one input. USUAL, OTHER and THIRD come from three orders of additions. BIT and
# OTHER_BIT are the first two of them with one flipped bit. FAR is far off in all elements.
USUAL, OTHER, THIRD, BIT, OTHER_BIT, FAR = range(6)


def tensor(content: int, what: int, **values: int) -> Tensor:
    """Return an output. Another order of additions changes all elements of its sketch a little; a flipped bit changes
    only one.
    """
    order = {USUAL: 0, BIT: 0, OTHER: 1, OTHER_BIT: 1, THIRD: 2, FAR: 0}[what]
    sketch = 0.2e-7 * order * (1 + (_PLACES * (content + 1)) % 3)
    if what in (BIT, OTHER_BIT):
        sketch[content % 16] += 1e-7
    if what == FAR:
        sketch += 0.5
    return Tensor(100 * content + what, 1.0, tuple(sketch), **values)


def records_of(what: Mapping[int, int], *, site: int = 1, params: int = 0, **values: int) -> list[CheckedRecord]:
    """Return a record for each input; `what` has the kind of result of each input."""
    return [
        CheckedRecord(
            tensor(content, each, **values), (Tensor(1000 + content),), site=site, params=params, ticks=content
        )
        for content, each in what.items()
    ]


def always(what: int, contents: int = 5, **but: int) -> dict[int, int]:
    """Return the same kind of result for each input, with exceptions such as `c3=FAR`."""
    return dict.fromkeys(range(contents), what) | {int(name[1:]): each for name, each in but.items()}
