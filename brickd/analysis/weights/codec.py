"""Workers' weights as bytes, and the file in which a daemon keeps them.

Owns: the form: a line of JSON, then the contents of tensors, then each worker's columns; and whose the file is. Must
not know: where the file is, when it is written. Invariants: what is read is what was written, or it is refused with the
reason; nothing in it is taken for true because it is there.
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

_END = b"\n"  # of a line of JSON, which has none


def pieces(contents: Mapping[int, bytes], tensors: Mapping[str, Tensors], workers: Mapping[str, Holds]) -> list[bytes]:
    """Encode what `Weights.kept` returned, in pieces that follow one another."""
    line = {
        "numbers": plain(list(contents)),
        "tensors": composed({service: found.text() for service, found in tensors.items()}),
        # A worker may say that it dropped more, in sum, than a number here holds.
        "workers": plain({uuid: (of.service, min(of.refused, U64_MAX), len(of)) for uuid, of in workers.items()}),
    }
    columns = [column.tobytes() for holds in workers.values() for column in holds.columns()]
    return [composed(line).encode(), _END, *contents.values(), *columns]


def parted(written: bytes) -> tuple[bytes, bytes]:
    """Split into the line and what follows it."""
    line, _, rest = written.partition(_END)
    return line, rest


def read(line: Any, rest: bytes) -> Weights:
    """Decode a parsed line, and what follows it; a ValueError, or another error, if invalid."""
    left = BytesIO(rest)
    found = Weights.of_kept(
        {whole(number, 1): left.read(CONTENT_BYTES) for number in line["numbers"]},
        {unicode(service): [_tensor(*each) for each in found] for service, found in line["tensors"].items()},
        {unicode(uuid): _holds(left, *each) for uuid, each in line["workers"].items()},
    )
    if more := len(left.read()):
        raise ValueError(f"{more} bytes stand behind the last column")
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
            raise ValueError(f"a column of {len(column)} rows, wanted are {rows}")
    return holds


VERSION = 1
_KIND = "weights file"


def encode(prefix: str, weights: Weights) -> bytes:
    """The file's content; for the thread that takes. `prefix` begins the names of the segments."""
    return framed(_KIND, VERSION, [plain(prefix).encode(), _END, *pieces(*weights.kept())])


def decode(prefix: str, content: bytes) -> Weights | None:
    """Decode what `encode` made; None: it is of other segments.

    Raises:
        CheckpointRefused: it is invalid, or not whole, or of a later brickd.
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
