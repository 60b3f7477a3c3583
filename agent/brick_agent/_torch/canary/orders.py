"""Runs the canaries that the daemon orders, and sends their results.

Owns: the thread that looks for orders, the form of a result. Must not know: how a canary runs. Invariants: there is at
most one such thread in a process; an order that came before the thread is not run; each other order is answered, first
with `running`, then with the result; a result that cannot be sent is counted as dropped; nothing is raised into the
host.
"""

from __future__ import annotations

import os
import threading
import time

from brick_agent._core import _canary_order, _send_canary
from brick_agent._torch.canary.definition import definition_of
from brick_agent._torch.canary.refusal import RefusalError
from brick_agent._torch.canary.result import CanaryResult

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Run = Callable[[str, Sequence[int], Sequence[int], int], CanaryResult]

RESULT_MAX = 1 << 16
_LOOK_S = 0.5  # how often the word of the daemon is read
_SEND_AGAIN_S = 0.05
_SEND_S = 60.0  # how long a result waits for room
_ORDER = (1 << 32) - 1
_watchers: list[OrderWatcher] = []  # only the last one looks for orders


def obey_orders(run: Run, is_over: Callable[[], bool]) -> None:
    """Run the canaries that the daemon orders, until `is_over`. A later call replaces an earlier one."""
    for each in _watchers:
        each.replaced.set()
    _watchers[:] = [OrderWatcher(run, is_over)]
    _watchers[0].start()


class OrderWatcher(threading.Thread):
    """The thread that looks for orders."""

    def __init__(self, run: Run, is_over: Callable[[], bool]) -> None:
        super().__init__(name="brickd canary orders", daemon=True)
        self.replaced = threading.Event()
        self._run_canary, self._is_over, self._process = run, is_over, os.getpid()
        self._seen = _canary_order()

    def run(self) -> None:
        """Look for orders, and obey them."""
        while not self.replaced.wait(_LOOK_S) and not self._is_over():
            word = _canary_order()
            if word != self._seen and word & _ORDER:
                self._obey(word >> 32, word & _ORDER)
            self._seen = word

    def _obey(self, digest: int, order: int) -> None:
        result = CanaryResult("", "refused")
        try:
            name, tokens, forced, chunk = definition_of(digest)
            self._send(order, CanaryResult(name, "running"))
            result = self._run_canary(name, tokens, forced, chunk)
        except RefusalError as error:
            result = CanaryResult("", "refused", str(error))
        except Exception as error:  # a bug of a caller must not end this thread
            result = CanaryResult("", "refused", f"raised: {type(error).__name__}")
        self._send(order, result)

    def _send(self, order: int, result: CanaryResult) -> None:
        text = _encoded(order, result)
        if len(text) > RESULT_MAX:
            text = _encoded(order, result._replace(end="refused", reason="long: the result is too long", sites=()))
        piece, until_s = 0, time.monotonic() + _SEND_S
        while (piece := _send_canary(text, piece)) >= 0:
            if time.monotonic() > until_s or self.replaced.wait(_SEND_AGAIN_S):
                _send_canary("x" * (RESULT_MAX + 1), 0)  # counts a dropped record
                return


def _encoded(order: int, result: CanaryResult) -> str:
    import json  # here, because few workers run canaries

    return json.dumps({"order": order, **result._asdict()}, separators=(",", ":"))
