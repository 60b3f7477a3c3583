"""The cost of an instrumented module: `python -m benchmarks.wrapped ROUNDS`.

The modules of the model do nothing. The model is called plain, with empty wrappers, and instrumented. Each call gets
the next of many inputs, because the input decides whether a step is sampled.
"""

from __future__ import annotations

import itertools
import json
import sys
from typing import Any

import brick_agent
import torch

from benchmarks.method import Case, measure, pin
from benchmarks.served import wrap

MODULES = 64
_INPUTS = 1024


class _Nothing(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x


class _Model(torch.nn.Module):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(_Nothing() for _ in range(MODULES))

    def forward(self, x: Any) -> Any:
        for each in self.layers:
            x = each(x)
        return x


def main() -> None:
    """Measure, and print nanoseconds per module as JSON."""
    pin(0)
    torch.set_num_threads(1)
    models = {name: _Model().eval() for name in ("plain", "wrapped", "instrumented")}
    for each in models["wrapped"].layers:
        wrap(each)
    brick_agent.instrument(models["instrumented"], only="layers.*", sites=MODULES, watch_weights=False)
    inputs = itertools.cycle([torch.full((256,), float(n)) for n in range(_INPUTS)])
    cases = [
        Case(name, "model(next(inputs))", {"model": each, "inputs": inputs}, batch_max=64)
        for name, each in models.items()
    ]
    with torch.inference_mode():
        times = measure(cases, int(sys.argv[1]), seed=1)
    found = {
        name: {
            "min": (times.least(name) - times.least("plain")) / MODULES,
            "median": (times.median(name) - times.median("plain")) / MODULES,
        }
        for name in ("wrapped", "instrumented")
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
