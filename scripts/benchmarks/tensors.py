"""The time of fingerprints of many and few floats, and of other methods: `python -m benchmarks.tensors ROUNDS TURN`.

A pass over 64 MiB takes longer than a time slice on a busy machine, so the times are processor time.
"""

from __future__ import annotations

import ctypes
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import brick_agent as brick
import numpy as np
import numpy.typing as npt

from benchmarks import numeric
from benchmarks.comparisons import Comparison
from benchmarks.goals import Goal
from benchmarks.method import Case, measure, pin
from benchmarks.peers import needs
from benchmarks.timed import rows

LARGE, SMALL, TINY = 1 << 24, 4096, 64
BYTES = 4 * LARGE
_FLOAT32 = 12  # the number of the dtype float32 in the agent's interface

VARIANTS = ("avx512", "avx2", "sse2", "generic")
READ = f"reading {BYTES >> 20} MiB"
READ_SMALL = f"reading {4 * SMALL >> 10} KiB"
CHOSEN = "fingerprint"
FNV = "FNV-1a of every byte"
NUMPY = "the same in numpy"
FEW = f"fingerprint of {SMALL:,} floats"
FEW_PYTHON = f"brick.fingerprint({SMALL:,} floats)"
FEWER = f"fingerprint of {TINY} floats"
FEWER_PYTHON = f"brick.fingerprint({TINY} floats)"
FNV_FIRST = "FNV-1a of the first 64 floats"


def by(variant: str) -> str:
    return f"fingerprint, {variant}"


COMPARISONS = (
    Comparison(READ, by("avx512"), Goal(0.45, at_least=True)),
    Comparison(READ, by("avx2"), Goal(0.30, at_least=True)),
    Comparison(READ, by("sse2")),
    Comparison(READ, by("generic")),
    Comparison(FNV, CHOSEN, Goal(10, at_least=True)),
    Comparison(NUMPY, CHOSEN, Goal(3, at_least=True)),
    Comparison(FEW, READ_SMALL),
    Comparison(FEW, FNV_FIRST),
    Comparison(FEWER, FNV_FIRST),
    Comparison(FEW_PYTHON, FEW),
    Comparison(FEWER_PYTHON, FEWER),
)
_ROOT = Path(__file__).resolve().parents[2] / "agent"
# compiles the agent's code, without warnings
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-shared", "-Wno-psabi")


def _library(folder: Path) -> ctypes.CDLL:
    sources = (Path(__file__).with_name("tensors.c"), *sorted(_ROOT.glob("src/fingerprint/*.c")))
    include = (f"-I{_ROOT}/include", f"-I{_ROOT}/src")
    command: tuple[str | Path, ...] = (needs.tool("gcc", "Debian: gcc"), *_FLAGS, *include, *sources)
    native = needs.library(folder / "libtensors.so", command)
    native.tensor_make.restype = ctypes.POINTER(ctypes.c_float)
    native.tensor_make.argtypes = (ctypes.c_uint64,)
    native.tensor_chosen.restype = ctypes.c_char_p
    native.tensor_checksum.restype = native.tensor_fingerprints.restype = ctypes.c_uint64
    return native


@dataclass
class _Right:
    """Counts the correct fingerprints."""

    count: int = 0

    def case(self, name: str, repeat: Callable[[int], int], batch_max: int = 1 << 20) -> Case:
        def run(times: int) -> None:
            self.count += repeat(times)

        return Case(name, native=run, batch_max=batch_max, recorded=lambda: self.count)


@dataclass
class _Tensor:
    """The elements of a tensor, for C and for numpy."""

    native: ctypes.CDLL
    array: npt.NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        self.array = np.ctypeslib.as_array(self.native.tensor_make(LARGE), (LARGE,))

    def checksum(self, elements: int, total: int) -> int:
        made = self.native.tensor_checksum(_FLOAT32, ctypes.c_uint64(elements), ctypes.c_uint64(total))
        return int(made)

    def repeat(self, variant: str, elements: int) -> Callable[[int], int]:
        wanted = self.checksum(elements, numeric.fingerprint(self.array[:elements])[0])
        arguments = (variant.encode(), _FLOAT32, ctypes.c_uint64(elements), ctypes.c_uint64(wanted))
        return lambda times: int(self.native.tensor_fingerprints(*arguments, ctypes.c_uint64(times)))

    def in_numpy(self) -> Callable[[int], int]:
        got = brick.fingerprint(self.array)

        def right() -> bool:
            total, sketch, stats = numeric.fingerprint(self.array)
            alike = np.allclose(sketch, got.sketch, rtol=0, atol=1e-6 * got.l2)
            return self.checksum(LARGE, total) == int(got.checksum, 16) and alike and stats["max"] == got.max

        return lambda times: sum(right() for _ in range(times))

    def loop(self, function: Any, count: int) -> Callable[[int], object]:
        return lambda times: function(ctypes.c_uint64(count), ctypes.c_uint64(times))


def cases(folder: Path) -> tuple[list[Case], dict[str, str]]:
    """Return the cases that this machine can run, and the reasons why it cannot run other cases."""
    native = _library(folder)
    tensor = _Tensor(native)
    chosen = native.tensor_chosen().decode()
    missing = {by(each): f"this processor has no {each}" for each in VARIANTS if not native.tensor_has(each.encode())}
    few, fewer = tensor.array[:SMALL], tensor.array[:TINY]
    made = [
        *(_Right().case(by(each), tensor.repeat(each, LARGE), 1) for each in VARIANTS if by(each) not in missing),
        _Right().case(CHOSEN, tensor.repeat(chosen, LARGE), 1),
        _Right().case(NUMPY, tensor.in_numpy(), 1),
        _Right().case(FEW, tensor.repeat(chosen, SMALL)),
        _Right().case(FEWER, tensor.repeat(chosen, TINY)),
        Case(READ, native=tensor.loop(native.tensor_read, BYTES), batch_max=1),
        Case(READ_SMALL, native=tensor.loop(native.tensor_read, 4 * SMALL)),
        Case(FNV, native=tensor.loop(native.tensor_fnv, BYTES), batch_max=1),
        Case(FNV_FIRST, native=tensor.loop(native.tensor_fnv, 256)),
        Case(FEW_PYTHON, "fingerprint(x)", {"fingerprint": brick.fingerprint, "x": few}),
        Case(FEWER_PYTHON, "fingerprint(x)", {"fingerprint": brick.fingerprint, "x": fewer}),
    ]
    return made, missing


def main() -> None:
    """Measure, and print the rows as JSON."""
    rounds, turn = int(sys.argv[1]), int(sys.argv[2])
    cpu = pin(turn)
    made, missing = cases(Path.cwd())
    times = measure(made, rounds, seed=turn, clock=time.thread_time_ns)
    print(json.dumps(rows(times, COMPARISONS, turn, cpu, missing | times.refused)))


if __name__ == "__main__":
    main()
