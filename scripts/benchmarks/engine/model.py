"""A transformers decoder with seeded random weights, and its paged cache of keys and values.

Owns: the engine's architectures, where keys and values are stored. Must not know: requests, brickd, faults.
Invariants: the key of a token is stored at the index of its position, in every batch; the keys and values of padding go
into block 0, and no row attends to this block.
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks.engine.prefix_cache import BLOCK
from benchmarks.faulty.architectures import ARCHITECTURES, model

KINDS = ("llama_fp32", "llama_bf16", "mixtral", "mixtral_bf16")
_ROW_WISE = ("norm", "proj", "mlp", "gate", "experts", "lm_head")


def built(kind: str, seed: int) -> Any:
    """The model: the same seed gives the same weights."""
    if kind not in KINDS:
        raise ValueError(f"{kind}: expected one of {', '.join(KINDS)}")
    return model(ARCHITECTURES[kind], seed)


def row_wise(name: str) -> bool:
    """Return whether each output row of the module at this path depends on only one input row."""
    own = name.rpartition(".")[2]
    return own.endswith(_ROW_WISE)


class KeysAndValues:
    """The stored keys and values of all layers, in blocks."""

    def __init__(self, config: Any, blocks: int, dtype: Any) -> None:
        heads, wide = config.num_key_value_heads, config.hidden_size // config.num_attention_heads
        shape = (config.num_hidden_layers, 2, blocks * BLOCK, heads, wide)
        self.stored = torch.zeros(shape, dtype=dtype)


class PagedCache:
    """The cache of one step, as a transformers model expects it.

    A model writes the keys and values of its tokens into their slots, and gets those of all tokens of each row.
    """

    def __init__(self, of: KeysAndValues, slots: Any, tables: Any) -> None:
        """Use the store in one step.

        Args:
            of: the store.
            slots: where the key and the value of each token are stored, for each row.
            tables: for each row, the slots of its keys, in the order of their positions.
        """
        self._stored, self._slots, self._tables = of.stored, slots, tables

    def get_seq_length(self, layer: int = 0) -> int:
        """Return 0: this length is not used, because the positions are given and the mask is complete."""
        return 0

    def update(self, keys: Any, values: Any, layer: int, **_: Any) -> tuple[Any, Any]:
        """Store new keys and values (rows, heads, tokens, width); return all keys and values of the rows."""
        found = []
        for store, new in zip(self._stored[layer], (keys, values), strict=True):
            store[self._slots] = new.transpose(1, 2)
            found.append(store[self._tables].transpose(1, 2))
        return found[0], found[1]
