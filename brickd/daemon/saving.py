"""Saves a daemon's state and weights, even if no file descriptor is left.

Owns: the order in which the files are written, and when unchanged weights are written again. Must not know: the formats
of the files, when the loop saves. Invariant: the saved weights are never older than the checkpoint that counts them.
"""

from __future__ import annotations

import errno
import resource
import time
from collections.abc import Callable

from brickd.analysis.weights import codec
from brickd.analysis.weights.store import Weights
from brickd.errors import DaemonRefused
from brickd.model.event_log import LogEvent
from brickd.shm.segment_files import EXHAUSTED
from brickd.state.daemon_state import Memory
from brickd.state.runtime_dir import Home

_READ_AGAIN_NS = 30_000_000_000
_STARVED_AGAIN_NS = 60_000_000_000  # the shortest time between two reports


class Saver:
    """Writes files into a daemon's directories.

    Attributes:
        close_clients: closes clients to free file descriptors, if the checkpoint or the drain needs one.
    """

    def __init__(self, home: Home, memory: Memory, weights: Weights, log_event: LogEvent) -> None:
        self._home, self._memory, self._weights, self._log_event = home, memory, weights, log_event
        self._kept, self._news, self._kept_ns = weights.changes, weights.news, 0
        self._starved_ns = -_STARVED_AGAIN_NS
        self.close_clients: Callable[[], None] = lambda: None

    def restore(self) -> None:
        """If the runtime directory was removed, create it again; raise DaemonRefused if that fails."""
        if self._home.restore(self._memory.prefix):
            self._log_event("restored", "the runtime directory was removed, and the daemon created it again")

    def keep(self, checkpoint: bytes) -> None:
        """Save the weights, then the checkpoint; raise OSError if this fails."""
        try:
            self.restore()
        except DaemonRefused as error:
            raise OSError(errno.EBUSY, str(error)) from None
        try:
            self._keep_weights()
            self._home.keep(checkpoint)
        except OSError as error:
            if error.errno in EXHAUSTED:
                self.starve()
            raise

    def starve(self) -> None:
        """Close all clients, because no file descriptor is left."""
        self.close_clients()
        now_ns = time.monotonic_ns()
        if now_ns - self._starved_ns >= _STARVED_AGAIN_NS:
            self._starved_ns = now_ns
            most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            text = f"the limit of {most:,} open files was reached: all clients were closed (raise ulimit -n)"
            self._log_event("starved", text, command="brickd doctor")

    def _keep_weights(self) -> None:
        """Save the weights before the checkpoint that counts them; drop the weights of forgotten workers."""
        self._weights.retain(self._memory.known.keys() | self._memory.gone.copy().keys())
        # If the weights were read again and had not changed, losing the file would lose only the time of the last
        # reading.
        late = self._memory.closed or time.monotonic_ns() - self._kept_ns >= _READ_AGAIN_NS
        if self._weights.news != self._news or (late and self._weights.changes != self._kept):
            self._home.keep_weights(codec.encode(self._memory.prefix, self._weights))
            self._kept, self._news = self._weights.changes, self._weights.news
            self._kept_ns = time.monotonic_ns()
