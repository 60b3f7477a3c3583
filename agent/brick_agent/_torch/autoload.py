"""What a process does by itself that was begun by `brickd run`: the first torch model that it calls is instrumented.

Owns: when that is. Must not know: how a model is instrumented, how the process was begun. Invariants: nothing is done
before the host imports torch, and nothing is opened before it calls a model; what goes wrong is said once and changes
nothing; once a model is found no call of a module goes through here.
"""

from __future__ import annotations

import functools
import os
import sys
import weakref

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
        _Armed(sys.modules["torch"])
    except Exception as error:
        _complain("torch is not hooked", error)


class _Armed:
    """A hook of torch that waits for a model, and what stands for `compile` meanwhile.

    A module that is compiled as a whole is called past all hooks: until one is found each tells its own call.
    """

    def __init__(self, torch: Any) -> None:
        self._kind, self._compiling = torch.nn.Module, torch.compiler.is_compiling
        self._compile = self._kind.compile
        self._followed: weakref.WeakSet[Any] = weakref.WeakSet()

        # Functions: torch compiles what it meets of them as nothing.
        def called(module: Any, _: Any) -> None:
            if not self._compiling():
                self._found(module)

        def compile_told(module: Any, *args: Any, **keywords: Any) -> None:
            self._compile(module, *args, **keywords)
            self._follow(module)

        self._told = functools.wraps(self._compile)(compile_told)
        self._kind.compile = self._told
        # Whoever takes it is the one that has found a model, of several threads.
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
        """Whether it is the model, which is instrumented then; and nothing stands here any more."""
        try:
            if not self._hooks or not _is_model(module):
                return False
            self._hooks.pop().remove()
            if self._kind.compile is self._told:
                self._kind.compile = self._compile
            for each in list(self._followed):
                first = vars(each).get("_compiled_call_impl")
                if getattr(first, "__module__", None) == __name__:
                    vars(each)["_compiled_call_impl"] = first.__wrapped__
            from brick_agent._torch.instrument import instrument

            _name()
            instrument(_outermost(module, self._kind))
            _end_in_order()
        except IndexError:  # another thread was first
            return False
        except Exception as error:
            _complain("a model is not instrumented", error)
        return True


def _complain(what: str, error: Exception) -> None:
    sys.stderr.write(f"brickd: {what}, and nothing of it is recorded: {error!r}\n")


def _is_model(module: Any) -> bool:
    """Whether it is more than an operator: it has parts, and parameters."""
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _outermost(module: Any, kind: Any) -> Any:
    """The model that has it as a part and whose forward runs: its host called that, past all hooks."""
    frame, found = sys._getframe().f_back, module
    while frame is not None:
        above = frame.f_locals.get("self") if frame.f_code.co_name == "forward" else None
        if isinstance(above, kind) and above is not found and any(each is found for each in above.modules()):
            found = above
        frame = frame.f_back
    return found


def _name() -> None:
    """A rank that a launcher gives each of several processes is the worker's number.

    A scheduler's alone is not: each process of a server that it began has the same.
    """
    from brick_agent._core import init

    rank = os.environ.get("RANK", "") if "LOCAL_RANK" in os.environ else ""
    init(worker=rank if rank.isdecimal() and "BRICKD_WORKER" not in os.environ else None)


def _end_in_order() -> None:
    """Have recording end where a process is about to end itself by a signal, as servers do that were told to stop.

    Nothing that Python runs at its exit is run then, and what ended in order would look like what was killed.
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
