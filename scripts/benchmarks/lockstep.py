"""Workers in C that take each step together; at most one is slow. Runs lockstep.c."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.fleet import started
from benchmarks.peers import needs
from benchmarks.workplace import Workplace

WORKERS = 8
BRICKS = ("attention", "moe_gemm", "mlp", "lm_head")

_AGENT = Path(__file__).resolve().parents[2] / "agent"
_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-pthread")


@dataclass(frozen=True)
class Group:
    """One service.

    Attributes:
        service: its name.
        seed: the seed of the noise in its times.
        slow: the slow worker, its brick, and how much slower it is in percent; None if no worker is slow.
    """

    service: str
    seed: int
    slow: tuple[int, str, float] | None


@contextmanager
def lockstep(place: Workplace, group: Group) -> Iterator[Callable[[], None]]:
    """Prepare the workers of a group; yield a function that makes them begin."""
    gcc = needs.tool("gcc", "Debian: gcc")
    sources = (Path(__file__).with_suffix(".c"), *sorted((_AGENT / "src").glob("[wf]*/*.c")))
    command: tuple[str | Path, ...] = (gcc, *_FLAGS, f"-I{_AGENT / 'include'}", *sources, "-lm")
    program = str(needs.compiled(place.folder / "lockstep", command))
    worker, brick, percent = group.slow or (-1, BRICKS[0], 0.0)
    slow = (str(worker), str(BRICKS.index(brick)), str(10 * percent))
    with started(place, (program, group.service, str(WORKERS), str(group.seed), *slow), WORKERS) as stdin:

        def begin() -> None:
            stdin.write(b".")
            stdin.flush()

        yield begin
