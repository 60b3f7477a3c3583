"""Starts Python under `brickd run`: imports brick_agent, then the host's sitecustomize.

Owns: the order of these two imports. Must not know: the work of brick_agent. Invariants: without BRICKD=1 this file
does nothing; the host starts even if a step here fails; the host's sitecustomize keeps its name. Any Python 3 may run
this file, even a version that is too old for brick_agent.
"""

import os
import sys


def _begin() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != folder]
    # If the command of one distribution starts the command of the other, both folders are in sys.path.
    if os.environ.get("BRICKD") != "1" or "brick_agent._torch.autoload" in sys.modules:
        return
    try:
        from brick_agent._torch import autoload
    except ImportError as error:
        if os.environ.get("_BRICKD_TOLD") != "told":
            os.environ["_BRICKD_TOLD"] = "told"  # print the message only once for this process and its descendants
            fix = "it requires Python 3.11 or later"
            if sys.version_info >= (3, 11):  # noqa: UP036  (this is the command's Python, not ours)
                fix = f"install it: {sys.executable} -m pip install brick-agent"
            _log(f"{sys.executable} has no brick_agent ({error}), so nothing is recorded: {fix}")
    else:
        autoload.begin()


def _log(text: str) -> None:
    # A closed or full stream must not end the interpreter. The host has not imported contextlib.
    try:  # noqa: SIM105
        sys.stderr.write(f"brickd run: {text}\n")
    except Exception:
        pass


try:
    _begin()
except Exception as error:
    _log(repr(error))
_ours = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    sys.modules.setdefault(__name__, _ours)  # the import system expects this module in sys.modules
    if error.name != "sitecustomize":
        raise
