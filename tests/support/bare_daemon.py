"""A daemon without an API: a program of the tests.

This daemon has the runtime directory, the loop, the checkpoint and the shutdown of `brickd up`, but no API, because a
test often kills it sooner than the API could be loaded. The daemon prints each event on a line of stdout. The optional
argument is the length of an epoch in ns.
"""

from __future__ import annotations

import os
import signal
import sys

from brickd.base.paths import runtime
from brickd.daemon.daemon import Daemon
from brickd.state.runtime_dir import Home


def _run() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with Home(runtime()) as home:
        daemon = Daemon(home, epoch_ns=int(sys.argv[1])) if len(sys.argv) > 1 else Daemon(home)
        read = 0

        def read_events() -> None:
            nonlocal read
            page = daemon.events.since(read)
            read = page.newest
            os.write(1, "".join(f"{event.kind}: {event.text}\n" for event in page.events).encode())

        read_events()
        with daemon.events.watched(read_events):
            daemon.start()
            signal.sigwait({signal.SIGTERM})
            daemon.end()


_run()
