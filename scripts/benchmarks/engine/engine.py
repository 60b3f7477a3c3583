"""One replica's engine: requests arrive, the scheduler plans, the model computes, tokens are sampled.

Owns: the tensors of a step, padding, sampling, the digest of what was served. Must not know: brickd, faults, processes.
Invariants: the served tokens depend only on the settings and on what the model computes; padding repeats the first
token of a row. With a fixed padding token, rows of padding would be equal in all replicas, and be compared.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from benchmarks.engine.model import KeysAndValues, PagedCache
from benchmarks.engine.prefix_cache import BLOCK
from benchmarks.engine.scheduler import Scheduler, Settings, Shape, Slice
from benchmarks.engine.traffic import Traffic

Looked = Callable[[int, Sequence[Slice], Shape], None]


class Engine:
    """The engine of one replica."""

    def __init__(self, whole: Any, settings: Settings, replica: int, looked: Looked | None = None) -> None:
        """Begin without requests. `looked` is called before the model computes a step, with the step and its number."""
        self._whole, self._looked = whole, looked
        self.cache = KeysAndValues(whole.config, settings.blocks, whole.dtype)
        self.scheduler = Scheduler(blocks=settings.blocks, batch=settings.batch, chunk=settings.chunk)
        self._traffic = Traffic(
            settings.seed,
            replica,
            vocabulary=whole.config.vocab_size,
            system=settings.system,
            batch=settings.batch,
            load=settings.load,
            requests=settings.traffic,
        )
        self._most_waiting = 2 * settings.batch
        self._served = hashlib.blake2b(digest_size=8)
        self.steps = 0

    @property
    def served(self) -> str:
        """A digest of all served tokens and of the logits from which they were drawn, in order."""
        return self._served.hexdigest()

    def step(self) -> bool:
        """Do one step; return whether there was work."""
        self.steps += 1
        for request in self._traffic.arrivals():
            if self.scheduler.waiting < self._most_waiting:
                self.scheduler.add(request)
        slices = self.scheduler.plan()
        if not slices:
            return False
        for generation in self.scheduler.advance(slices, _shape(slices), self._compute(slices)):
            self._served.update(repr((generation.request.number, generation.tokens)).encode())
        return True

    def _compute(self, slices: Sequence[Slice]) -> list[int]:
        shape = _shape(slices)
        ids, positions, slots, tables = (
            torch.zeros(shape.rows, width, dtype=torch.long)
            for width in (shape.tokens, shape.tokens, shape.tokens, shape.keys)
        )
        for row, (generation, start, count) in enumerate(slices):
            own = torch.tensor(generation.blocks)[:, None] * BLOCK + torch.arange(BLOCK)
            own = own.flatten()[: shape.keys]
            padding, end = shape.tokens - count, start + count
            tables[row, : len(own)] = own
            ids[row, :padding] = generation.tokens[start]
            ids[row, padding:] = torch.tensor(generation.tokens[start:end])
            positions[row, :padding] = start
            positions[row, padding:] = torch.arange(start, end)
            slots[row, padding:] = own[start:end]
        mask = torch.arange(shape.keys) <= positions[:, None, :, None]
        if self._looked is not None:
            self._looked(self.steps, slices, shape)
        with torch.inference_mode():
            found = self._whole(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions,
                cache=PagedCache(self.cache, slots, tables),
                use_cache=True,
                logits_to_keep=1,
            )
        self._served.update(found.logits.contiguous().view(torch.uint8).numpy())
        return [_sampled(found.logits[row, -1], each) for row, each in enumerate(slices)]


def _shape(slices: Sequence[Slice]) -> Shape:
    """The shape of a step, including its padding. The number of keys is rounded up to whole blocks."""
    keys = max(-(-(each.start + each.length) // BLOCK) * BLOCK for each in slices)
    return Shape(len(slices), max(each.length for each in slices), keys)


def _sampled(logits: Any, of: Slice) -> int:
    """Draw a random token. It depends on the seed of the request and on the position."""
    generation, start, count = of
    if start + count < len(generation.tokens):
        return 0  # this token is already known
    chance = torch.Generator().manual_seed(generation.request.seed + start + count)
    noise = -torch.rand(logits.shape, generator=chance).log().neg().log()
    return int((logits.float() + noise).argmax())
