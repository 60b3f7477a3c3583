"""A small decoder in numpy, instrumented like a server's model: each operator is a brick with fingerprints.

The arithmetic is that of a real transformer, but the weights are random numbers, drawn from a seed. From the same
input, two models with the same seed compute the same outputs, to the last bit.

Owns: the arithmetic, and what it records. Must not know: brickd, what a damaged weight or operator causes. Invariants:
No operator changes its inputs. An operator reads only the weight that has its name, and its recorded inputs. Some
operators of attention also read the cache; for them, the data that filled the cache is recorded as an input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import brick_agent as brick
import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

EMBEDDING = brick.brick("embedding")
ATTN_NORM = brick.brick("attn.norm", category="norm")
QKV = brick.brick("attn.qkv", category="attention")
ROTARY = brick.brick("attn.rotary", category="attention")
SCORES = brick.brick("attn.scores", category="attention")
MIX = brick.brick("attn.mix", category="attention")
OUT = brick.brick("attn.out", category="attention")
ATTN_ADD = brick.brick("attn.add")
MLP_NORM = brick.brick("mlp.norm", category="norm")
GATE = brick.brick("mlp.gate", category="ffn")
DOWN = brick.brick("mlp.down", category="ffn")
MLP_ADD = brick.brick("mlp.add")
NORM = brick.brick("norm", category="norm")
LM_HEAD = brick.brick("lm_head")
SAMPLING = brick.brick("sampling")

OF_A_LAYER = (ATTN_NORM, QKV, ROTARY, SCORES, MIX, OUT, ATTN_ADD, MLP_NORM, GATE, DOWN, MLP_ADD)
CACHED = (SCORES, MIX)

_EPSILON = 1e-6


@dataclass(frozen=True)
class Size:
    """The dimensions of the model. The width is a multiple of twice the number of heads."""

    layers: int = 6
    width: int = 256
    heads: int = 4
    hidden: int = 640
    vocabulary: int = 1000
    context: int = 256


class OperatorCall(NamedTuple):
    """One call of an operator; the layer is -1 outside of the layers."""

    kernel: str
    layer: int
    step: int
    position: int


# A function that runs an operator on its inputs; it may add a fault.
Operate = Callable[[OperatorCall, Callable[..., Array], tuple[Array, ...]], Array]


def as_it_should(_: OperatorCall, compute: Callable[..., Array], inputs: tuple[Array, ...]) -> Array:
    """Run an operator without a fault."""
    return compute(*inputs)


def drawn(size: Size, seed: int) -> dict[str, Array]:
    """Return all weights by name; the same seed gives the same weights."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Array:
        return random.standard_normal((rows, columns), np.float32) * np.float32(rows**-0.5)

    def scale() -> Array:
        return 1 + np.float32(0.1) * random.standard_normal(size.width, np.float32)

    found = {"embed_tokens.weight": matrix(size.vocabulary, size.width) * np.float32(size.vocabulary**0.5)}
    for layer in range(size.layers):
        found |= {
            f"layers.{layer}.attn.norm.weight": scale(),
            f"layers.{layer}.attn.qkv.weight": matrix(size.width, 3 * size.width),
            f"layers.{layer}.attn.out.weight": matrix(size.width, size.width),
            f"layers.{layer}.mlp.norm.weight": scale(),
            f"layers.{layer}.mlp.gate.weight": matrix(size.width, 2 * size.hidden),
            f"layers.{layer}.mlp.down.weight": matrix(size.hidden, size.width),
        }
    return found | {"norm.weight": scale(), "lm_head.weight": matrix(size.width, size.vocabulary)}


def normed(x: Array, weight: Array) -> Array:
    """Divide each row by its root mean square, and scale it."""
    result: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + _EPSILON) * weight
    return result


def rotated(x: Array, positions: Array) -> Array:
    """Rotate each pair of numbers of a head by an angle that grows with the row's position."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * 10_000.0 ** (-np.arange(half) / half)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    even, odd = x[..., :half], x[..., half:]
    return np.concatenate([even * cos - odd * sin, even * sin + odd * cos], axis=-1)


class RequestCache:
    """The tokens of one request, and its keys and values, which only attention reads."""

    def __init__(self, size: Size) -> None:
        shape = (size.layers, 2, size.heads, size.context, size.width // size.heads)
        self.both = np.zeros(shape, np.float32)
        self.tokens = np.zeros(size.context, np.int64)
        self.length = 0


class Model:
    """Answers requests. Each forward pass reads `weights`, so changes in place take effect."""

    def __init__(self, size: Size, weights: Mapping[str, Array], operate: Operate = as_it_should) -> None:
        self.size = size
        self.weights = weights
        self._operate = operate

    def generate(self, prompt: Sequence[int], *, step: int = 0, seed: int | None = None) -> Iterator[int]:
        """Generate one token for each step until the context is full; the first step is a prefill.

        Each token is the most probable one, or it is drawn with the seed. The steps are numbered from `step`.
        """
        cache, tokens = RequestCache(self.size), np.array(prompt, np.int64)
        while cache.length + len(tokens) <= self.size.context:
            tokens = self.forward(tokens, cache, step, seed)
            yield int(tokens[0])
            step += 1

    def forward(self, tokens: Array, cache: RequestCache, step: int, seed: int | None = None) -> Array:
        """Run one engine step; return the token that follows the cached tokens and `tokens`."""
        kind = "decode" if cache.length else "prefill"
        with np.errstate(all="ignore"), brick.step(step, kind=kind, rows=len(tokens)):
            cache.tokens[cache.length : cache.length + len(tokens)] = tokens
            forward = _Forward(self.size, self.weights, self._operate, cache, step, len(tokens))
            x = forward.embedded(tokens)
            for layer in range(self.size.layers):
                with brick.layer(layer):
                    x = forward.fed(layer, forward.attended(layer, x))
            chosen = forward.sampled(x, seed)
        cache.length += len(tokens)
        return chosen


class _Forward:
    """One pass through the layers."""

    def __init__(
        self, size: Size, weights: Mapping[str, Array], operate: Operate, cache: RequestCache, step: int, rows: int
    ) -> None:
        self._size, self._weights, self._operate, self._cache, self._step = size, weights, operate, cache, step
        self._history = cache.tokens[: cache.length + rows]

    def _run(self, kernel: brick.Brick, layer: int, compute: Callable[..., Array], *inputs: Array) -> Array:
        """Run one operator: time it, and record fingerprints of its output and inputs."""
        position = self._cache.length
        shown = (*inputs, self._history) if kernel in CACHED else inputs
        taken = tuple(brick.take(kernel, each) for each in shown)
        with kernel(elements=inputs[0].size):
            out = self._operate(OperatorCall(kernel.name, layer, self._step, position), compute, inputs)
        brick.checksum(kernel, out, input=taken, position=position, stateful=kernel is SAMPLING)
        return out

    def _weight(self, kernel: brick.Brick, layer: int) -> Array:
        return self._weights[f"layers.{layer}.{kernel.name}.weight"]

    def embedded(self, tokens: Array) -> Array:
        """Return a row for each token."""
        return self._run(EMBEDDING, -1, lambda t: self._weights["embed_tokens.weight"][t], tokens)

    def attended(self, layer: int, x: Array) -> Array:
        """Return the output of attention, which is added to the rows."""
        first, rows, heads = self._cache.length, len(x), self._size.heads
        positions = np.arange(first, first + rows)
        keys, values = self._cache.both[layer]

        def by_head(qkv: Array) -> Array:
            return qkv.reshape(rows, 3, heads, -1).transpose(1, 2, 0, 3)

        def scores(q: Array) -> Array:
            later = np.arange(first + rows) > positions[:, None]
            found: Array = q @ keys[:, : first + rows].swapaxes(1, 2) * q.shape[-1] ** -0.5
            found[:, later] = -np.inf
            found = np.exp(found - found.max(axis=-1, keepdims=True))
            found /= found.sum(axis=-1, keepdims=True)
            return found

        h = self._run(ATTN_NORM, layer, lambda x: normed(x, self._weight(ATTN_NORM, layer)), x)
        qkv = self._run(QKV, layer, lambda h: h @ self._weight(QKV, layer), h)
        qk = self._run(ROTARY, layer, lambda qkv, at: rotated(by_head(qkv)[:2], at), qkv, positions)
        keys[:, first : first + rows], values[:, first : first + rows] = qk[1], by_head(qkv)[2]
        s = self._run(SCORES, layer, scores, qk[0])
        mixed = self._run(MIX, layer, lambda s: s @ values[:, : first + rows], s)
        out = self._run(OUT, layer, lambda m: m.swapaxes(0, 1).reshape(rows, -1) @ self._weight(OUT, layer), mixed)
        return self._run(ATTN_ADD, layer, np.add, x, out)

    def fed(self, layer: int, x: Array) -> Array:
        """Return the output of the gated network, which is added to the rows."""

        def gated(h: Array) -> Array:
            gate, up = np.split(h @ self._weight(GATE, layer), 2, axis=-1)
            up *= gate / (1 + np.exp(-gate))
            return up

        h = self._run(MLP_NORM, layer, lambda x: normed(x, self._weight(MLP_NORM, layer)), x)
        inner = self._run(GATE, layer, gated, h)
        down = self._run(DOWN, layer, lambda inner: inner @ self._weight(DOWN, layer), inner)
        return self._run(MLP_ADD, layer, np.add, x, down)

    def sampled(self, x: Array, seed: int | None) -> Array:
        """Return the token that follows the last row."""

        def chosen(logits: Array) -> Array:
            if seed is not None:
                random = np.random.default_rng((seed, self._cache.length))
                logits = logits + random.gumbel(size=logits.shape)
            best: Array = np.argmax(logits, axis=-1)
            return best

        last = self._run(NORM, -1, lambda x: normed(x, self._weights["norm.weight"]), x[-1:])
        logits = self._run(LM_HEAD, -1, lambda h: h @ self._weights["lm_head.weight"], last)
        return self._run(SAMPLING, -1, chosen, logits)
