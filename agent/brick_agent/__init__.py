"""Time what an inference worker does, into shared memory, for tens of nanoseconds a span.

    import brick_agent as brick

    rms = brick.brick("rms_norm", category="norm")
    with rms:
        ...
    with rms(elements=4096):
        ...
    with brick.span("prefill", step=17), brick.layer(3):
        ...

Nothing here ever raises, blocks or starts a thread on account of recording; what cannot be
recorded is counted, and `brickd inspect` shows it. The segment opens at init() or at the
first span, never at import.
"""

from brick_agent._core import Brick, Layer, Span, brick, disable, enable, init, layer, shutdown, span

__all__ = ["Brick", "Layer", "Span", "brick", "disable", "enable", "init", "layer", "shutdown", "span"]
