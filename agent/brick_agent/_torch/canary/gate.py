"""Counts the calls of a model that are in flight, without a lock.

Owns: which modules are counted, the settings of the last call. Must not know: what is done in a gap between calls.
Invariants: a call waits for nothing and never fails because of its count; a call is counted before it begins, until it
has ended or raised; the settings of two calls are never the same object; no model is kept alive.
"""

from __future__ import annotations

import os
import sys
import time
import weakref
from collections import deque

from brick_agent._torch.call_wrappers import unwrap, wrap
from brick_agent._torch.module_selection import around_layers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_gates: weakref.WeakKeyDictionary[Any, Gate] = weakref.WeakKeyDictionary()  # by module; a model has one gate


class Settings:
    """The modes of torch in which a call computes. They belong to the thread that makes the call."""

    __slots__ = ("autocast", "grad", "inference")

    def __init__(self) -> None:
        torch = sys.modules["torch"]
        self.inference = torch.is_inference_mode_enabled()
        self.grad = torch.is_grad_enabled()
        self.autocast = torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None

    def __str__(self) -> str:
        return f"autocast {self.autocast}, {'inference mode' if self.inference else f'gradients {self.grad}'}"


def _settings() -> Settings | None:
    try:
        return Settings()
    except Exception:  # a version of torch without one of the modes
        return None


class Gate:
    """The calls of one model that are in flight."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self.calls: deque[None] = deque()  # an element for each call in flight; append and pop are atomic
        self.last: Settings | None = None  # of the call that began last; None: unknown
        self.ended = 0.0  # when a call ended last
        self.is_closed = False

    def around(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        """Count each call of a function."""
        calls = self.calls

        def counted(*args: Any, **keywords: Any) -> Any:
            calls.append(None)
            try:
                self.last = _settings()
                return plain(*args, **keywords)
            finally:
                self.ended = time.monotonic()
                calls.pop()

        return counted


def gate_of(model: Any) -> Gate:
    """Return the gate of a model; if it has none in this process, count its calls from now on."""
    known = _gates.get(model)
    if known is not None and known.process == os.getpid():
        return known
    gate = Gate()
    for module in {model, *around_layers(model)}:
        _gates[module] = gate
        wrap(module, gate.around, None)
    return gate


def close_gates(model: Any) -> None:
    """Remove all wrappers of a model, and with them its gate."""
    for module in list(model.modules()) if hasattr(model, "modules") else ():
        unwrap(module)
        gate = _gates.pop(module, None)
        if gate is not None:
            gate.is_closed = True


def reopen_gates(model: Any) -> None:
    """Count the calls again, after all wrappers of a model were replaced."""
    for module in list(model.modules()) if hasattr(model, "modules") else ():
        gate = _gates.get(module)
        if gate is not None:
            wrap(module, gate.around, None)
