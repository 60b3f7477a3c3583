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
    """Compare the numbers of two or more workers, as `brickd diff` does.

    Args:
        names: the names of workers and services; a worker of a recording is `"base.brick:api/0"`. The first name is the
            expected one.
        by: weights, input, or run (the workers did the same work). None: input, or weights if no output can be
            compared.
        step: compare only this step.
        since: compare only the records of the last `since` seconds.
        rtol: the largest accepted relative error, for a comparison by run.

    Raises:
        brickd.errors.NothingComparable: the workers have nothing in common to compare.
        brickd.errors.BrickdError: the workers cannot be compared for another reason.
    """
    from brickd.divergence import found

    return found(names, by=by, step=step, since=since, rtol=rtol)
