"""Faults that can be put into a running worker and removed again: in a weight, in an operator, in an operator's time,
or in memory.

Owns: how each fault is injected and removed, and which modules give wrong results because of it. Must not know: brickd,
the number of its worker. Invariants: removal restores the bits of the model; the place of a fault depends only on the
seed.
"""

from __future__ import annotations

import os
import select
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import Any, NamedTuple

import torch

from benchmarks.damage import flipped
from benchmarks.faulty.architectures import Architecture
from benchmarks.faulty.frozen import LEAK_BYTES, NAN_CALLS, NOISE

_FRACTION_BITS = {torch.float32: 23, torch.bfloat16: 7}
_AS_INTEGERS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}
_EPS, _OTHER_EPS = 1e-5, 1e-6  # the default epsilons of two norm classes, which are often confused


class Injected(NamedTuple):
    """An injected fault.

    Attributes:
        scope: the qualified names of the wrong modules or tensors.
        detail: a description.
        remove: a function that removes the fault.
        each_request: a function that is called at each request until the fault is removed.
    """

    scope: list[str]
    detail: str
    remove: Callable[[], None]
    each_request: Callable[[], None] = lambda: None


class Injector:
    """Injects faults into a model."""

    def __init__(self, model: Any, of: Architecture, commands: int) -> None:
        self._model, self._of, self._commands = model, of, commands

    def inject(self, fault: str, seed: int) -> Injected:
        """Inject one fault."""
        method: Callable[[Random], Injected] = getattr(self, f"_{fault}")
        return method(Random(seed))

    # ---- places of faults

    def _layers(self) -> Iterator[str]:
        names = {name for name, _ in self._model.named_modules()}
        number = 0
        while (name := self._of.layers.format(number)) in names:
            yield name
            number += 1

    def _layer(self, random: Random) -> str:
        return random.choice(list(self._layers()))

    def _operator(self, random: Random) -> str:
        return f"{self._layer(random)}.{random.choice(self._of.operators)}"

    def _packed(self, layer: str) -> list[tuple[str, Any]]:
        """Return the quantized linear operators of a layer."""
        inside = self._model.get_submodule(layer).named_modules()
        packed = [(name, each) for name, each in inside if hasattr(each, "set_weight_bias")]
        return [(f"{layer}.{name}", each) for name, each in packed if hasattr(each, "in_features")]

    # ---- weights

    def _weight_bit(self, random: Random) -> Injected:
        layer = self._layer(random)
        inside = self._model.get_submodule(layer).named_parameters()
        name, weight = random.choice([(name, each) for name, each in inside if each.dim() > 1])
        array = weight.detach().view(_AS_INTEGERS[weight.dtype]).numpy().reshape(-1)
        bits = _FRACTION_BITS[weight.dtype]
        index, bit = random.randrange(array.size), random.randrange(bits - 5, bits)

        def flip() -> None:
            flipped(array, index, bit)

        flip()
        return Injected([f"{layer}.{name}"], f"bit {bit} of element {index:,}", flip)

    def _int8_weight(self, random: Random) -> Injected:
        name, module = random.choice(self._packed(self._layer(random)))
        weight, bias = module._packed_params._weight_bias()
        integers = weight.int_repr()
        index = random.randrange(integers.numel())
        flipped(integers.numpy().reshape(-1), index, 6)
        wrong = (integers.float() - weight.q_zero_point()) * weight.q_scale()
        module.set_weight_bias(_requantized(wrong, weight), bias)
        return Injected([f"{name}.weight"], f"element {index:,}", lambda: module.set_weight_bias(weight, bias))

    def _stale_layer(self, random: Random) -> Injected:
        layer = self._layer(random)
        noise = torch.Generator().manual_seed(random.getrandbits(32))
        undo: list[Callable[[], object]] = []
        for weight in self._model.get_submodule(layer).parameters():
            kept = weight.detach().clone()
            weight.data.add_(_noise(kept, noise))
            undo.append(partial(weight.data.copy_, kept))
        for _, module in self._packed(layer):
            weight, bias = module._packed_params._weight_bias()
            right = weight.dequantize()
            module.set_weight_bias(_requantized(right + _noise(right, noise), weight), bias)
            undo.append(partial(module.set_weight_bias, weight, bias))

        def remove() -> None:
            for each in undo:
                each()

        return Injected([layer], f"all weights of {layer} off by {NOISE:.0%}", remove)

    # ---- operators

    def _eps(self, random: Random) -> Injected:
        layer = self._layer(random)
        norms = [
            (name, each, attribute)
            for name, each in self._model.get_submodule(layer).named_modules()
            for attribute in ("variance_epsilon", "eps")
            if isinstance(vars(each).get(attribute), float)
        ]
        name, norm, attribute = random.choice(norms)
        right = getattr(norm, attribute)
        setattr(norm, attribute, _OTHER_EPS if right == _EPS else _EPS)
        detail = f"{attribute} {getattr(norm, attribute):g} in place of {right:g}"
        return Injected([f"{layer}.{name}"], detail, lambda: setattr(norm, attribute, right))

    def _rare_nan(self, random: Random) -> Injected:
        name, calls = self._operator(random), random.randrange(NAN_CALLS)

        def around(plain: Callable[[], Any]) -> Any:
            nonlocal calls
            calls += 1
            return _with_nan(plain()) if calls % NAN_CALLS == 0 else plain()

        return Injected([name], f"one NaN in one call of {NAN_CALLS}", self._around([name], around))

    def _stuck(self, random: Random) -> Injected:
        name = self._operator(random)

        def around(plain: Callable[[], Any]) -> Any:
            # the operator hangs until the next command arrives, which removes the fault
            select.select([self._commands], [], [])
            return plain()

        return Injected([name], "never returns", self._around([name], around))

    def _slow_2x(self, random: Random) -> Injected:
        return self._slow(random, 1.0)

    def _slow_20_percent(self, random: Random) -> Injected:
        return self._slow(random, 0.2)

    def _slow(self, random: Random, more: float) -> Injected:
        operator = random.choice(self._of.operators)
        names = [f"{layer}.{operator}" for layer in self._layers()]

        def around(plain: Callable[[], Any]) -> Any:
            began = time.thread_time_ns()
            result = plain()
            until = began + (1 + more) * (time.thread_time_ns() - began)
            while time.thread_time_ns() < until:
                pass
            return result

        return Injected(names, f"takes {more:.0%} more processor time", self._around(names, around))

    def _around(self, names: list[str], around: Callable[[Callable[[], Any]], Any]) -> Callable[[], None]:
        """Wrap the forward of modules; return a function that removes the wrapper."""
        modules = [self._model.get_submodule(name) for name in names]
        for module in modules:
            forward = module.forward
            module.forward = lambda *args, _of=forward, **keywords: around(lambda: _of(*args, **keywords))

        def remove() -> None:
            for module in modules:
                del module.forward

        return remove

    # ---- the process

    def _leak(self, random: Random) -> Injected:
        kept: list[bytes] = []

        def keep() -> None:
            kept.append(os.urandom(LEAK_BYTES))

        return Injected([], f"keeps {LEAK_BYTES:,} bytes of each request", kept.clear, keep)

    def _pinned(self, random: Random) -> Injected:
        before = os.sched_getaffinity(0)
        cpu = random.choice(sorted(before))
        _pin({cpu})
        return Injected([], f"CPU {cpu}", lambda: _pin(before))


def _pin(cpus: set[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        os.sched_setaffinity(int(thread), cpus)


def _noise(of: Any, random: Any) -> Any:
    spread = of.float().std() if of.numel() > 1 else of.float().abs().max()
    return (torch.randn(of.shape, generator=random) * NOISE * spread.clamp(min=1e-3)).to(of.dtype)


def _requantized(values: Any, like: Any) -> Any:
    return torch.quantize_per_tensor(values, like.q_scale(), like.q_zero_point(), torch.qint8)


def _with_nan(result: Any) -> Any:
    """Return the result with one NaN in its first tensor."""
    if isinstance(result, tuple):
        return (_with_nan(result[0]), *result[1:])
    wrong = result.clone(memory_format=torch.contiguous_format)
    wrong.view(-1)[wrong.numel() // 2] = float("nan")
    return wrong
