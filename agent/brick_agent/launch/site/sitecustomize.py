"""What Python imports as it begins, below `brickd run`: brick_agent is told, and then what was there before goes on.

Owns: nothing but this order. Must not know: what brick_agent does. Invariants: without BRICKD=1 nothing happens here;
whatever goes wrong here, the host begins as it would have; what it finds under the name is its own sitecustomize. Any
Python 3 of a command's may read it, also one that is older than those that brick_agent knows.
"""

import os
import sys


def _begin() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != folder]
    # Where one of both distributions begins the other, each has its folder here.
    if os.environ.get("BRICKD") != "1" or "brick_agent._torch.autoload" in sys.modules:
        return
    try:
        from brick_agent._torch import autoload
    except ImportError as error:
        if os.environ.get("_BRICKD_TOLD") != "told":
            os.environ["_BRICKD_TOLD"] = "told"  # once, for the whole family
            fix = "it wants Python 3.11 or later"
            if sys.version_info >= (3, 11):  # noqa: UP036  (the command's Python, not ours)
                fix = f"install it: {sys.executable} -m pip install brick-agent"
            _say(f"{sys.executable} has no brick_agent ({error}), and nothing of it is recorded: {fix}")
    else:
        autoload.begin()


def _say(what: str) -> None:
    # Where it is closed or full, what is raised would end the interpreter; and contextlib is not the host's yet.
    try:  # noqa: SIM105
        sys.stderr.write(f"brickd run: {what}\n")
    except Exception:
        pass


try:
    _begin()
except Exception as error:
    _say(repr(error))
_ours = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    sys.modules.setdefault(__name__, _ours)  # whoever imports it looks for it there
    if error.name != "sitecustomize":
        raise
