"""Children of multiprocessing end their segments when they exit.

They exit by os._exit, which runs no atexit handlers: without this module, each would look killed. multiprocessing
accepts an exit handler only in the child, and a start handler only in the parent. So the start handler sets the exit
handler.
"""

import os
import sys

from brick_agent._core import shutdown


def _begin(_: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, shutdown, exitpriority=-100)


def _arrange() -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # None: multiprocessing did not fork this process
        util.register_after_fork(_begin, _begin)


os.register_at_fork(after_in_child=_arrange)
_arrange()
_process = sys.modules.get("multiprocessing.process")
if _process is not None and _process.parent_process() is not None:  # imported by a running child
    _begin(None)
