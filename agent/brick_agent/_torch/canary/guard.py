"""Stops a forward before it draws a random number or writes to a tensor of the model.

Owns: which operators of torch do so. Must not know: the model's modules, canaries. Invariants: only operators of the
thread in which the guard is at work pass through it, and each of them computes as before; random state is never set.
"""

from __future__ import annotations

import functools
import sys

from brick_agent._torch.canary.refusal import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any


def guard_of(model: Any, kept: Iterable[Any]) -> Any:
    """Return a context manager that protects the tensors of a model, and further values if they are tensors.

    Its `refusal` says why an operator was stopped, also if the forward hides the exception. Its `bytes` count the
    results of all operators, without views.
    """
    kind = sys.modules["torch"].Tensor
    tensors = [*model.parameters(), *model.buffers(), *(each for each in kept if isinstance(each, kind))]
    return _guard_class()({_storage(each) for each in tensors})


def _storage(tensor: Any) -> int:
    address: int = tensor.untyped_storage().data_ptr()
    return address


@functools.cache
def _guard_class() -> Any:
    """Make the class late, because its base is one of torch's."""
    from torch.utils import _python_dispatch as dispatch

    seeded = sys.modules["torch"].Tag.nondeterministic_seeded

    class Guard(dispatch.TorchDispatchMode):  # type: ignore[misc]
        """Looks at each operator of this thread."""

        def __init__(self, protected: set[int]) -> None:
            super().__init__()
            self.protected = protected - {0}
            self.bytes = 0
            self.refusal: RefusalError | None = None

        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # otherwise, the base class would import torch's compiler, which takes more than a second

        # The base class would also set variables that other threads read.
        def __enter__(self) -> Any:
            dispatch._push_mode(self)
            return self

        def __exit__(self, *_: object) -> None:
            dispatch._pop_mode()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            if self.refusal is None and seeded in func.tags and _draws(func, args, named):
                self.refusal = RefusalError("random", f"{func} draws random numbers")
            if self.refusal is None and any(_storage(each) in self.protected for each in _written(func, args, named)):
                self.refusal = RefusalError("stateful", f"{func} writes to a tensor of the model")
            if self.refusal is not None:
                raise self.refusal
            result = func(*args, **named)
            self.bytes += _new_bytes((result,), (*args, *named.values()))
            return result

    return Guard


def _new_bytes(results: Sequence[Any], given: Iterable[Any]) -> int:
    """Return the bytes of the results that are not in the memory of what the operator was given."""
    known = {_storage(each) for each in _tensors(given)}
    return sum(each.nbytes for each in _tensors(results) if _storage(each) not in known)


def _draws(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether an operator that can draw random numbers does so in this call."""
    given = _given(func, args, named)
    off = given.get("train", given.get("training", True)) is False
    return not off and given.get("dropout_p", 1) != 0


def _given(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    every = func._schema.arguments
    defaults = {each.name: each.default_value for each in every if each.has_default_value()}
    return {**defaults, **{each.name: value for each, value in zip(every, args, strict=False)}, **named}


def _written(func: Any, args: Sequence[Any], named: Mapping[str, Any]) -> Iterator[Any]:
    """Return the tensors that an operator writes to."""
    if func._schema.is_mutable:
        written = {each.name for each in func._schema.arguments if each.alias_info and each.alias_info.is_write}
        yield from _tensors(value for name, value in _given(func, args, named).items() if name in written)


def _tensors(values: Iterable[Any]) -> Iterator[Any]:
    kind = sys.modules["torch"].Tensor
    for each in values:
        if isinstance(each, kind):
            yield each
        elif isinstance(each, (list, tuple)):
            yield from _tensors(each)
