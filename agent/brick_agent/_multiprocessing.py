"""Children of multiprocessing end their segments when they end.

They leave by os._exit, of which no atexit handler hears: without this each would look as if it had been killed. What is
to run at a child's end, multiprocessing takes only from the child itself; what is to run at its beginning, from whoever
forks it, so the one asks for the other.
"""

import os
import sys

from brick_agent._core import shutdown


def _begin(_: object) -> None:
    sys.modules["multiprocessing.util"].Finalize(None, shutdown, exitpriority=-100)


def _arrange() -> None:
    util = sys.modules.get("multiprocessing.util")
    if util is not None:  # else it was not multiprocessing that forked
        util.register_after_fork(_begin, _begin)


os.register_at_fork(after_in_child=_arrange)
_arrange()
_process = sys.modules.get("multiprocessing.process")
if _process is not None and _process.parent_process() is not None:  # imported by a child that has begun
    _begin(None)
