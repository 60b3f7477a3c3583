"""Decides when a slice of a canary may run, and whether it left the worker as it was.

Owns: the gap and the share of the time in which a slice runs, what is compared around it. Must not know: what a slice
computes, threads of canaries, results. Invariants: a call of the model waits for nothing; a slice begins only while no
call is in flight, and only one slice runs at a time in a process; slices take at most `share` of the time; random state
is compared, and never set; a change is blamed on a slice only if no call could have made it.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time

from brick_agent._core import _thread_records, fingerprint
from brick_agent._torch.canary.refusal import RefusalError
from brick_agent._torch.canary.shadow import ModelValues

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from brick_agent._torch.canary.gate import Gate

    _State = tuple[ModelValues, list[Any]]

UNINSTRUMENTED = "uninstrumented: call brick.canaries again"
_POLL_S = 0.01  # a look at the gate takes a few µs
_QUIET_S = 0.1  # the host may still draw random numbers, to sample, right after a call


class CanariesOffError(Exception):
    """No canary runs any more in this worker."""


class Turns:
    """The turns of the canaries of one model."""

    one_slice = threading.Lock()  # of all models; held during a slice, never by a thread that serves

    def __init__(self, gate: Gate, model: Callable[[], Any], share: float) -> None:
        self.gate, self.model = gate, model
        self._share = share
        self._next_s = 0.0  # when the next slice may begin
        self.began_s: float | None = None  # when the slice that runs now began

    def may_begin(self) -> bool:
        """Whether a slice may begin now."""
        return time.monotonic() >= self._next_s and not self.gate.calls

    def take(self, work: Callable[[], Any], cancelled: threading.Event) -> tuple[Any, float]:
        """Do a piece of work at the next turn; return its result and how long it took."""
        while True:
            if cancelled.is_set():
                raise RefusalError("timeout", "no gap between calls")
            if self.gate.is_closed:
                raise CanariesOffError(UNINSTRUMENTED)
            if Turns.one_slice.acquire(blocking=False):  # a slice that hangs never releases it
                try:
                    if self.may_begin():
                        return self._timed(work)
                finally:
                    Turns.one_slice.release()
            cancelled.wait(_POLL_S)

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        self.began_s = began_s = time.monotonic()
        try:
            result = work()
        finally:
            took_s = time.monotonic() - began_s
            self._next_s = began_s + took_s / self._share
            self.began_s = None
        return result, took_s

    def compare_around(self, work: Callable[[], None]) -> None:
        """Do a piece of work; raise if it recorded anything, or changed anything in a quiet worker."""
        last, before = self.gate.last, self.state()
        try:
            work()
        finally:
            if _thread_records():
                raise CanariesOffError("records: the forward records spans or checksums of its own")
            after = self.state() if before is not None and self.gate.last is last else None
            # A call that began meanwhile may itself have changed something.
            if before is not None and after is not None and self.gate.last is last:
                _compare(before, after)

    def state(self) -> _State | None:
        """Return what a canary must not change; None if the worker is not quiet."""
        model = self.model()
        if model is None or self.gate.calls or time.monotonic() - self.gate.ended < _QUIET_S:
            return None
        return ModelValues(model), _random_state()


def _after_fork() -> None:
    Turns.one_slice = threading.Lock()  # the parent may have held the old one


os.register_at_fork(after_in_child=_after_fork)


def _compare(before: _State, after: _State) -> None:
    if (name := before[0].changed(after[0])) is not None:
        raise CanariesOffError(f"changed: a canary changed {name}")
    for kind, was, is_now in zip(("torch", "Python", "numpy"), before[1], after[1], strict=True):
        if was != is_now:
            raise CanariesOffError(f"random: the random state of {kind} changed during a canary")


def _random_state() -> list[Any]:
    """Return the states of torch, Python and numpy."""
    random, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
    of_torch = fingerprint(sys.modules["torch"].get_rng_state()).checksum
    of_numpy = pickle.dumps(numpy.get_state(legacy=False)) if numpy is not None else None
    return [of_torch, random.getstate() if random is not None else None, of_numpy]
