"""The errors that end a verb, and the exit codes of `brickd`.

Owns: the only tree of exceptions, the only list of exit codes. Must not know: click, what raises or prints them.
Invariants: an error's text is one complete message (what is wrong, the actual and the expected value), not yet escaped;
an error never exits with 0 or 1. `Exit.DIFFERS` is a result, not an error: a verb returns it after printing a
difference or an unhealthy condition.
"""

# The names say what is wrong; the suffix "Error" would add nothing.
# ruff: noqa: N818

from enum import IntEnum
from typing import ClassVar

from brickd.base.files import process


class Exit(IntEnum):
    """The exit codes."""

    OK = 0
    DIFFERS = 1
    TROUBLE = 2
    NO_DAEMON = 3
    NO_WORKER = 4
    NOT_PERMITTED = 5
    NOT_COMPARABLE = 6


class BrickdError(Exception):
    """An error that the user at the terminal can understand and correct."""

    exit_code: ClassVar[Exit] = Exit.TROUBLE
    kind: ClassVar[str] = "trouble"  # the error's name for programs


class NoDaemon(BrickdError):
    """The verb needs a daemon, but none answers."""

    exit_code = Exit.NO_DAEMON
    kind = "no_daemon"


class OtherVersion(BrickdError):
    """A daemon of another version, whose answer this brickd cannot use."""


class WrongQuestion(BrickdError):
    """A parameter or a value that a query does not have."""

    kind = "wrong_question"


class NoSuchWorker(BrickdError):
    """A name that no worker, service or segment has."""

    exit_code = Exit.NO_WORKER
    kind = "no_such_worker"


class NoSuchProblem(BrickdError):
    """An id that no problem has."""

    exit_code = Exit.NO_WORKER
    kind = "no_such_problem"


class NoSuchSource(BrickdError):
    """A source whose text is unknown."""

    exit_code = Exit.NO_WORKER
    kind = "no_such_source"


class NotPermitted(BrickdError):
    """The object exists, but belongs to another user."""

    exit_code = Exit.NOT_PERMITTED
    kind = "not_permitted"


class NothingComparable(BrickdError):
    """The workers to compare have no comparable records in common."""

    exit_code = Exit.NOT_COMPARABLE
    kind = "nothing_comparable"


class CheckpointRefused(BrickdError):
    """A checkpoint that cannot be read: damaged, or of a later brickd."""


class CheckpointTooNew(CheckpointRefused):
    """A checkpoint that a later brickd wrote and can read."""


class PeaksRefused(BrickdError):
    """A damaged file of peaks; none of its content is used."""


class DaemonRefused(BrickdError):
    """A daemon that cannot start: another one runs, or drains these segments."""


class DaemonEnds(BrickdError):
    """The daemon is stopping and begins no more long work."""


class _FileRefused(BrickdError):
    """A file that cannot be used; `reason`: the actual and the expected value."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class RecordingRefused(_FileRefused):
    """A file that is not a recording, or has a format that this brickd does not read."""

    kind = "recording_refused"


class SegmentRefused(_FileRefused):
    """A segment with an invalid structure; none of its content is used."""

    kind = "segment_refused"


class SegmentUndrained(SegmentRefused):
    """A valid segment that is not drained now, and is tried again later."""


class NoDescriptor(SegmentUndrained):
    """A segment that cannot be opened now: this process is at its limit of open files."""


class SegmentConsumed(SegmentUndrained):
    """A segment that another process drains; `pid`: 0 in another pid namespace."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, f"{process(pid)} drains it")
        self.pid = pid


class SegmentOverBudget(SegmentRefused):
    """A valid segment that costs too much to read."""


class SegmentUnopened(SegmentRefused):
    """A FIFO, a folder or a link with a segment's name."""


class SegmentUnrecorded(SegmentRefused):
    """A segment that is not removed, because its record cannot be written."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no record of it can be written")


class SegmentCopy(SegmentRefused):
    """A segment with the uuid of another segment, the worker's original.

    Attributes:
        original: the device and inode of the original; when that file has no name any more, the copy is judged again.
    """

    def __init__(self, path: str, name: str, original: tuple[int, int]) -> None:
        super().__init__(path, f"is a copy of {name}: both have the same uuid")
        self.original = original


class SegmentUnpublished(SegmentRefused):
    """A segment whose worker is starting, or died during the start."""
