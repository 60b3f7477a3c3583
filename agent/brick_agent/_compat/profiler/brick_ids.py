"""The predecessor's 15 known bricks, with their aliases and categories.

Owns: the ids, names and aliases of the bricks, and the four categories. Must not know: how bricks are timed.
Invariants: an id never changes its name; names and aliases are unique and case-sensitive; any other brick has the
category declared for it, or else Other.
"""

from __future__ import annotations

from enum import IntEnum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar


class BrickCategory(IntEnum):
    """The category of a brick.

    >>> brick.BrickCategory.Norm
    <BrickCategory.Norm: 0>
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    Norm = 0
    Attention = 1
    FFN = 2
    Other = 3


class BrickId(IntEnum):
    """A known brick.

    >>> brick.BrickId.Softmax
    <BrickId.AttentionSoftmax: 5>
    >>> brick.BrickId.Gate.category
    <BrickCategory.FFN: 2>
    >>> brick.BrickId.COUNT, brick.BrickId.ALL[-1].name
    (15, 'Sampling')
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    if TYPE_CHECKING:
        COUNT: ClassVar[int]
        ALL: ClassVar[tuple[BrickId, ...]]

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
        """The category of the brick."""
        return _CATEGORIES[self]

    @property
    def aliases(self) -> tuple[str, ...]:
        """The other names of the brick."""
        return tuple(name for name, known in BrickId.__members__.items() if known is self and name != self.name)

    @classmethod
    def from_name(cls, name: str) -> BrickId | None:
        """Return the brick with this name or alias, or None.

        >>> brick.BrickId.from_name("RoPE")
        <BrickId.RopeEmbedding: 3>
        >>> brick.BrickId.from_name("rope") is None
        True
        """
        return cls.__members__.get(name)


BrickId.COUNT, BrickId.ALL = len(BrickId), tuple(BrickId)
_CATEGORIES = (
    *(BrickCategory.Norm,) * 2,
    *(BrickCategory.Attention,) * 6,
    *(BrickCategory.FFN,) * 4,
    *(BrickCategory.Other,) * 3,
)
# The agent's names of the categories.
AGENT_CATEGORIES = {each: None if each is BrickCategory.Other else each.name.lower() for each in BrickCategory}


def category_of(name: str, declared: str | None) -> str:
    """Return the category of a brick: one of the four known ones, or a declared one."""
    known = BrickId.from_name(name)
    if known is not None:
        return known.category.name
    own = declared or BrickCategory.Other.name
    return next((each.name for each in BrickCategory if each.name.lower() == declared), own)
