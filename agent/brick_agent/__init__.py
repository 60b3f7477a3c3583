"""Time what an inference worker does, into shared memory, for tens of nanoseconds a span.

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

Nothing here ever raises, blocks or starts a thread on account of recording; what cannot be
recorded is counted, and `brickd inspect` shows it. The segment opens at init() or at the
first span, never at import.
"""

from brick_agent import _children as _children
from brick_agent._core import (
    Brick,
    Fingerprint,
    Layer,
    Span,
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
    shutdown,
    span,
    step,
    take,
    transfer,
    weights,
)
from brick_agent._native import get_include
from brick_agent._trace import trace

TYPE_CHECKING = False
if TYPE_CHECKING:
    from brick_agent._bricks import BrickCategory, BrickId
    from brick_agent._instrument import instrument, uninstrument
    from brick_agent._nodes import ExecutionNode, TransferDirection
    from brick_agent._profiler import BrickProfiler
    from brick_agent._sources import source
    from brick_agent._stats import BrickBottleneck
    from brick_agent._tiles import TileLevel
    from brick_agent._timing import SyncMode
    from brick_agent._traces import KernelTrace
    from brick_agent._traces_compared import TraceReport
    from brick_agent._traces_run import TraceRun
else:
    _LATE = {
        "BrickBottleneck": "_stats",
        "BrickCategory": "_bricks",
        "BrickId": "_bricks",
        "BrickProfiler": "_profiler",
        "ExecutionNode": "_nodes",
        "KernelTrace": "_traces",
        "SyncMode": "_timing",
        "TileLevel": "_tiles",
        "TraceReport": "_traces_compared",
        "TraceRun": "_traces_run",
        "TransferDirection": "_nodes",
        "instrument": "_instrument",
        "source": "_sources",
        "uninstrument": "_instrument",
    }

    def __getattr__(name):
        """What few hosts need is imported where it is asked for."""
        if name not in _LATE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        globals()[name] = getattr(import_module(f"brick_agent.{_LATE[name]}"), name)
        return globals()[name]


__all__ = [
    "Brick",
    "BrickBottleneck",
    "BrickCategory",
    "BrickId",
    "BrickProfiler",
    "ExecutionNode",
    "Fingerprint",
    "KernelTrace",
    "Layer",
    "Span",
    "SyncMode",
    "Taken",
    "TileLevel",
    "TraceReport",
    "TraceRun",
    "TransferDirection",
    "brick",
    "checksum",
    "disable",
    "enable",
    "finalize",
    "fingerprint",
    "get_include",
    "init",
    "instrument",
    "kernel",
    "layer",
    "needs",
    "pending",
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
