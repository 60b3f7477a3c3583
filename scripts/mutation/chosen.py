"""Selects the mutant that runs, by its number in MUTANT_CHOSEN; 0 selects none.

MUTANTS_REACHED names a file with a byte for each mutant. The code marks each mutant that it reaches in this file.
"""

from __future__ import annotations

import mmap
import os
from typing import Any


class _Marking:
    """An object that is equal to no number, and marks each number with which it is compared."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, path: str) -> None:
        with open(path, "r+b") as file:
            self._reached = mmap.mmap(file.fileno(), 0)

    def __eq__(self, number: object) -> bool:
        assert isinstance(number, int)
        self._reached[number] = 1
        return False

    def __ne__(self, number: object) -> bool:
        return not self == number


def _chosen() -> Any:
    reached = os.environ.get("MUTANTS_REACHED")
    return _Marking(reached) if reached else int(os.environ.get("MUTANT_CHOSEN", "0"))


CHOSEN: Any = _chosen()
