"""Record the spans of an inference worker into shared memory, in tens of nanoseconds each.

    import brick_agent as brick

    rms = brick.brick("rms_norm", category="norm")
    with rms:
        ...
    with rms(elements=4096):
        ...
    with brick.step(17, kind="decode", rows=32), brick.layer(3):
        ...
    brick.checksum("rope_neox", bytearray(8), input=bytearray(8))
    brick.weights({"layers.0.up.weight": bytearray(8)}, rescan_s=3600)
    id = rms.defer(elements=4096)
    brick.finalize(durations={id: 12_500})
    @brick.trace
    def tokenize(text):
        ...

Recording never raises, blocks or starts a thread; lost records are counted, and `brickd inspect` shows the counts. Only
a canary (`brick.canaries`) runs in a thread. The segment is opened by init() or by the first span, never by the import.
"""

import os
import sys

from brick_agent._core import (
    Brick,
    Fingerprint,
    History,
    Layer,
    Span,
    StepRows,
    Taken,
    brick,
    checksum,
    disable,
    enable,
    finalize,
    fingerprint,
    init,
    kernel,
    layer,
    needs,
    pending,
    rows,
    shutdown,
    span,
    step,
    take,
    transfer,
    weights,
)
from brick_agent._trace import trace

# Importing `typing` takes longer than importing all modules of the agent. So only type checkers import it, here and in
# the agent's other modules.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from brick_agent._compat.functions import detect_backend, fnv1a_f32_checksum
    from brick_agent._compat.kernel_trace.report import TraceReport
    from brick_agent._compat.kernel_trace.run import TraceRun
    from brick_agent._compat.kernel_trace.trace import KernelTrace
    from brick_agent._compat.profiler.brick_ids import BrickCategory, BrickId
    from brick_agent._compat.profiler.node import ExecutionNode, TransferDirection
    from brick_agent._compat.profiler.profiler import BrickProfiler
    from brick_agent._compat.profiler.stats import BrickBottleneck
    from brick_agent._compat.profiler.sync_modes import SyncMode
    from brick_agent._compat.profiler.tiles import TileLevel
    from brick_agent._kernel_source import source
    from brick_agent._torch.canary.result import CanaryResult, CanarySite
    from brick_agent._torch.canary.runner import Canaries, canaries
    from brick_agent._torch.instrument import instrument, uninstrument
else:
    _LATE = {
        "BrickBottleneck": "_compat.profiler.stats",
        "BrickCategory": "_compat.profiler.brick_ids",
        "BrickId": "_compat.profiler.brick_ids",
        "BrickProfiler": "_compat.profiler.profiler",
        "Canaries": "_torch.canary.runner",
        "CanaryResult": "_torch.canary.result",
        "CanarySite": "_torch.canary.result",
        "ExecutionNode": "_compat.profiler.node",
        "KernelTrace": "_compat.kernel_trace.trace",
        "SyncMode": "_compat.profiler.sync_modes",
        "TileLevel": "_compat.profiler.tiles",
        "TraceReport": "_compat.kernel_trace.report",
        "TraceRun": "_compat.kernel_trace.run",
        "TransferDirection": "_compat.profiler.node",
        "canaries": "_torch.canary.runner",
        "detect_backend": "_compat.functions",
        "fnv1a_f32_checksum": "_compat.functions",
        "instrument": "_torch.instrument",
        "source": "_kernel_source",
        "uninstrument": "_torch.instrument",
        # This name is not public, but old pickles use it.
        "BrickStats": "_compat.profiler.stats",
        "CategoryStats": "_compat.profiler.stats",
        "Source": "_kernel_source",
        "TileStats": "_compat.profiler.tiles",
        "TracePair": "_compat.kernel_trace.pair",
    }

    def __getattr__(name):
        """Import a rarely used name at its first use."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        value = globals()[name] = getattr(import_module(f"brick_agent.{_LATE[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Old pickles name these modules, which no longer exist. So this module defines every name that such a pickle looks up
# in one of these old modules.
_MOVED = (
    *("_bricks", "_instrument", "_native", "_nodes", "_profiler", "_sources", "_stats", "_tiles", "_timing"),
    *("_traces", "_traces_compared", "_traces_paired", "_traces_run"),
)
sys.modules.update((f"{__name__}.{module}", sys.modules[__name__]) for module in _MOVED)


def _end_with_process(_: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, shutdown, exitpriority=-100)


def _after_fork() -> None:
    """Make sure that a child of multiprocessing ends its segment when it exits.

    The child exits through os._exit, which runs no atexit handlers. Without this function, brickd would report the
    child as killed. An exit handler of multiprocessing can be set only in the child, and a handler of the child's start
    only in the parent. So the parent sets a start handler, and the start handler sets the exit handler.
    """
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # None if the host does not use multiprocessing
        util.register_after_fork(_end_with_process, _end_with_process)


os.register_at_fork(after_in_child=_after_fork)
_after_fork()
_process = sys.modules.get("multiprocessing.process")
# The start handler only works for later children. If this process is itself a child, set the exit handler now.
if _process is not None and _process.parent_process() is not None:
    _end_with_process(None)


def get_include() -> str:
    """Return the folder of the C headers. An extension that records spans includes brick_python.h.

    >>> import os
    >>> sorted(os.listdir(brick.get_include()))
    ['brick_agent.h', 'brick_agent.hpp', 'brick_fingerprint.h', 'brick_graph.h', 'brick_history.h', 'brick_python.h']
    """
    return os.path.join(os.path.dirname(__file__), "include")


__all__ = [
    "Brick",
    "BrickBottleneck",
    "BrickCategory",
    "BrickId",
    "BrickProfiler",
    "Canaries",
    "CanaryResult",
    "CanarySite",
    "ExecutionNode",
    "Fingerprint",
    "History",
    "KernelTrace",
    "Layer",
    "Span",
    "StepRows",
    "SyncMode",
    "Taken",
    "TileLevel",
    "TraceReport",
    "TraceRun",
    "TransferDirection",
    "brick",
    "canaries",
    "checksum",
    "detect_backend",
    "disable",
    "enable",
    "finalize",
    "fingerprint",
    "fnv1a_f32_checksum",
    "get_include",
    "init",
    "instrument",
    "kernel",
    "layer",
    "needs",
    "pending",
    "rows",
    "shutdown",
    "source",
    "span",
    "step",
    "take",
    "trace",
    "transfer",
    "uninstrument",
    "weights",
]
