"""Records chosen rows of a part that reads a cache, with the histories of their sequences.

Owns: which tensors of a call have the chosen rows. Must not know: how rows are chosen, caches. Invariants: an input
that the part has changed in place, as far as torch counts changes, is not recorded as its input; nothing is computed
with tensors, and no part is kept alive.
"""

from __future__ import annotations

import sys

from brick_agent._core import _chosen
from brick_agent._torch.histories import shape_here
from brick_agent._torch.history_caches import version
from brick_agent._torch.row_wise import STATEFUL, RowContext

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from brick_agent._core import Brick
    from brick_agent._torch.backend import Backend
    from brick_agent._torch.module_selection import Part


def history_site(part: Part, backend: Backend, brick: Brick, why: object, config: str | None) -> HistorySite | None:
    """Return the site of a part; None: it reads no cache (`why`: why it has no rows), or the model has no histories."""
    return HistorySite(part, backend, brick, config) if config is not None and why == STATEFUL else None


class HistorySite:
    """A part that reads a cache, for example an attention or a layer."""

    def __init__(self, part: Part, backend: Backend, brick: Brick, config: str) -> None:
        self._tensor = sys.modules["torch"].Tensor
        self._brick, self._layer, self._backend = brick, part.layer, backend
        self._context = RowContext(part, backend)
        self._params = {"config": config}

    def call(self, plain: Callable[..., Any], own: int, args: Sequence[Any], keywords: Mapping[str, Any]) -> Any:
        """Call the part, and record the chosen rows. `own`: how many arguments are the part itself."""
        given = self._given(args[own:], keywords)
        result = plain(*args, **keywords)
        self._record(given, result)
        return result

    def _given(self, args: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[Any, int | None] | None:
        try:
            given = args[0] if args else keywords.get("hidden_states")
            return (given, version(given)) if self._has_rows(given) else None
        except Exception:
            return None

    def _record(self, given: tuple[Any, int | None] | None, result: Any) -> None:
        try:
            step = _chosen()
            output = result if isinstance(result, self._tensor) else result[0]
            if step is None or isinstance(self._context(), str) or not self._has_rows(output):
                return
            backend = self._backend.of_histories()
            if backend is None:
                return
            is_unchanged = given is not None and version(given[0]) == given[1]
            step.checksum(
                self._brick,
                output,
                input=given[0] if given is not None and is_unchanged else None,
                layer=self._layer,
                backend=backend,
                params=self._params,
            )
        except Exception:
            return

    def _has_rows(self, tensor: Any) -> bool:
        """Whether a tensor has a row for each column of each sequence."""
        return isinstance(tensor, self._tensor) and tensor.dim() == 3 and tuple(tensor.shape[:2]) == shape_here()
