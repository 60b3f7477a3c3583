"""The errors that end a verb, and the exit codes of `brickd`.

Owns: the one tree of exceptions, the one list of exit codes. Must not know: click, or who raises and who prints.
Invariants: every error's text is one whole message (what is wrong, the value seen, the value wanted), not yet escaped;
an error never exits 0 or 1. `Exit.DIFFERS` is an answer, not an error: a verb that found a difference or something
unhealthy prints its result and returns it.
"""

# The names say what is wrong; "Error" behind each would add nothing.
# ruff: noqa: N818

from enum import IntEnum
from typing import ClassVar

from brickd.base.locks import process


class Exit(IntEnum):
    """What a script learns from `$?`."""

    OK = 0
    DIFFERS = 1
    TROUBLE = 2
    NO_DAEMON = 3
    NO_WORKER = 4
    NOT_PERMITTED = 5
    NOT_COMPARABLE = 6


class BrickdError(Exception):
    """An error that the person at the terminal can understand and act on."""

    exit_code: ClassVar[Exit] = Exit.TROUBLE
    kind: ClassVar[str] = "trouble"  # what a program is told of it


class NoDaemon(BrickdError):
    """The verb needs a daemon and none answers."""

    exit_code = Exit.NO_DAEMON
    kind = "no_daemon"


class WrongQuestion(BrickdError):
    """A parameter or a value that a question does not have."""

    kind = "wrong_question"


class NoSuchWorker(BrickdError):
    """A name that no worker, service or segment here has."""

    exit_code = Exit.NO_WORKER
    kind = "no_such_worker"


class NoSuchProblem(BrickdError):
    """An id that no problem here has."""

    exit_code = Exit.NO_WORKER
    kind = "no_such_problem"


class NoSuchSource(BrickdError):
    """A source of which no text is known here."""

    exit_code = Exit.NO_WORKER
    kind = "no_such_source"


class NotPermitted(BrickdError):
    """The thing is there, but belongs to someone else."""

    exit_code = Exit.NOT_PERMITTED
    kind = "not_permitted"


class NothingComparable(BrickdError):
    """Two sides were given and have nothing in common to compare."""

    exit_code = Exit.NOT_COMPARABLE
    kind = "nothing_comparable"


class CheckpointRefused(BrickdError):
    """A checkpoint that cannot be read: damaged, or of a later brickd."""


class CheckpointTooNew(CheckpointRefused):
    """A checkpoint that a later brickd wrote and can read."""


class PeaksRefused(BrickdError):
    """A damaged file of peaks: nothing in it is used."""


class DaemonRefused(BrickdError):
    """A daemon that may not start: another one runs, or drains these segments."""


class DaemonEnds(BrickdError):
    """A daemon that is asked to end: it begins no long work any more."""


class _FileRefused(BrickdError):
    """A file that is not used; `reason`: what was seen and what was expected."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class RecordingRefused(_FileRefused):
    """A file that is no recording, or of a form that this brickd does not read."""

    kind = "recording_refused"


class SegmentRefused(_FileRefused):
    """A segment with an invalid structure: nothing in it is used."""

    kind = "segment_refused"


class SegmentUndrained(SegmentRefused):
    """A valid segment that is not drained now, and is tried again."""


class NoDescriptor(SegmentUndrained):
    """A segment that cannot be opened now: this process is at its limit of open files."""


class SegmentConsumed(SegmentUndrained):
    """A segment that another process drains; `pid`: in our pid namespace, 0: in another one."""

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, f"{process(pid)} drains it")
        self.pid = pid


class SegmentOverBudget(SegmentRefused):
    """A valid segment that costs too much to read."""


class SegmentUnopened(SegmentRefused):
    """A FIFO, a folder or a link with a segment's name."""


class SegmentUnrecorded(SegmentRefused):
    """A segment that is not removed, because no record of it can be written."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no record of it can be written")


class SegmentCopy(SegmentRefused):
    """A segment with the uuid of another one, which is the worker's own.

    Attributes:
        original: the other one's device and inode. Once it has no name any more, this segment is judged again.
    """

    def __init__(self, path: str, name: str, original: tuple[int, int]) -> None:
        super().__init__(path, f"is a copy of {name}: both have the same uuid")
        self.original = original


class SegmentUnpublished(SegmentRefused):
    """A segment whose worker is starting, or died while it did."""
