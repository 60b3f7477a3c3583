"""How the older Rust profiler, from which brickd grew, records a span. Its code is rebuilt in seed.rs."""

from __future__ import annotations

import ctypes
from pathlib import Path

from benchmarks.method import Case
from benchmarks.peers import needs

BY = "the predecessor's design"
PAIR = "start_brick(); stop_brick() in Rust"
HOW = {PAIR: "a profiler per thread, CLOCK_MONOTONIC"}
_SOURCE = Path(__file__).with_name("seed.rs")


def cases(folder: Path) -> list[Case]:
    rustc = needs.tool("rustc")
    rust = needs.library(folder / "libseed.so", (rustc, "-O", "--crate-type", "cdylib", _SOURCE))
    rust.recorded.restype = ctypes.c_uint64
    return [Case(PAIR, native=needs.loop(rust.batch), recorded=rust.recorded)]
