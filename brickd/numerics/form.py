"""What is known of workers' weights, as bytes: a line of JSON, then what tensors hold, then each worker's columns.

Owns: this form. Must not know: what file it is a part of. Invariants: what is read is what was written, or it is
refused; nothing in it is taken for true because it is there.
"""

from __future__ import annotations

from collections.abc import Mapping
from io import BytesIO
from typing import Any

from brickd.composed import composed, plain
from brickd.numerics.contents import CONTENT_BYTES
from brickd.numerics.holds import Holds
from brickd.numerics.tensors import TENSORS_MAX, Tensor, Tensors
from brickd.numerics.weights import Weights

_END = b"\n"  # of the line: JSON has none


def pieces(contents: Mapping[int, bytes], tensors: Mapping[str, Tensors], workers: Mapping[str, Holds]) -> list[bytes]:
    """What `Weights.kept` says, in pieces that follow one another."""
    line = {
        "numbers": plain(list(contents)),
        "tensors": composed({service: found.text() for service, found in tensors.items()}),
        "workers": plain({uuid: (holds.service, holds.refused, len(holds)) for uuid, holds in workers.items()}),
    }
    columns = [column.tobytes() for holds in workers.values() for column in holds.columns()]
    return [composed(line).encode(), _END, *contents.values(), *columns]


def parted(written: bytes) -> tuple[bytes, bytes]:
    """The line, and what stands behind it."""
    line, _, rest = written.partition(_END)
    return line, rest


def read(line: Any, rest: bytes) -> Weights:
    """What was written.

    Args:
        line: what its JSON says.
        rest: what stands behind it.

    Raises:
        AttributeError, LookupError, OverflowError, TypeError, ValueError: it cannot be.
    """
    left = BytesIO(rest)
    found = Weights.of_kept(
        {number: left.read(CONTENT_BYTES) for number in line["numbers"]},
        {service: [_tensor(*each) for each in found] for service, found in line["tensors"].items()},
        {uuid: _holds(left, *each) for uuid, each in line["workers"].items()},
    )
    if more := len(left.read()):
        raise ValueError(f"{more} bytes stand behind the last column")
    return found


def _tensor(name: str, layer: int, expert: int) -> Tensor:
    if not isinstance(name, str) or type(layer) is not int or type(expert) is not int:
        raise TypeError(f"a tensor is a name and two numbers, not {name!r}, {layer!r} and {expert!r}")
    return Tensor(name, layer, expert)


def _holds(left: BytesIO, service: str, refused: int, rows: int) -> Holds:
    holds = Holds(service)
    if type(refused) is not int or type(rows) is not int or not 0 <= rows <= TENSORS_MAX:
        raise TypeError(f"a count is a number, not {refused!r}, and rows are {TENSORS_MAX:,} at most, not {rows!r}")
    holds.refused = refused
    for column in holds.columns():
        column.frombytes(left.read(rows * column.itemsize))
        if len(column) != rows:
            raise ValueError(f"a column of {len(column)} rows, wanted are {rows}")
    return holds
