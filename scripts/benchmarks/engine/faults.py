"""Faults of an engine's replica that can be put in and taken out between two steps.

Owns: how each fault is put in, its site, its truth. Must not know: brickd, processes. Invariants: removal restores the
bits of the model; the place of a fault depends only on the seed. A cached value is wrong until its block is computed
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import torch

from benchmarks.engine.engine import Engine
from benchmarks.engine.model import row_wise
from benchmarks.engine.prefix_cache import BLOCK
from benchmarks.engine.truth import Fault
from benchmarks.faulty.architectures import Architecture
from benchmarks.faulty.injected import Injected, Injector

CHANNEL, ROTARY = 1.01, 1.001  # the factors by which these faults multiply values


class EngineFaults(Injector):
    """Puts faults into a replica's engine."""

    def __init__(self, whole: Any, of: Architecture, commands: int, engine: Engine, replica: int) -> None:
        super().__init__(whole, of, commands)
        self._engine, self._replica = engine, replica

    def put_in(self, kind: str, seed: int) -> tuple[Fault, Callable[[], None]]:
        """Put a fault in; return its truth, and the function that takes it out."""
        injected = self.inject(kind, seed)
        (tensor_or_module,) = injected.scope
        site = self._module_of(tensor_or_module)
        watched = tuple(name for name in _around(site) if row_wise(name))
        fault = Fault(kind, self._replica, site, watched, injected.detail, self._engine.steps, time.time())
        return fault, injected.remove

    def _module_of(self, qualified: str) -> str:
        return qualified if qualified in dict(self._model.named_modules()) else qualified.rpartition(".")[0]

    def _linear(self, random: Random) -> tuple[str, Any]:
        """Draw a projection of a layer."""
        layer = self._layer(random)
        inside = self._model.get_submodule(layer).named_modules()
        return random.choice([(f"{layer}.{name}", each) for name, each in inside if isinstance(each, torch.nn.Linear)])

    def _late_channel(self, random: Random) -> Injected:
        name, module = self._linear(random)
        channel = random.randrange(module.out_features)

        def around(plain: Callable[[], Any]) -> Any:
            result = plain()
            result[..., channel] *= CHANNEL
            return result

        return Injected([name], f"channel {channel} × {CHANNEL}", self._around([name], around))

    def _one_weight(self, random: Random) -> Injected:
        name, module = self._linear(random)
        weight = module.weight.data
        row, column = (random.randrange(size) for size in weight.shape)
        right = weight[row, column].clone()
        weight[row, column] += weight.std()

        return Injected(
            [f"{name}.weight"], f"weight {row},{column} + one deviation", partial(weight[row, column].copy_, right)
        )

    def _swapped_expert(self, random: Random) -> Injected:
        name = f"{self._layer(random)}.mlp.experts"
        experts = self._model.get_submodule(name)
        first, second = random.sample(range(experts.num_experts), 2)

        def swap() -> None:
            for weight in (experts.gate_up_proj.data, experts.down_proj.data):
                weight[[first, second]] = weight[[second, first]]

        swap()
        return Injected([name], f"experts {first} and {second} swapped", swap)

    def _rotary(self, random: Random) -> Injected:
        frequencies = self._model.model.rotary_emb.inv_freq
        right = frequencies.clone()
        frequencies *= ROTARY
        return Injected(["model.rotary_emb"], f"frequencies × {ROTARY}", partial(frequencies.copy_, right))

    def _cached_value(self, random: Random) -> Injected:
        layer = self._layer(random)
        number = int(layer.rpartition(".")[2])
        block = random.choice([block for each in self._engine.scheduler.running for block in each.blocks])
        values = self._engine.cache.stored[number, 1, block * BLOCK]
        head, index = (random.randrange(size) for size in values.shape)
        right = values[head, index].clone()
        wrong = right + values.float().std()
        values[head, index] = wrong

        def remove() -> None:
            if values[head, index] == wrong.to(values.dtype):  # if not, the block was computed again and is right
                values[head, index] = right

        return Injected([f"{layer}.self_attn"], f"value {index} of head {head} in block {block}", remove)


def _around(site: str) -> list[str]:
    """The paths of a module and of all modules around it, the outermost first."""
    words = site.split(".")
    return [".".join(words[: count + 1]) for count in range(len(words))]
