"""The bricks that the seed profiler knows: 15 of them, what else each may be called, and its category.

Owns: their numbers, names, aliases, and the four categories. Must not know: how anything is timed. Invariants: a number
is a name's for good; names and aliases are told from each other by case too, and none is two bricks'; whatever is none
of them is dynamic, of the category that its user gives it, else Other.
"""

from __future__ import annotations

from enum import IntEnum


class BrickCategory(IntEnum):
    """What a brick is part of; a brick of none of the others is Other.

    >>> brick.BrickCategory.Norm
    <BrickCategory.Norm: 0>
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    Norm = 0
    Attention = 1
    FFN = 2
    Other = 3


class BrickId(IntEnum):
    """A brick that is known by its number.

    >>> brick.BrickId.Softmax
    <BrickId.AttentionSoftmax: 5>
    >>> brick.BrickId.Gate.category
    <BrickCategory.FFN: 2>
    """

    __module__ = "brick_agent"  # the path in pickles, wherever this file is

    RmsNorm = 0
    LayerNorm = 1
    QkvProjection = 2
    RopeEmbedding = 3
    AttentionScore = 4
    AttentionSoftmax = 5
    AttentionOutput = 6
    OutputProjection = 7
    GateProjection = 8
    UpProjection = 9
    Activation = 10
    DownProjection = 11
    Embedding = 12
    LmHead = 13
    Sampling = 14

    Qkv = 2
    Rope = 3
    RoPE = 3
    Softmax = 5
    OutProj = 7
    Gate = 8
    Up = 9
    SiLU = 10
    GELU = 10
    ReLU = 10
    Down = 11
    Embed = 12
    Head = 13
    Sample = 14

    @property
    def category(self) -> BrickCategory:
        """What it is part of."""
        return _CATEGORIES[self]

    @property
    def aliases(self) -> tuple[str, ...]:
        """What else it may be called."""
        return tuple(name for name, known in BrickId.__members__.items() if known is self and name != self.name)

    @classmethod
    def from_name(cls, name: str) -> BrickId | None:
        """The brick of that name or alias; None: it is none of these.

        >>> brick.BrickId.from_name("RoPE")
        <BrickId.RopeEmbedding: 3>
        >>> brick.BrickId.from_name("rope") is None
        True
        """
        return cls.__members__.get(name)


_CATEGORIES = (
    *(BrickCategory.Norm,) * 2,
    *(BrickCategory.Attention,) * 6,
    *(BrickCategory.FFN,) * 4,
    *(BrickCategory.Other,) * 3,
)
# As the agent calls them.
SPOKEN = {
    BrickCategory.Norm: "norm",
    BrickCategory.Attention: "attention",
    BrickCategory.FFN: "ffn",
    BrickCategory.Other: None,
}


def category_of(name: str, declared: str | None) -> str:
    """What a brick is counted with: one of the four, or the category that its user gave it."""
    known = BrickId.from_name(name)
    if known is not None:
        return known.category.name
    return next(
        (each.name for each in BrickCategory if each.name.lower() == declared), declared or BrickCategory.Other.name
    )
