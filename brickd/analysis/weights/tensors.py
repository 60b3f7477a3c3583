"""The tensors of a service, with indexes that all its workers share.

Owns: the indexes of tensors, and how many there may be. Must not know: which workers hold them, their contents.
Invariants: An index means the same tensor as long as the service exists. A tensor is found by the digest of its site,
so that a record needs no text.
"""

from __future__ import annotations

from typing import NamedTuple

from brickd.base.json_values import plain
from brickd.base.units import or_none
from brickd.shm.sites import site_digest

TENSORS_MAX = 65_536  # enough for all sites of a segment with a few experts each


class Tensor(NamedTuple):
    """The name of a tensor without layer and expert, then the indexes of layer and expert (-1 if there is none)."""

    name: str
    layer: int
    expert: int

    def numbers(self) -> dict[str, int | None]:
        """The layer and the expert as JSON. Each is null if the tensor has none."""
        return {"layer": or_none(self.layer), "expert": or_none(self.expert)}


class Tensors:
    """The tensors of a service by index, and their indexes by site digest and expert."""

    __slots__ = ("_text", "all", "numbers")

    def __init__(self) -> None:
        self.all: list[Tensor] = []
        self.numbers: dict[tuple[int, int], int] = {}
        self._text = ""

    def number(self, tensor: Tensor) -> int | None:
        """Return the index of a tensor. A new tensor gets a new index, or None if the limit is reached."""
        key = site_digest(tensor.name, tensor.layer), tensor.expert
        number = self.numbers.get(key)
        if number is None and len(self.all) < TENSORS_MAX:
            number = self.numbers[key] = len(self.all)
            self.all.append(tensor)
            self._text = ""
        return number

    def text(self) -> str:
        """Return the tensors as JSON. The text is cached, because each change of a content needs it."""
        if not self._text:
            self._text = plain(self.all)
        return self._text

    def copy(self) -> Tensors:
        """A copy to read while the original changes."""
        other = Tensors()
        other.all, other.numbers, other._text = self.all.copy(), self.numbers.copy(), self._text
        return other
