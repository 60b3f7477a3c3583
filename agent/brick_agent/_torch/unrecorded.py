"""Reports at the end of a process under `brickd run` that it recorded nothing, and the likely reason.

Owns: when a process reports this, the names of other libraries that run models. Must not know: how a model is found.
Invariants: a process that recorded anything prints nothing; a library counts only if the host itself imported it; a
process that started other processes does not report a program without models, because the others may have recorded a
model; an error has no effect.
"""

from __future__ import annotations

import os
import sys

from brick_agent._core import _recorded

RUN = "_BRICKD_RUN"  # the variable with the pid of the process that `brickd run` became
_OTHERS = ("jax", "tensorflow", "onnxruntime", "mlx", "tensorrt", "openvino", "paddle", "ctranslate2", "llama_cpp")
_NEXT = 'name its parts: with brick_agent.span("NAME"):'


def report() -> None:
    """Print at most one line on stderr."""
    try:
        if (text := _why_nothing()) is not None:
            sys.stderr.write(f"brickd run: nothing was recorded in process {os.getpid()}: {text}\n")
    except Exception:
        pass


def _why_nothing() -> str | None:
    """Return the reason; None if something was recorded, recording was turned off, or no reason is certain."""
    if _recorded():
        return None
    if others := [name for name in _OTHERS if name in sys.modules]:
        return f"it loaded {', '.join(others)}, but only models of torch are timed without a change; {_NEXT}"
    if os.environ.get(RUN) != str(os.getpid()) or _started_others():
        return None
    if "torch" in sys.modules:
        return "it called no torch model with parts and parameters; call brick_agent.instrument(model)"
    return f"it did not import torch, but only models of torch are timed without a change; {_NEXT}"


def _started_others() -> bool:
    """Whether this process has children, or has waited for any."""
    import resource

    if resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss:
        return True
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children", "rb") as file:
            if file.read(1):
                return True
    return False
