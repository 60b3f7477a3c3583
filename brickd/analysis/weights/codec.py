"""Encodes workers' weights for the file in which a daemon stores them.

Owns: the file format (a line of JSON, then the contents of tensors, then the columns of each worker), and the segment
prefix in the file. Must not know: where the file is, when it is written. Invariants: Invalid content is refused with a
reason. Every value is checked before it is used.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from brickd.analysis.weights.contents import CONTENT_BYTES
from brickd.analysis.weights.store import Weights
from brickd.analysis.weights.tensors import TENSORS_MAX, Tensor, Tensors
from brickd.analysis.weights.worker_tensors import Holds
from brickd.base.json_values import I32_MAX, U64_MAX, composed, parsed, plain, text, unicode, validating, whole
from brickd.base.state_file import framed, unframed
from brickd.errors import CheckpointRefused

_END = b"\n"  # ends the JSON line, which contains no newline


def pieces(contents: Mapping[int, bytes], tensors: Mapping[str, Tensors], workers: Mapping[str, Holds]) -> list[bytes]:
    """Encode the result of `Weights.kept`; return consecutive pieces."""
    line = {
        "numbers": plain(list(contents)),
        "tensors": composed({service: found.text() for service, found in tensors.items()}),
        # The count of records for which a worker had no room can exceed 64 bits.
        "workers": plain({uuid: (of.service, min(of.refused, U64_MAX), len(of)) for uuid, of in workers.items()}),
    }
    columns = [column.tobytes() for holds in workers.values() for column in holds.columns()]
    return [composed(line).encode(), _END, *contents.values(), *columns]


def parted(written: bytes) -> tuple[bytes, bytes]:
    """Split into the JSON line and the rest."""
    line, _, rest = written.partition(_END)
    return line, rest


def read(line: Any, rest: bytes) -> Weights:
    """Decode a parsed JSON line and the bytes after it. Invalid input raises a ValueError or another error."""
    left = BytesIO(rest)
    found = Weights.of_kept(
        {whole(number, 1): left.read(CONTENT_BYTES) for number in line["numbers"]},
        {unicode(service): [_tensor(*each) for each in found] for service, found in line["tensors"].items()},
        {unicode(uuid): _holds(left, *each) for uuid, each in line["workers"].items()},
    )
    if more := len(left.read()):
        raise ValueError(f"{more} bytes follow the last column, expected none")
    return found


def _tensor(name: Any, layer: Any, expert: Any) -> Tensor:
    return Tensor(unicode(name), whole(layer, -1, I32_MAX), whole(expert, -1))


def _holds(left: BytesIO, service: Any, refused: Any, rows: Any) -> Holds:
    holds = Holds(unicode(service))
    holds.refused = whole(refused)
    whole(rows, most=TENSORS_MAX)
    for column in holds.columns():
        column.frombytes(left.read(rows * column.itemsize))
        if len(column) != rows:
            raise ValueError(f"a column has {len(column)} rows, expected {rows}")
    return holds


VERSION = 1
_KIND = "weights file"


def encode(prefix: str, weights: Weights) -> bytes:
    """Encode the file, in the thread that calls `take`; `prefix` is the prefix of the segments' names."""
    return framed(_KIND, VERSION, [plain(prefix).encode(), _END, *pieces(*weights.kept())])


def decode(prefix: str, content: bytes) -> Weights | None:
    """Decode the output of `encode`; None if the file is for segments with another prefix.

    Raises:
        CheckpointRefused: the file is invalid, incomplete, or of a later version of brickd.
    """
    whose, _, rest = unframed(_KIND, VERSION, content).partition(_END)
    try:
        with validating():
            if text(parsed(whose)) != prefix:
                return None
            line, rest = parted(rest)
            return read(parsed(line), rest)
    except ValueError as error:
        raise CheckpointRefused(str(error)) from None
