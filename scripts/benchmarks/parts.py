"""Matrices whose products are added up in another order, as a compiled kernel might do.

Owns: the order of additions. Must not know: the code that multiplies. Invariant: only rounding differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

PART = 16  # the number of rows that are added up at a time


class InParts(np.ndarray[Any, Any]):
    """An array whose matrix products are computed a few rows at a time."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **how: Any) -> Any:
        plain = [each.view(np.ndarray) if isinstance(each, InParts) else each for each in inputs]
        if ufunc is not np.matmul or method != "__call__" or how:
            return getattr(ufunc, method)(*plain, **how)
        x, matrix = plain
        parts = [x[..., n : n + PART] @ matrix[n : n + PART] for n in range(0, len(matrix), PART)]
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total


def in_parts(weights: Mapping[str, Array]) -> dict[str, Array]:
    """Return the same weights. The matrices that multiply rows are InParts."""
    return {
        name: weight.view(InParts) if weight.ndim == 2 and not name.startswith("embed") else weight
        for name, weight in weights.items()
    }
