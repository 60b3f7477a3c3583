"""Instruments the first torch model that the process calls, under `brickd run`.

Owns: when a model is instrumented. Must not know: how a model is instrumented, how the process was started. Invariants:
this module does nothing before the host imports torch, and opens no segment before the host calls a model; an error is
logged once and has no other effect; after a model is found, calls of modules do not pass through here.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import weakref

TYPE_CHECKING = False
if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from typing import Any


def begin() -> None:
    """Wait for torch. At the end of the process, print a line if nothing was recorded."""
    from brick_agent._torch import unrecorded

    unrecorded.begin()
    atexit.register(unrecorded.report)
    if "torch" in sys.modules:
        _arm()
    else:
        sys.meta_path.insert(0, _Finder())


class _Finder:
    """An import finder that waits for torch, and delegates to the other finders.

    If a host only checks whether torch exists, the finder answers and continues to wait.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the spec that the other finders find."""
        if name != "torch":
            return None
        others = (getattr(each, "find_spec", None) for each in sys.meta_path if each is not self)
        specs = (find(name, path, target) for find in others if find is not None)
        spec: ModuleSpec | None = next((each for each in specs if each is not None), None)
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
    """Hook the next call of any module."""
    try:
        _Armed(sys.modules["torch"])
    except Exception as error:
        _complain("torch is not hooked", error)


class _Armed:
    """A hook of torch that waits for a model, and a temporary replacement of torch's `compile`.

    torch runs no hooks for a module that is compiled completely. Until a model is found, calls of such modules are
    wrapped.
    """

    def __init__(self, torch: Any) -> None:
        self._kind, self._compiling = torch.nn.Module, torch.compiler.is_compiling
        self._compile = self._kind.compile
        self._followed: weakref.WeakSet[Any] = weakref.WeakSet()

        # These are plain functions, because torch can look into plain functions when it compiles. It then sees that
        # they do nothing in compiled code, and leaves them out.
        def called(module: Any, _: Any) -> None:
            if not self._compiling():
                self._found(module)

        def compile_followed(module: Any, *args: Any, **keywords: Any) -> None:
            self._compile(module, *args, **keywords)
            self._follow(module)

        self._compile_followed = functools.wraps(self._compile)(compile_followed)
        self._kind.compile = self._compile_followed
        # Only the thread that succeeds in removing the hook instruments the model.
        self._hooks = [torch.nn.modules.module.register_module_forward_pre_hook(called)]

    def _follow(self, module: Any) -> None:
        compiled, compiling = vars(module).get("_compiled_call_impl"), self._compiling
        if not self._hooks or compiled is None:
            return
        this = weakref.ref(module)

        def first(*args: Any, **keywords: Any) -> Any:
            module = this()
            if compiling() or module is None or not self._found(module):
                return compiled(*args, **keywords)
            return module._compiled_call_impl(*args, **keywords)

        first.__wrapped__ = compiled  # type: ignore[attr-defined]
        vars(module)["_compiled_call_impl"] = first
        self._followed.add(module)

    def _found(self, module: Any) -> bool:
        """Return whether a module is a model; if so, remove the hooks and instrument it."""
        try:
            if not self._hooks or not _is_model(module):
                return False
            self._hooks.pop().remove()
            if self._kind.compile is self._compile_followed:
                self._kind.compile = self._compile
            for each in list(self._followed):
                first = vars(each).get("_compiled_call_impl")
                if getattr(first, "__module__", None) == __name__:
                    vars(each)["_compiled_call_impl"] = first.__wrapped__
            from brick_agent._torch.instrument import instrument

            _name()
            instrument(_outermost(module, self._kind))
            _end_in_order()
        except IndexError:  # another thread has removed the hook
            return False
        except Exception as error:
            _complain("a model is not instrumented", error)
        return True


def _complain(what: str, error: Exception) -> None:
    sys.stderr.write(f"brickd: {what}, so it is not recorded: {error!r}\n")


def _is_model(module: Any) -> bool:
    """Whether a module is more than an operator, because it has parts and parameters."""
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _outermost(module: Any, kind: Any) -> Any:
    """Return the outermost model that contains a module.

    If a host calls the `forward` of this model directly, only the hooks of the modules inside it run.
    """
    frame, model = sys._getframe().f_back, module
    while frame is not None:
        above = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        if isinstance(above, kind) and above is not model and any(each is model for each in above.modules()):
            model = above
        frame = frame.f_back
    return model


def _name() -> None:
    """Unless the host has named the worker, use as its number the rank that a launcher gives to each process.

    A rank from a scheduler of jobs is not used, because all processes of a server have the same one.
    """
    from brick_agent._core import _segment_name, init

    if _segment_name():
        return
    rank = os.environ.get("RANK", "") if "LOCAL_RANK" in os.environ else ""
    init(worker=rank if rank.isdecimal() and "BRICKD_WORKER" not in os.environ else None)


def _end_in_order() -> None:
    """End recording before a process kills itself with a signal, as a stopped server does.

    Python then runs no exit handlers, so a regular end would look as if the process had been killed.
    """
    import signal

    from brick_agent._core import shutdown

    plain, ends = signal.raise_signal, (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

    @functools.wraps(plain)
    def raise_signal(number: int, /) -> None:
        if number in ends and signal.getsignal(number) is signal.SIG_DFL:
            shutdown()
        plain(number)

    signal.raise_signal = raise_signal
