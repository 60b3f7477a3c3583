"""Silent faults in a worker's numbers: in a weight in memory, or in an operator's output.

Owns: the faults, drawn from a seed. Each fault knows which worker it is in, and which tensor or which run of an
operator is the first to differ. Must not know: brickd, how a fault is found. Invariants: a fault never changes the
inputs of an operator, so the difference begins in its output; all earlier outputs are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from brickd.demo.transformer import ATTN_NORM, MIX, MLP_ADD, NORM, OF_A_LAYER, ROTARY, SCORES, OperatorCall, Size

Array = NDArray[Any]


class Kind(StrEnum):
    """The kinds of damage."""

    FLIP = "bit flip"
    SCALE = "scaled channel"
    ZERO = "zeroed row"
    NAN = "NaN in one row"
    SWAP = "swapped heads"
    SHIFT = "off-by-one position"
    DROP = "dropped layer"


OF_WEIGHTS = (Kind.FLIP, Kind.SCALE, Kind.ZERO, Kind.NAN, Kind.SWAP)
OF_OPERATORS = tuple(Kind)
_ONCE = (Kind.FLIP, Kind.NAN)  # kinds of damage that happen only in one run of an operator

_BITS = 32
_FACTORS = (0.5, 0.9, 0.99, 1.01, 1.1, 2.0)
# The tensors in which one dimension is divided into heads: the index of this dimension, and how many times it has all
# heads (3 for queries, keys and values in one tensor).
_HEADS = {
    "attn.qkv.weight": (1, 3),
    "attn.out.weight": (0, 1),
    ROTARY.name: (1, 1),
    SCORES.name: (0, 1),
    MIX.name: (0, 1),
}


class Change(NamedTuple):
    """A change of a tensor.

    Attributes:
        kind: the kind of damage.
        seed: decides which place of the tensor is changed.
        bit: the bit to flip; 0 is the lowest of the fraction, 31 the sign.
    """

    kind: Kind
    seed: int
    bit: int


def flipped(flat: Array, index: int, bit: int) -> None:
    """Flip one bit of one element in place, for any type of element; bit 0 is the lowest."""
    unsigned = np.dtype(f"u{flat.itemsize}")
    flat.view(unsigned)[index] ^= unsigned.type(1 << bit)


def changed(x: Array, change: Change, heads: int, along: tuple[int, int] = (0, 1)) -> Array:
    """Return a changed copy of a float32 tensor.

    `along` has the index of the dimension that is divided into heads, and how many times it has all heads.
    """
    random, y = Random(change.seed), x.copy(order="C")
    match change.kind:
        case Kind.FLIP:
            flipped(y.reshape(-1), random.randrange(y.size), change.bit)
        case Kind.SCALE:
            y[..., random.randrange(y.shape[-1])] *= np.float32(random.choice(_FACTORS))
        case Kind.ZERO:
            y.reshape(-1, y.shape[-1])[random.randrange(y.size // y.shape[-1])] = 0
        case Kind.NAN:
            y.reshape(-1, y.shape[-1])[random.randrange(y.size // y.shape[-1])] = np.nan
        case Kind.SWAP:
            axis, times = along
            parts = np.split(y, heads * times, axis)
            one, other = random.sample(range(heads), 2)
            parts[one], parts[other] = parts[other], parts[one]
            y = np.concatenate(parts, axis)
        case kind:
            raise ValueError(f"{kind}: needs more than one tensor")
    return y


@dataclass(frozen=True)
class WeightFault:
    """A damaged weight of one worker.

    Attributes:
        worker: its number.
        tensor: its name.
        change: the damage.
    """

    worker: int
    tensor: str
    change: Change

    def strike(self, weights: Mapping[str, Array], size: Size) -> bool:
        """Apply the damage in place; return whether a bit changed."""
        weight = weights[self.tensor]
        before = weight.tobytes()
        along = _HEADS.get(self.tensor.split(".", 2)[-1], (0, 1))
        weight[...] = changed(weight, self.change, size.heads, along)
        return weight.tobytes() != before


@dataclass
class OperatorFault:
    """An operator of one worker. It is damaged in one run only, or in all runs from a certain step on. The model runs
    all its operators through this object.

    Attributes:
        worker: its number.
        place: the first damaged run.
        change: the damage to its output.
        heads: the number of the model's heads.
        born: the first run in which the damage changed a bit; None if it changed none so far.
        error: the size of the difference in that run, divided by the norm of worker 0's tensor.
    """

    worker: int
    place: OperatorCall
    change: Change
    heads: int
    born: OperatorCall | None = None
    error: float = 0.0
    _entered: Array | None = field(default=None, repr=False)

    def __call__(self, place: OperatorCall, compute: Callable[..., Array], inputs: tuple[Array, ...]) -> Array:
        """Run an operator, and damage its output if this run is to be damaged."""
        if (place.kernel, place.layer) == (ATTN_NORM.name, self.place.layer):
            self._entered = inputs[0]
        out = compute(*inputs)
        if not self._strikes(place):
            return out
        wrong = self._wrong(out, compute, inputs)
        if self.born is None and wrong.tobytes() != out.tobytes():
            self.born, self.error = place, _error(wrong, out, wrong if self.worker == 0 else out)
        return wrong

    def _strikes(self, place: OperatorCall) -> bool:
        if (place.kernel, place.layer) != (self.place.kernel, self.place.layer):
            return False
        return place.step == self.place.step or (place.step > self.place.step and self.change.kind not in _ONCE)

    def _wrong(self, out: Array, compute: Callable[..., Array], inputs: tuple[Array, ...]) -> Array:
        if self.change.kind == Kind.SHIFT:
            x, positions = inputs
            return compute(x, positions + 1)
        if self.change.kind == Kind.DROP:
            assert self._entered is not None
            return self._entered
        return changed(out, self.change, self.heads, _HEADS.get(self.place.kernel, (0, 1)))


@np.errstate(all="ignore")
def _error(wrong: Array, right: Array, reference: Array) -> float:
    wide = right.astype(np.float64)
    return float(np.linalg.norm(wrong - wide) / np.linalg.norm(reference.astype(np.float64)))


Fault = WeightFault | OperatorFault


def drawn_change(random: Random, kinds: Sequence[Kind]) -> Change:
    """Draw a change of one of these kinds."""
    return Change(random.choice(kinds), random.getrandbits(32), random.randrange(_BITS))


def drawn_for_a_weight(random: Random, workers: int, weights: Mapping[str, Array]) -> WeightFault:
    """Draw a fault of any weight of any worker."""
    change = drawn_change(random, OF_WEIGHTS)
    fit = [
        name
        for name, weight in weights.items()
        if (change.kind != Kind.SWAP or name.split(".", 2)[-1] in _HEADS)
        and (weight.ndim > 1 or change.kind in (Kind.FLIP, Kind.SCALE))
    ]
    return WeightFault(random.randrange(workers), random.choice(fit), change)


def drawn_for_an_operator(
    random: Random, workers: int, size: Size, moments: Sequence[tuple[int, int]]
) -> OperatorFault:
    """Draw a fault of an operator whose tensors are compared. Its place is one of these (step, position) pairs."""
    change = drawn_change(random, OF_OPERATORS)
    only = {Kind.SWAP: (ROTARY, SCORES, MIX), Kind.SHIFT: (ROTARY,), Kind.DROP: (MLP_ADD,)}
    kernel = random.choice(only.get(change.kind, (*OF_A_LAYER, NORM)))
    layer = -1 if kernel is NORM else random.randrange(size.layers)
    return OperatorFault(
        random.randrange(workers), OperatorCall(kernel.name, layer, *random.choice(moments)), change, size.heads
    )
