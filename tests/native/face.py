"""The Python program of scripts/sanitize: reads while threads record, calls watched modules, and measures peaks."""

import contextlib
import gc
import mmap
import threading
import weakref

import brick_agent as brick
from brick_agent import _core

from brickd.analysis.roofline import _peaks

ROUNDS = 1000


def record(profiler: brick.BrickProfiler, number: int) -> None:
    """Do the work of a thread, again and again."""
    for turn in range(ROUNDS):
        with profiler.layer(turn % 5):
            outer = profiler.start(f"brick {number} {turn % 40}", "mine")
            profiler.stop_tile(profiler.start_tile("Micro"), turn, 2.5 * turn)
            profiler.stop(outer, turn)
        profiler.record_deferred(turn % 15, profiler.elapsed_ns() * (turn % 3), turn)
        if turn % 50 == 0:
            profiler.finalize()


def totals() -> None:
    """Read totals while four threads record and end."""
    profiler = brick.BrickProfiler.enabled()
    profiler.enable_tile_profiling()
    threads = [threading.Thread(target=record, args=(profiler, number)) for number in range(4)]
    for each in threads:
        each.start()
    while any(each.is_alive() for each in threads):
        assert profiler.summary()
        profiler.reset_tile_stats()
    profiler.finalize()
    assert sum(each.count for each in profiler.all_brick_stats()) >= 4 * ROUNDS
    profiler.reset()
    assert profiler.all_brick_stats() == []


class Module:
    """A module whose `forward` is watched."""


def watched() -> None:
    """Call a watched module with any number of arguments, with calls that raise, and after the module was deleted."""

    def forward(*args: object, **names: object) -> object:
        if names.get("fails"):
            raise KeyError
        return len(args), len(names)

    module = Module()
    of = weakref.ref(module)
    for layer in (None, 0, 3):
        for call, first in (
            (_core._watched(forward, brick.brick("w"), layer, forward, 1), 0),
            (_core._watched(forward, brick.brick("w"), layer, forward, 0, of), 1),
            (_core._watched(forward, brick.brick("r"), layer, None, 2**32 - 1, None, lambda: brick.brick("cpu")), 0),
            (_core._watched(forward, brick.brick("r"), layer, None, 2**32 - 1, of, lambda: None, 1, 2), 1),
        ):
            for many in range(12):
                assert call(*range(many)) == (many + first, 0)
                assert call(*range(many), a=1, b=2) == (many + first, 2)
                with contextlib.suppress(KeyError):
                    call(*range(many), fails=True)
            gc.collect()
    del module
    call(1)
    assert _core._step_of([b"12345678", bytearray(100), 7], 5) is not None


def peaks() -> None:
    """Use buffers of any size, valid and invalid, and multiply-adds of all kinds."""
    with mmap.mmap(-1, 1 << 16) as buffer, memoryview(buffer) as whole:
        for size in (0, 1, 255, 256, 512, 1 << 16):
            for begin in (0, 1, 64):
                with whole[begin : begin + size] as part:
                    for offset in (0, size - 256, 1 << 20):
                        with contextlib.suppress(ValueError):
                            _peaks.reads(part, offset, 0)
    for name in _peaks.sets():
        for size in (4, 8):
            _peaks.madds(name, size, 0)


totals()
watched()
peaks()
brick.shutdown()
