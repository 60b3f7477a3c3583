"""What a call costs if the rows of its tensors are recorded: `python -m benchmarks.row_cost ROUNDS ROWS COLUMNS...`.

The module does nothing, and is watched only for rows. No daemon is needed: this process moves the ring's tail after
each batch, because rows are recorded only while there is room. A case counts only if every record was made.
"""

from __future__ import annotations

import json
import os
import struct
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import brick_agent
import torch
from brick_agent import _core
from brick_agent._torch.backend import Backend
from brick_agent._torch.call_wrappers import wrap
from brick_agent._torch.module_selection import Part
from brick_agent._torch.row_wise import RowContext

from benchmarks.method import Case, measure, pin
from brickd.shm import _reader
from brickd.shm.segment import open_segment

_BATCH = 1000
_ALL, _NONE = _reader.RATE_ALL, _reader.RATE_NONE


class _NothingRMSNorm(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return x


class _Ring:
    """The event ring of this thread. It counts the records of the ring, and frees their slots."""

    def __init__(self) -> None:
        # The segment stays open, because a process that closes its own segment loses its lock on it.
        self._segment = ExitStack().enter_context(open_segment(_core._segment_name()))
        ((offset,),) = [row[2:3] for row in _reader.layout() if row[:2] == ("consumer", "event")]
        self._tail = 2 * _reader.CONTROL + offset  # the consumer's lines begin after the control page
        self.records = 0

    def consume(self) -> None:
        ((_, lane, _),) = self._segment.read().lanes
        self.records, head = lane["event_records"], lane["event_head"]
        os.pwrite(_core._segment_fd(), struct.pack("<2Q", head, 2**64 - 1 - head), self._tail)


class _Counted:
    """A case whose records are counted."""

    def __init__(self, ring: _Ring) -> None:
        self._ring, self._before, self._records = ring, 0, 0

    def before(self) -> None:
        self._before = self._ring.records

    def all(self) -> int:
        return self._records

    def after(self) -> None:
        self._ring.consume()
        self._records += self._ring.records - self._before


def _module(rate: int | None) -> Any:
    """A module that is watched for rows, unless `rate` is None."""
    module = _NothingRMSNorm().eval()
    if rate is not None:
        context = RowContext(Part("layers.0.norm", module), Backend(module, None))
        handle = brick_agent.brick("layers.*.norm", "norm")
        wrap(module, None, lambda plain, of: _core._watched(plain, handle, 0, None, rate, of, context))
    return module


def _cases(ring: _Ring, rows: int, each: Sequence[int]) -> Iterator[Case]:
    for columns in each:
        names = {"x": torch.randn(1, rows, columns)}
        for name, rate in (("plain", None), ("not wanted", _NONE), ("recorded", _ALL)):
            names = {**names, "module": _module(rate)}
            counted = _Counted(ring)
            yield Case(
                f"{name} {columns}",
                "module(x)",
                names,
                counted.before,
                counted.after,
                batch_max=_BATCH,
                recorded=counted.all if rate == _ALL else None,
            )


def main() -> None:
    """Measure, and print as JSON how many nanoseconds each case adds."""
    rounds, rows, *each = map(int, sys.argv[1:])
    pin(0)
    torch.set_num_threads(1)
    brick_agent.init(service="rows")
    brick_agent.checksum("warm", b"1")  # the first checksum opens the lane of this thread and the key of the process
    ring = _Ring()
    ring.consume()
    with torch.inference_mode():
        times = measure(_cases(ring, rows, each), rounds, seed=1)
    found = []
    for columns in each:
        for name in ("not wanted", "recorded"):
            case, plain = f"{name} {columns}", f"plain {columns}"
            added = times.least(case) - times.least(plain), times.median(case) - times.median(plain)
            found.append([columns, name == "recorded", *added, times.refused.get(case)])
    print(json.dumps(found))


if __name__ == "__main__":
    main()
