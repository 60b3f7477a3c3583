"""Workers in C that record at a given rate: compiles and starts paced.c."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from benchmarks.fleet import started
from benchmarks.peers import needs
from benchmarks.workplace import Workplace

BRICKS = 64
What = Literal["spans", "deferred"]

_AGENT = Path(__file__).resolve().parents[2] / "agent"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread")


@contextmanager
def paced(place: Workplace, workers: int, rate: int, what: What, bricks: int = BRICKS) -> Iterator[Callable[[], None]]:
    """Prepare workers that together record at a rate; yield a function that makes them begin."""
    gcc = needs.tool("gcc", "Debian: gcc")
    sources = (Path(__file__).with_suffix(".c"), *sorted((_AGENT / "src").glob("[wf]*/*.c")))
    include = f"-I{_AGENT / 'include'}"
    program = str(needs.compiled(place.folder / "paced", (gcc, *_FLAGS, include, *sources)))
    with started(place, (program, str(workers), str(rate // workers), str(bricks), what), workers) as stdin:

        def begin() -> None:
            stdin.write(b".")
            stdin.flush()

        yield begin
