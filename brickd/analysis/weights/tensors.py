"""The tensors of a service, each under one number for all of its workers.

Owns: the numbers of tensors, and how many there may be. Must not know: who holds them, what is in them. Invariants: a
number stands for the same tensor as long as there is its service; a tensor is found by the digest of its site, so that
what a worker's record refers to is found without a text being made of it.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.base.json_values import plain
from brickd.base.units import or_none
from brickd.shm.sites import site_digest

TENSORS_MAX = 65_536  # as many sites as a worker's segment has, and a few experts at each


class Tensor(NamedTuple):
    """Its name without the numbers of its layer and of its expert, and these; -1: none."""

    name: str
    layer: int
    expert: int

    def numbers(self) -> dict[str, int | None]:
        """Layer and expert as JSON has them: null without one."""
        return {"layer": or_none(self.layer), "expert": or_none(self.expert)}


class Tensors:
    """The tensors of a service by number; their numbers by site digest and expert."""

    __slots__ = ("_text", "all", "numbers")

    def __init__(self) -> None:
        self.all: list[Tensor] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self._text = ""

    def number(self, tensor: Tensor) -> int | None:
        """The number of a tensor, a new one if need be; None: there are too many."""
        key = site_digest(tensor.name, tensor.layer), tensor.expert
        number = self.numbers.get(key)
        if number is None and len(self.all) < TENSORS_MAX:
            number = self.numbers[key] = len(self.all)
            self.all.append(tensor)
            self._text = ""
        return number

    def text(self) -> str:
        """As JSON: made once, for it is needed whenever any content has changed."""
        if not self._text:
            self._text = plain(self.all)
        return self._text

    def copy(self) -> Tensors:
        """A copy to read while this one changes."""
        other = Tensors()
        other.all, other.numbers, other._text = self.all.copy(), self.numbers.copy(), self._text
        return other
