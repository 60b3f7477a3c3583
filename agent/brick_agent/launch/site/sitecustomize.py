"""What Python imports as it begins, below `brickd run`: brick_agent is told, and then what was there before goes on.

Owns: nothing but this order. Must not know: what brick_agent does. Invariants: without BRICKD=1 nothing happens here;
whatever goes wrong here, the host begins as it would have; what it finds under the name is its own sitecustomize.
"""

import os
import sys


def _begin() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [each for each in sys.path if os.path.abspath(each) != folder]
    if os.environ.get("BRICKD") == "1":
        try:
            from brick_agent import _hooks
        except ImportError as error:
            if os.environ.get("_BRICKD_TOLD") != "told":
                os.environ["_BRICKD_TOLD"] = "told"  # once, for the whole family
                sys.stderr.write(
                    f"brickd run: {sys.executable} has no brick_agent ({error}): "
                    f"not recorded. Install it: {sys.executable} -m pip install brick-agent\n"
                )
        else:
            _hooks.begin()


try:
    _begin()
except Exception as error:
    sys.stderr.write(f"brickd run: {error!r}\n")
_ours = sys.modules.pop(__name__)
try:
    import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
except ImportError as error:
    sys.modules.setdefault(__name__, _ours)  # whoever imports it looks for it there
    if error.name != "sitecustomize":
        raise
