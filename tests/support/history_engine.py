"""The program of a worker with a small decoder in numpy: two layers with a cache of keys and values.

`serve(name, told)` lets the worker compute one sequence step by step, and record its rows under this name. From the
second step on, a worker that is `bad` damages its cache or its result in the way of that name. If `told`, it says so to
brickd. Batches of different workers have different neighbours.
"""

from __future__ import annotations

PROGRAM = """
import numpy as np
WIDE, LAYERS, STEPS = 8, 2, ([3, 1, 4, 1], [5], [9], [2], [6])
drawn = np.random.default_rng(1)
TABLE, OTHER = drawn.standard_normal((2, 16, WIDE)).astype("f")
UP = drawn.standard_normal((LAYERS, WIDE, WIDE)).astype("f") / 3
neighbour = np.random.default_rng(100 + number).standard_normal(WIDE).astype("f")
brick.init()

def turned(x, position, speed=1.0):
    angle = np.float32(position * 0.1 * speed)
    cosine, sine = np.cos(angle), np.sin(angle)
    return (x.reshape(-1, 2) @ np.array([[cosine, -sine], [sine, cosine]], "f")).reshape(-1)

def attended(x, keys, values):
    weights = np.exp(np.stack(keys) @ x / np.float32(WIDE))
    return (weights / weights.sum()) @ np.stack(values)

def damage(name, cache):
    keys, values = cache[1]
    if name == "evicted":
        del keys[0], values[0]
    elif name == "reordered":  # to the cache of another beam
        keys[:], values[:] = list(OTHER[:len(keys)]), list(OTHER[:len(keys)])
    elif name in ("edited", "image", "cached_value"):
        values[0] = values[0] + np.float32(0.01) * neighbour
    elif name == "quantized":
        keys[:] = [np.round(key * 8) / 8 for key in keys]
    elif name in ("drafts", "encoder", "packed"):  # something else is in the cache
        keys.append(neighbour)
        values.append(neighbour)

def serve(name, told):
    bad_now, position = False, 0
    history, cache = brick.History(), [([], []) for _ in range(LAYERS)]
    for number_of_step, tokens in enumerate(STEPS):
        if number_of_step == 1 and bad:
            bad_now = True
            damage(name, cache)
            if told:
                history.lose(name)
        with brick.step(f"{name} {number} {number_of_step} {told}"):
            rows = brick.rows([history], np.array(tokens), shape=[1, len(tokens), position + len(tokens)])
            x = TABLE[tokens]
            for layer in range(LAYERS):
                keys, values = cache[layer]
                wrong = bad_now and layer == 1
                y = np.empty_like(x)
                for n, row in enumerate(x):
                    speed = 1.001 if wrong and name == "rotary" else 1.0
                    keys.append(turned(row, position + n, speed))
                    values.append(row * np.float32(0.5))
                    first = 1 if wrong and name in ("mask", "tree") else 0
                    y[n] = attended(turned(row, position + n, speed), keys[first:], values[first:])
                if wrong and name == "dynamic_int8":
                    scale = np.abs(neighbour).max() / 127
                    y = np.round(y / scale).astype("f") * scale
                if wrong and name == "capacity":
                    y[-1] = 0
                rows.checksum(f"{name}.attention" if not told else f"{name}.told", y, input=x, layer=layer)
                z = y + np.tanh(y @ UP[layer])
                rows.checksum(f"{name}.mlp", z, input=y, layer=layer) if not told else None
                x = z
        position += len(tokens)
"""


def program(number: int, *calls: tuple[str, bool], bad: bool) -> str:
    """The program of a worker that serves sequences, and then pauses."""
    served = "".join(f"serve({name!r}, {told})\n" for name, told in calls)
    return f"number, bad = {number}, {bad}\n{PROGRAM}{served}pause()\n"
