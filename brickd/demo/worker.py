"""One worker of the demonstration: a small transformer in numpy, instrumented as a server's would be.

A program of its own, started by path in a process of its own, as anybody's server is: it knows brick_agent and numpy,
and nothing of brickd. Its three faces share one model:

    forward    one thread runs the forward pass in a loop
    threads    two threads do
    asyncio    requests as tasks, interleaved on one event loop

It runs until its standard input closes.
"""

import asyncio
import sys
import threading

import brick_agent as brick
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

LAYERS, WIDTH, HEADS, TOKENS = 4, 128, 4, 48
CLIENTS = 8

embedding = brick.brick("embedding")
rms_norm = brick.brick("rms_norm", category="norm")
qkv_projection = brick.brick("qkv_projection", category="attention")
attention = brick.brick("attention", category="attention")
output_projection = brick.brick("output_projection", category="attention")
gate_up = brick.brick("gate_up", category="ffn")
down = brick.brick("down", category="ffn")
lm_head = brick.brick("lm_head")


class Model:
    """A decoder with random weights: the arithmetic is a transformer's, the text it would write is not."""

    def __init__(self, slow_down: int = 1) -> None:
        random = np.random.default_rng(1)

        def draw(*shape: int) -> Array:
            weights: Array = (random.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32)
            return weights

        self.table = draw(1000, WIDTH)
        self.layers = [
            {"qkv": draw(WIDTH, 3 * WIDTH), "out": draw(WIDTH, WIDTH), "up": draw(WIDTH, 8 * WIDTH),
             "down": draw(4 * WIDTH, WIDTH)}
            for _ in range(LAYERS)
        ]  # fmt: skip
        # One worker is given more work in one place, so that there is something to find.
        self.slow_down = slow_down

    def forward(self, tokens: NDArray[np.int64], step: int) -> Array:
        """Logits of every position: one engine step."""
        with brick.step(step, kind="forward", rows=len(tokens)):
            with embedding:
                x: Array = self.table[tokens]
            for index, weights in enumerate(self.layers):
                with brick.layer(index):
                    x = x + self._attend(self._norm(x), weights)
                    x = x + self._feed(self._norm(x), weights)
            with lm_head(elements=len(tokens)):
                logits: Array = self._norm(x) @ self.table.T
            return logits

    def _norm(self, x: Array) -> Array:
        with rms_norm(elements=x.size, bytes=2 * x.nbytes):
            normed: Array = x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + 1e-6)
            return normed

    def _attend(self, x: Array, weights: dict[str, Array]) -> Array:
        with qkv_projection(elements=x.size):
            q, k, v = (part.reshape(-1, HEADS, WIDTH // HEADS).swapaxes(0, 1)
                       for part in np.split(x @ weights["qkv"], 3, axis=-1))  # fmt: skip
        with attention(elements=x.size):
            scores = q @ k.swapaxes(1, 2) / np.sqrt(WIDTH // HEADS) + np.triu(np.full((len(x), len(x)), -1e9), 1)
            scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
            mixed = (scores / scores.sum(axis=-1, keepdims=True)) @ v
        with output_projection(elements=x.size):
            out: Array = (mixed.swapaxes(0, 1).reshape(len(x), WIDTH) @ weights["out"]).astype(np.float32)
            return out

    def _feed(self, x: Array, weights: dict[str, Array]) -> Array:
        with gate_up(elements=4 * x.size):
            for _ in range(self.slow_down):
                gate, up = np.split(x @ weights["up"], 2, axis=-1)
        with down(elements=4 * x.size):
            fed: Array = (gate / (1 + np.exp(-gate)) * up) @ weights["down"]
            return fed


def loop(model: Model, stop: threading.Event) -> None:
    """Run forward passes until told to stop."""
    tokens = np.arange(TOKENS) % 1000
    step = 0
    while not stop.is_set():
        model.forward(tokens, step)
        step += 1


async def serve(model: Model, stop: threading.Event) -> None:
    """Answer all clients at once, each a task: their spans interleave on one thread."""

    async def client(number: int) -> None:
        step = number
        while not stop.is_set():
            with brick.span("request", step=step):
                await asyncio.sleep(0.002)
                model.forward(np.arange(TOKENS // 4) + number, step)
                await asyncio.sleep(0)
            step += CLIENTS

    await asyncio.gather(*(client(number) for number in range(CLIENTS)))


def main() -> None:
    """Run as `worker.py FACE SLOW_DOWN`."""
    face, slow_down = sys.argv[1], int(sys.argv[2])
    brick.init()
    model, stop = Model(slow_down), threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    if face == "asyncio":
        asyncio.run(serve(model, stop))
        return
    threads = [threading.Thread(target=loop, args=(model, stop)) for _ in range(2 if face == "threads" else 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
