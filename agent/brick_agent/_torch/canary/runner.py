"""Runs canaries: allows them in a model, and gives each one a thread.

Owns: the thread of a canary, how long it is waited for, why no canary runs any more. Must not know: when a slice may
run, what it computes. Invariants: a canary has a thread only while it runs; a thread that hangs is left alone, and
reported; nothing is raised into the host.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref

from brick_agent._torch.canary.gate import Gate, gate_of
from brick_agent._torch.canary.orders import obey_orders
from brick_agent._torch.canary.refusal import RefusalError, check_memory
from brick_agent._torch.canary.result import CanaryResult
from brick_agent._torch.canary.slices import CHUNK_MAX, CanarySlices
from brick_agent._torch.canary.turns import UNINSTRUMENTED, CanariesOffError, Turns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

SHARE = 0.005  # of the time
STUCK_S = 60.0
_LOOK_S = 0.01  # how often a caller looks whether its canary has ended
_EXIT_S = 1.0  # how long the end of the process waits for a slice
_REASON_MAX = 200
_of_models: weakref.WeakKeyDictionary[Any, Canaries] = weakref.WeakKeyDictionary()


def canaries(
    model: Any, /, *, share: float = SHARE, sites: int = 64, stuck_s: float = STUCK_S, orders: bool = False
) -> Canaries:
    """Allow canaries in a torch model. From now on, the model's calls in flight are counted. Never raises.

    A canary is a fixed prompt. It runs alone, in the gaps between the calls of the model, one forward (a slice) at a
    time, and gives a digest of the output of each part. Two replicas that compute equally have equal digests. The model
    that serves is only read. A canary has a thread only while it runs. A second call returns the same object; call it
    again after a fork. `uninstrument` undoes it.

    Args:
        model: a torch.nn.Module in host memory, with an embedding of token ids.
        share: the largest share of the wall time that canaries take; above 0, at most 1.
        sites: as for `instrument`.
        stuck_s: a slice that runs longer is reported as stuck.
        orders: also run the canaries that `brickd canary run` orders, in a thread that looks for them twice a second.
            Orders go to the model of the last such call.

    >>> import torch  # doctest: +SKIP
    >>> model = torch.nn.Sequential(torch.nn.Embedding(8, 4), torch.nn.Linear(4, 8)).eval()  # doctest: +SKIP
    >>> canaries = brick.canaries(model)  # doctest: +SKIP
    >>> model(torch.tensor([[1, 2]]))  # a canary uses the modes of the last call  # doctest: +SKIP
    >>> canaries.run("greeting", [1, 2, 3]).end  # doctest: +SKIP
    'done'
    """
    try:
        if not 0 < share <= 1:
            raise RefusalError("share", f"{share} is not a number above 0, and at most 1")
        gate, known = gate_of(model), _of_models.get(model)
        if known is None or known._turns.gate is not gate:
            known = _of_models[model] = Canaries(Turns(gate, weakref.ref(model), share), sites, stuck_s)
        if orders:
            known._obey_orders()
        return known
    except Exception as error:
        return Canaries(Turns(Gate(), lambda: None, SHARE), sites, stuck_s, _text(error))


class Canaries:
    """The canaries of one model. `canaries` makes it; `off` is the reason why no canary runs any more, or None.

    >>> brick.canaries("not a model").off is None
    False
    """

    __module__ = "brick_agent"  # pickles name this module, not this file

    def __init__(self, turns: Turns, sites: int, stuck_s: float, off: str | None = None) -> None:
        self.off = off
        self._turns, self._sites, self._stuck_s = turns, sites, stuck_s
        self._one = threading.Lock()  # callers of `run` wait for each other
        self._obeys = False

    def run(
        self, name: str, tokens: Iterable[int], forced: Iterable[int] = (), *, chunk: int = 1, timeout_s: float = 600
    ) -> CanaryResult:
        """Run a canary, and wait for its result. Never raises.

        Args:
            name: the name of the canary, for the result.
            tokens: the ids of the prompt.
            forced: the ids that follow the prompt; each is computed in a forward of its own, as in decode.
            chunk: how many tokens of the prompt one slice computes, from 1 to 64. 1 is the shortest slice.
            timeout_s: a canary that is not done after this time is refused.

        >>> brick.canaries("not a model").run("greeting", [1, 2, 3]).end
        'off'
        """
        if (off := self._why_off()) is not None:  # before the lock: after a fork, no thread releases it
            return CanaryResult(name, "off", off)
        with self._one:
            if (off := self._why_off()) is not None:
                return CanaryResult(name, "off", off)
            try:
                job = _Job(self._turns, name, list(tokens), list(forced), chunk, self._sites)
                result = job.wait(timeout_s, self._stuck_s)
            except Exception as error:
                return CanaryResult(name, "refused", _text(error))
            if result.end in ("off", "stuck"):
                self.off = result.reason
            return result

    def _obey_orders(self) -> None:
        if not self._obeys:
            self._obeys = True
            obey_orders(lambda name, tokens, forced, chunk: self.run(name, tokens, forced, chunk=chunk), self._is_over)

    def _is_over(self) -> bool:
        return self._turns.gate.is_closed or self._turns.model() is None

    def _why_off(self) -> str | None:
        turns = self._turns
        if self.off is None and turns.gate.process != os.getpid():
            return "fork: call brick.canaries in this process"
        if self.off is None and self._is_over():
            return UNINSTRUMENTED
        return self.off


class _Job:
    """One canary in its thread."""

    def __init__(self, turns: Turns, name: str, tokens: list[int], forced: list[int], chunk: int, sites: int) -> None:
        self._turns, self._name = turns, name
        self._given = tokens, forced, chunk, sites
        self._done, self._cancelled = threading.Event(), threading.Event()
        self._result = CanaryResult(name, "refused")
        self._spent: list[float] = []

    def wait(self, timeout_s: float, stuck_s: float) -> CanaryResult:
        """Start the thread, and wait until the canary has ended or is stuck."""
        thread = threading.Thread(target=self._run, name="brickd canary", daemon=True)
        thread.start()
        atexit.register(self._end_with_process, thread)
        until_s = time.monotonic() + timeout_s
        try:
            while not self._done.wait(_LOOK_S):
                began_s, now_s = self._turns.began_s, time.monotonic()
                if began_s is not None and now_s - began_s > stuck_s:
                    reason = f"stuck: a slice of {self._name} has run for more than {stuck_s:g} s"
                    return CanaryResult(self._name, "stuck", reason[:_REASON_MAX])
                if began_s is None and now_s > until_s:
                    return CanaryResult(self._name, "refused", f"timeout: not done after {timeout_s:g} s")
            thread.join()
            return self._result
        finally:
            self._cancelled.set()
            atexit.unregister(self._end_with_process)

    def _end_with_process(self, thread: threading.Thread) -> None:
        self._cancelled.set()
        thread.join(_EXIT_S)

    def _run(self) -> None:
        try:
            self._result = self._run_slices()
        except CanariesOffError as error:
            self._result = CanaryResult(self._name, "off", _text(error))
        except BaseException as error:  # a forward may raise anything
            self._result = CanaryResult(self._name, "refused", _text(error))
        self._done.set()

    def _run_slices(self) -> CanaryResult:
        slices = self._take(self._new_slices)
        while slices.more():
            check_memory(slices.slice_bytes)
            self._take(lambda: self._turns.compare_around(slices.run))
        sites = self._take(slices.end).sites()
        spent = len(self._spent), sum(self._spent), max(self._spent)
        return CanaryResult(self._name, "done", None, slices.input, slices.model, slices.context, sites, *spent)

    def _take(self, work: Callable[[], Any]) -> Any:
        result, took_s = self._turns.take(work, self._cancelled)
        self._spent.append(took_s)
        return result

    def _new_slices(self) -> CanarySlices:
        tokens, forced, chunk, sites = self._given
        model, settings = self._turns.model(), self._turns.gate.last
        if type(chunk) is not int or not 1 <= chunk <= CHUNK_MAX:
            raise RefusalError("chunk", f"{chunk!r:.40} is not a number from 1 to {CHUNK_MAX}")
        if model is None or settings is None:
            raise RefusalError("unserved", "the model was not called yet, so the modes of its calls are unknown")
        return CanarySlices(model, settings, tokens, forced, chunk, sites)


def _text(error: BaseException) -> str:
    known = isinstance(error, (RefusalError, CanariesOffError))
    return (str(error) if known else f"raised: {type(error).__name__}: {error}").partition("\n")[0][:_REASON_MAX]
