"""One attempt to time forward passes in each sync mode: `python -m benchmarks.passes ROUNDS TURN`.

The model is the demo's model in numpy, with its real arithmetic. All passes include the model's own spans. There is no
device: the sync function waits as if the device were idle. With a real device, each wait also stops the device, so a
mode that waits often looks cheaper here than it is.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import brick_agent as brick

from benchmarks.comparisons import Comparison
from benchmarks.goals import Goal
from benchmarks.method import Case, measure, pin
from benchmarks.timed import rows
from brickd.demo.transformer import OF_A_LAYER, Array, Model, OperatorCall, RequestCache, Size, drawn

WAIT_NS = 10_000
SIZE = Size()
BRICKS = SIZE.layers * len(OF_A_LAYER) + 4
_CONTEXT = 64

PREFILL, DECODE = "prefill", "decode"
ROWS = {PREFILL: 64, DECODE: 1}
NO_SYNC = "no sync"
# The overhead in percent that the documentation of the older profiler claims, without naming a load. In this benchmark,
# even two equal passes differ by some percent.
_CLAIMS = {"Immediate": 200, "PerLayer": 20, "Deferred": 5, "Off": 0}
_EQUAL = 0.02


def profiled(kind: str, mode: str) -> str:
    return f"{kind}, {mode}"


COMPARISONS = (
    *(
        Comparison(
            profiled(PREFILL, mode),
            PREFILL,
            Goal(1 + max(percent / 100, _EQUAL)),
            by="BrickProfiler",
            note=f"the predecessor claims {percent} %",
        )
        for mode, percent in _CLAIMS.items()
    ),
    *(
        Comparison(profiled(kind, mode), kind, by="BrickProfiler")
        for kind, modes in ((PREFILL, [NO_SYNC]), (DECODE, [*_CLAIMS, NO_SYNC]))
        for mode in modes
    ),
)


def wait() -> None:
    """Wait like a device that has finished."""
    until = time.perf_counter_ns() + WAIT_NS
    while time.perf_counter_ns() < until:
        pass


class Hooked:
    """Runs the model's operators under a profiler: each operator is a brick, and each layer is a scope."""

    def __init__(self, profiler: brick.BrickProfiler) -> None:
        self._profiler = profiler
        self._layer = -1
        self._scope: Any = None

    def operate(self, place: OperatorCall, compute: Callable[..., Array], inputs: tuple[Array, ...]) -> Array:
        """Run one operator."""
        if place.layer != self._layer:
            self._enter(place.layer)
        timer = self._profiler.start(place.kernel)
        out = compute(*inputs)
        self._profiler.stop(timer, inputs[0].size)
        return out

    def over(self) -> None:
        """End the pass."""
        self._enter(-1)
        self._profiler.finalize()

    def _enter(self, layer: int) -> None:
        if self._scope is not None:
            self._scope.__exit__(None, None, None)
        self._layer, self._scope = layer, None
        if layer >= 0:
            self._scope = self._profiler.layer(layer)
            self._scope.__enter__()


def cases() -> list[Case]:
    """Return the cases: passes without a profiler, and passes in each mode."""
    weights = drawn(SIZE, seed=1)
    made = []
    for kind, rows_ in ROWS.items():
        made.append(_case(kind, Model(SIZE, weights), rows_, None))
        for mode in (*_CLAIMS, NO_SYNC):
            profiler = brick.BrickProfiler.enabled()
            if mode != NO_SYNC:
                profiler.set_sync_mode("None" if mode == "Off" else mode, sync=wait)
            hooked = Hooked(profiler)
            made.append(_case(profiled(kind, mode), Model(SIZE, weights, hooked.operate), rows_, hooked))
    return made


def _case(name: str, model: Model, rows_: int, hooked: Hooked | None) -> Case:
    cache = RequestCache(SIZE)
    tokens = cache.tokens[:rows_] + 7

    def forward() -> None:
        cache.length = _CONTEXT
        model.forward(tokens, cache, 0)
        if hooked is not None:
            hooked.over()

    return Case(name, "forward()", {"forward": forward}, batch_max=8)


def main() -> None:
    """Measure, and print the rows as JSON."""
    rounds, turn = int(sys.argv[1]), int(sys.argv[2])
    cpu = pin(turn)
    times = measure(cases(), rounds, seed=turn)
    print(json.dumps(rows(times, COMPARISONS, turn, cpu, times.refused)))


if __name__ == "__main__":
    main()
