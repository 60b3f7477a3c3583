"""The errors that end a verb, and the exit codes of `brickd`.

Owns: the only tree of exceptions, the only list of exit codes. Must not know: click, what raises or prints them.
Invariants: The text of an error is one complete message (what is wrong, the actual and the expected value). It is not
escaped yet. An error never exits with 0 or 1. `Exit.DIFFERS` is a result, not an error: a verb returns it after it has
printed a difference or an unhealthy condition.
"""

# The names say what is wrong, so they do not have the suffix "Error".
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
    kind: ClassVar[str] = "trouble"  # the name of the error for programs


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


class PackageMissing(BrickdError, ImportError):
    """An optional package that a method needs, but that is not installed."""


class CheckpointRefused(BrickdError):
    """A checkpoint that cannot be read, because it is damaged or was written by a later version of brickd."""


class CheckpointTooNew(CheckpointRefused):
    """A checkpoint that only a later version of brickd can read."""


class PeaksRefused(BrickdError):
    """A damaged file of peaks; none of its content is used."""


class DaemonRefused(BrickdError):
    """A daemon that cannot start, because another daemon runs or drains these segments."""


class DaemonEnds(BrickdError):
    """The daemon is stopping and begins no more long work."""


class _FileRefused(BrickdError):
    """A file that cannot be used; `reason` has the actual and the expected value."""

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
    """A valid segment that is not drained now and is tried again later."""


class NoDescriptor(SegmentUndrained):
    """A segment that cannot be opened now, because this process is at its limit of open files."""


class SegmentConsumed(SegmentUndrained):
    """A segment that another process drains; `pid` is 0 if that process is in another pid namespace."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, f"{process(pid)} drains this segment")
        self.pid = pid


class SegmentOverBudget(SegmentRefused):
    """A valid segment that would cost too much to read."""


class SegmentUnopened(SegmentRefused):
    """A FIFO, a folder or a link that has the name of a segment."""


class SegmentUnrecorded(SegmentRefused):
    """A segment that is not removed, because its record cannot be written."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "is not removed, because no record of the removal can be written")


class SegmentCopy(SegmentRefused):
    """A segment that has the uuid of another segment, which is the worker's original.

    Attributes:
        original: the device and inode of the original. When that file has no name any more, the copy is judged again.
    """

    def __init__(self, path: str, name: str, original: tuple[int, int]) -> None:
        super().__init__(path, f"is a copy of {name}: both have the same uuid")
        self.original = original


class SegmentUnpublished(SegmentRefused):
    """A segment whose worker is starting, or died during the start."""
