"""brickd's writer as an engine in C uses it, without Python. It is measured like the other tools in C.

This writer has its own segment and its own prefix, apart from the writer inside brick_agent.
"""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.method import Case
from benchmarks.peers import needs
from brickd.shm import _reader

BY = "brickd"
PAIR = "brick_begin(); brick_end() in C"
HOW = {PAIR: "a separate segment"}
_AGENT = Path(__file__).resolve().parents[3] / "agent"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fvisibility=hidden", "-fPIC", "-shared", "-pthread")


def cases(folder: Path) -> list[Case]:
    gcc = needs.tool("gcc", "Debian: gcc")
    sources = (Path(__file__).with_name("writer.c"), *sorted((_AGENT / "src").glob("[wf]*/*.c")))
    include = f"-I{_AGENT / 'include'}"
    native = needs.library(folder / "libwriter.so", (gcc, *_FLAGS, include, *sources))
    segment = native.open_segment(f"{os.environ['BRICKD_SHM_PREFIX']}c-".encode())
    if segment < 0:
        raise RuntimeError("no segment could be opened: see the line that the writer wrote")

    def recorded() -> int:
        return sum(line["summarized"] for _, line, _ in _reader.SegmentCopier(segment).lanes())

    return [Case(PAIR, native=needs.loop(native.batch), recorded=recorded)]
