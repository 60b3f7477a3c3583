"""One worker of the demonstration: a replica of the transformer that answers requests.

The worker is a separate program in a separate process. From brickd, it imports only the transformer. All replicas have
the same weights and get the same requests. The argument KIND selects the fault:

- `well`: no fault.
- `damaged`: one bit of one weight is flipped.
- `slow`: one operator does its work ten times.

The worker loads its weights. The first byte on its standard input makes it answer requests; the next byte, or the end
of the input, ends it.
"""

import asyncio
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import brick_agent as brick
import numpy as np

from brickd.demo.transformer import GATE, Array, Model, OperatorCall, Size, as_it_should, drawn

SIZE = Size(layers=4, width=128, hidden=320, context=64)
PROMPTS = [[(17 * client + 5 * token) % SIZE.vocabulary for token in range(12)] for client in range(4)]
TOKENS = 20
THINKING_SECONDS = 0.15  # the wait between a token and the next request, so that the server has spare time
DAMAGED, ELEMENT, BIT = "layers.2.mlp.down.weight", 21_222, 24  # the weight, the element and the bit that is flipped


def slowly(place: OperatorCall, compute: Callable[..., Array], inputs: tuple[Array, ...]) -> Array:
    """Run an operator. One of the operators is run ten times."""
    if place.kernel == GATE.name:
        for _ in range(9):
            compute(*inputs)
    return as_it_should(place, compute, inputs)


async def serve(model: Model, stop: threading.Event) -> None:
    """Serve all clients concurrently. Each client is a task that repeats one request."""

    async def client(prompt: list[int]) -> None:
        while not stop.is_set():
            for _, _token in zip(range(TOKENS), model.generate(prompt, step=1), strict=False):
                await asyncio.sleep(THINKING_SECONDS)
                if stop.is_set():
                    break

    await asyncio.gather(*(client(prompt) for prompt in PROMPTS))


def main() -> None:
    """Run as `python -m brickd.demo.worker KIND`."""
    kind = sys.argv[1]
    brick.init()
    weights: dict[str, Any] = drawn(SIZE, seed=1)
    if kind == "damaged":
        weights[DAMAGED].reshape(-1).view(np.uint32)[ELEMENT] ^= np.uint32(1 << BIT)
    brick.weights(weights)
    model, stop = Model(SIZE, weights, slowly if kind == "slow" else as_it_should), threading.Event()

    def wait_for_the_end() -> None:
        os.read(0, 1)
        stop.set()

    if not os.read(0, 1):
        return
    threading.Thread(target=wait_for_the_end, daemon=True).start()
    asyncio.run(serve(model, stop))


if __name__ == "__main__":
    main()
