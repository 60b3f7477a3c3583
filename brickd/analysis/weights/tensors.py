"""The tensors of a service, with numbers that all of its workers share.

Owns: the numbers of tensors, and their limit. Must not know: which workers hold them, their contents. Invariants: a
number means the same tensor as long as the service exists; tensors are found by the digest of their site, so a record
needs no text.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.base.json_values import plain
from brickd.base.units import or_none
from brickd.shm.sites import site_digest

TENSORS_MAX = 65_536  # the sites of a worker's segment, with a few experts each


class Tensor(NamedTuple):
    """The name without layer and expert, and the numbers of these; -1: none."""

    name: str
    layer: int
    expert: int

    def numbers(self) -> dict[str, int | None]:
        """Layer and expert in JSON: null without one."""
        return {"layer": or_none(self.layer), "expert": or_none(self.expert)}


class Tensors:
    """The tensors of a service by number, and their numbers by site digest and expert."""

    __slots__ = ("_text", "all", "numbers")

    def __init__(self) -> None:
        self.all: list[Tensor] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self._text = ""

    def number(self, tensor: Tensor) -> int | None:
        """Return the number of a tensor, a new number for a new tensor; None above the limit."""
        key = site_digest(tensor.name, tensor.layer), tensor.expert
        number = self.numbers.get(key)
        if number is None and len(self.all) < TENSORS_MAX:
            number = self.numbers[key] = len(self.all)
            self.all.append(tensor)
            self._text = ""
        return number

    def text(self) -> str:
        """Return the JSON. It is cached, because each change of a content needs it."""
        if not self._text:
            self._text = plain(self.all)
        return self._text

    def copy(self) -> Tensors:
        """A copy to read while the original changes."""
        other = Tensors()
        other.all, other.numbers, other._text = self.all.copy(), self.numbers.copy(), self._text
        return other
