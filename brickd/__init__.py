"""brickd: a profiler for multi-process inference servers. It reads what they record from shared memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os

    from brickd.divergence import Divergence
    from brickd.profile import Profile


def live() -> Profile:
    """Return the live workers of this machine.

    This needs no daemon. Without one, the methods read the shared memory of the workers, as the commands do.

    >>> import brickd
    >>> brickd.live().bricks(top=3).columns[:5]
    ('name', 'category', 'count', 'total_ns', 'self_ns')
    """
    from brickd.profile import Profile

    return Profile()


def open(recording: str | os.PathLike[str], *more: str | os.PathLike[str]) -> Profile:
    """Return the workers of a recording, from its file or from several of its files.

    A recording that is still being written can be opened; it shows what has been written so far.

    >>> import brickd
    >>> brickd.open("none.brick")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    brickd.errors.RecordingRefused: none.brick: cannot be opened: No such file or directory (...)

    Args:
        recording: a file of the recording.
        more: its other files, in any order.

    Raises:
        brickd.errors.RecordingRefused: a file is not a recording.
        brickd.errors.NotPermitted: this user may not read a file.
    """
    from brickd.profile import Profile

    return Profile.of_recording((recording, *more))


def diff(
    *names: str,
    by: str | None = None,
    step: int | str | None = None,
    since: float | None = None,
    rtol: float | None = None,
) -> Divergence:
    """Compare the numbers of two or more workers, as `brickd diff` does.

    Args:
        names: the names of workers and services; a worker of a recording is written as `"base.brick:api/0"`. The values
            of the first named worker are the expected ones.
        by: weights, input, or run (the workers did the same work). If this is None, the workers are compared by input
            or, if no output can be compared, by weights.
        step: compare only this step.
        since: compare only the records of the last `since` seconds.
        rtol: the largest accepted relative error, for a comparison by run.

    Raises:
        brickd.errors.NothingComparable: the workers have nothing in common to compare.
        brickd.errors.BrickdError: the workers cannot be compared for another reason.
    """
    from brickd.divergence import found

    return found(names, by=by, step=step, since=since, rtol=rtol)
