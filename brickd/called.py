"""What a tensor is called.

Owns: how its name is written for people, and the number of its layer for programs. Must not know: what tensors are, who
has which.
"""

from __future__ import annotations


def or_none(number: int) -> int | None:
    """The number of a layer or of an expert as documents have it: none where there is none.

    >>> or_none(3), or_none(-1)
    (3, None)
    """
    return number if number >= 0 else None


def called(name: str, layer: int | None, expert: int | None) -> str:
    """A tensor's name as its model has it: with its layer and its expert where their numbers stood.

    >>> called("layers.*.mlp.weight", 3, None), called("norm", -1, -1), called("w", 3, 7)
    ('layers.3.mlp.weight', 'norm', 'w, layer 3, expert 7')
    >>> called("layers.*.experts.*.up", 3, 5)
    'layers.3.experts.5.up'
    """
    more = ""
    for what, number in (("layer", layer), ("expert", expert)):
        if number is None or number < 0:
            continue
        if "*" in name:
            name = name.replace("*", str(number), 1)
        else:
            more += f", {what} {number}"
    return name + more
