"""What a process does by itself that was begun by `brickd run`: the first torch model that it calls is instrumented.

Owns: when that is. Must not know: how a model is instrumented, how the process was begun. Invariants: nothing is done
before the host imports torch, and nothing is opened before it calls a model; what goes wrong is said once and changes
nothing; once a model is found no call of a module goes through here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any


def begin() -> None:
    """Wait for torch."""
    if "torch" in sys.modules:
        _arm()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """Finds nothing by itself: it has what is found told us when it has been imported.

    Who only asks whether there is a torch is answered, and it goes on.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """As of all finders."""
        if name != "torch":
            return None
        others = (getattr(each, "find_spec", None) for each in sys.meta_path if each is not self)
        found = (find(name, path, target) for find in others if find is not None)
        spec: ModuleSpec | None = next((each for each in found if each is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            self._follow(spec.loader)
        return spec

    def _follow(self, loader: Any) -> None:
        plain = loader.exec_module

        def exec_module(module: Any) -> None:
            del loader.exec_module
            plain(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _arm()

        loader.exec_module = exec_module


def _arm() -> None:
    """Have torch tell the next call of a module that none is around."""
    try:
        torch = sys.modules["torch"]
        hook: Any = None

        def called(module: Any, _: Any) -> None:
            nonlocal hook
            if torch.compiler.is_compiling() or hook is None or not _is_model(module):
                return
            hook.remove()
            hook = None
            from brick_agent._instrument import instrument

            _name()
            instrument(module)

        hook = torch.nn.modules.module.register_module_forward_pre_hook(called)
    except Exception as error:
        sys.stderr.write(f"brickd: torch is not hooked, and its models are not recorded: {error!r}\n")


def _is_model(module: Any) -> bool:
    """Whether it is more than an operator: it has parts, and parameters."""
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _name() -> None:
    """A rank that a launcher of several gives is the worker's number."""
    from brick_agent._core import init

    rank = os.environ.get("RANK", "")
    init(worker=rank if rank.isdecimal() and "BRICKD_WORKER" not in os.environ else None)
