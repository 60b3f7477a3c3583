"""What workers' weights are, in a file of the daemon's own.

Owns: what the file says beside them: whose it is, and that it is whole. Must not know: where it lies, when it is
written. Invariant: what is read is what was written, or is refused with the reason.
"""

from __future__ import annotations

from brickd.composed import plain
from brickd.errors import CheckpointRefused
from brickd.framed import framed, unframed
from brickd.numerics import form
from brickd.numerics.weights import Weights
from brickd.valid import parsed, text, validating

VERSION = 1
_KIND = "weights file"
_END = b"\n"  # of the prefix, in JSON


def encode(prefix: str, weights: Weights) -> bytes:
    """The file's content; for the thread that takes.

    Args:
        prefix: what the names of the segments begin with.
        weights: all of them.
    """
    return framed(_KIND, VERSION, [plain(prefix).encode(), _END, *form.pieces(*weights.kept())])


def decode(prefix: str, content: bytes) -> Weights | None:
    """What `encode` was given; None: it is of other segments.

    Raises:
        CheckpointRefused: it is none, or not whole, or of a later brickd.
    """
    whose, _, rest = unframed(_KIND, VERSION, content).partition(_END)
    try:
        with validating():
            if text(parsed(whose)) != prefix:
                return None
            line, rest = form.parted(rest)
            return form.read(parsed(line), rest)
    except ValueError as error:
        raise CheckpointRefused(str(error)) from None
