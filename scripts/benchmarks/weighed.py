"""The daemon's cost of receiving the fingerprint of a weight, with 64 workers and 1,000 tensors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from brickd.analysis.numerics.fingerprints import FingerprintProducer, Numerics
from brickd.shm import _reader
from brickd.shm.records import SLOT_BYTES, fields_of
from brickd.shm.sites import WorkerNames

WORKERS, TENSORS = 64, 1_000


class Case(NamedTuple):
    """The records that are sent for each tensor. The records in `before` are sent once and not timed. With `own`, each
    worker has its own values.
    """

    name: str
    generation: int
    ticks: int
    before: bool
    own: bool = False


CASES = (
    Case("weights, read for the first time", 1, 1, before=False),
    Case("weights, read again, unchanged", 1, 2, before=True),
    Case("weights, loaded again, unchanged", 2, 2, before=True),
    Case("weights, different in each worker, read for the first time", 1, 1, before=False, own=True),
)


def timed(case: Case, rounds: int) -> list[float]:
    """Return the nanoseconds of a record in each round."""
    tables = WorkerNames([("other", 0), ("w", 0)], [None, *((1, layer, 0) for layer in range(TENSORS))])
    before = [_records(1, 1)] * WORKERS
    records = [_records(case.generation, case.ticks, case.own * worker * TENSORS) for worker in range(WORKERS)]
    times = []
    for _ in range(rounds):
        numerics = Numerics()
        producers = [numerics.producer(str(n), "bench", lambda: tables, "") for n in range(WORKERS)]
        for producer in producers:
            producer.learn()
        if case.before:
            _receive(producers, before)
        began = time.thread_time_ns()
        _receive(producers, records)
        times.append((time.thread_time_ns() - began) / (WORKERS * TENSORS))
    return times


def _receive(producers: Sequence[FingerprintProducer], records: Sequence[bytes]) -> None:
    for producer, records_of_worker in zip(producers, records, strict=True):
        producer.receive(records_of_worker)


def _records(generation: int, ticks: int, checksum: int = 0) -> bytes:
    slots = np.zeros((TENSORS, 4, SLOT_BYTES), np.uint8)
    numbers = np.arange(1, TENSORS + 1)
    heads, sums = (slots[:, at].view(_struct(name))[:, 0] for at, name in ((0, "checked"), (2, "tensor_sums")))
    heads["site"], heads["slots"], heads["kind"], heads["flags"] = (
        numbers,
        4,
        _reader.KIND_CHECKED,
        _reader.CHECKED_WEIGHT,
    )
    heads["step"], heads["ticks"] = generation, ticks
    sums["checksum"], sums["elements"], sums["dtype"] = numbers + checksum, 64, 12
    return slots.tobytes()


def _struct(name: str) -> np.dtype[np.void]:
    """Return a ctypes struct of one slot, with only the first element of each array."""
    names, offsets, _, codes = zip(*fields_of(name), strict=True)
    formats = [f"<{code}" for code in codes]
    return np.dtype({"names": names, "formats": formats, "offsets": offsets, "itemsize": SLOT_BYTES})
