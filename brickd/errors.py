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
    """Something that the person at the terminal can understand and act on."""

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
    """A checkpoint that nothing can be gone on from: damaged, or of a later brickd."""


class CheckpointTooNew(CheckpointRefused):
    """A checkpoint that a later brickd wrote, and can go on from."""


class PeaksRefused(BrickdError):
    """A file of peaks that is damaged: nothing in it is believed."""


class DaemonRefused(BrickdError):
    """A daemon that may not start: another one runs, or drains these segments."""


class DaemonEnds(BrickdError):
    """A daemon that is asked to end: what takes long is not begun any more."""


class RecordingRefused(BrickdError):
    """A file that is no recording, or of a form that this brickd does not read.

    Attributes:
        path: the file.
        reason: what was seen and what was wanted.
    """

    kind = "recording_refused"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class SegmentRefused(BrickdError):
    """A segment whose bytes do not add up: nothing in it is believed.

    Attributes:
        path: the segment's file.
        reason: what was seen and what was wanted.
    """

    kind = "segment_refused"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class SegmentUndrained(SegmentRefused):
    """A segment with which nothing is wrong, but that is not drained now: it is to be tried again."""


class NoDescriptor(SegmentUndrained):
    """A segment that cannot be opened now, for this process may have no more files."""


class SegmentConsumed(SegmentUndrained):
    """A segment that another process drains.

    Attributes:
        pid: that process, as our namespace sees it; 0: not at all.
    """

    def __init__(self, path: str, pid: int) -> None:
        super().__init__(path, f"{process(pid)} drains it")
        self.pid = pid


class SegmentOverBudget(SegmentRefused):
    """A segment that adds up, and costs more than may be spent on it."""


class SegmentUnopened(SegmentRefused):
    """What has a segment's name and is no file that anybody could open as one: a FIFO, a folder, a link."""


class SegmentUnrecorded(SegmentRefused):
    """A segment that stays, since no record of it can be written."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "no record of it can be written")


class SegmentCopy(SegmentRefused):
    """A segment with the uuid of another one, which is the worker's own.

    Attributes:
        original: that one's device and inode. Once no name there is its any more, this one is judged again.
    """

    def __init__(self, path: str, name: str, original: tuple[int, int]) -> None:
        super().__init__(path, f"is a copy of {name}: both have the same uuid")
        self.original = original


class SegmentUnpublished(SegmentRefused):
    """A segment whose worker is starting, or died while it did."""
