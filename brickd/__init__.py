"""brickd: a profiler for multi-process inference servers, read from shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from brickd.divergence import Divergence


def diff(
    *names: str,
    by: str | None = None,
    step: int | str | None = None,
    since: float | None = None,
    rtol: float | None = None,
) -> Divergence:
    """Compare the numbers of two workers or more, as `brickd diff` does.

    Args:
        names: of workers and services; `"base.brick:api/0"` is one of a recording. What is named first is expected.
        by: weights, input, or run (they did the same work); None: input, or weights where no output can be compared.
        step: this one alone.
        since: only what was recorded in the last so many seconds.
        rtol: by run, up to which relative error two are within tolerance.

    Raises:
        brickd.errors.NothingComparable: nothing of one stands beside anything of another.
        brickd.errors.BrickdError: whatever else keeps them from being compared.
    """
    from brickd.divergence import found

    return found(names, by=by, step=step, since=since, rtol=rtol)
