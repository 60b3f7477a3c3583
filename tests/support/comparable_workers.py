"""Workers that never ran, with made-up records that brickd can compare."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from checked_record import CheckedRecord, Tensor
from made_up_workers import HOSTILE, MadeUp

from brickd.analysis.numerics.fingerprints import Numerics
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.datasources.world import Source
from brickd.model.workers import Survey, Worker
from brickd.query.queries import DiffQuery
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.segment_copy import SiteKey
from brickd.shm.sites import WorkerNames
from brickd.views import diff
from brickd.views.diff_operands import require_comparable

NAMES = [None, *((name, 0) for name in ("embed", "norm", "scores", "mlp", "router", HOSTILE, "attention"))]
NAMES[3] = ("scores", 7)
# The names of the sites, in the order of execution; a site's number is its index here.
EMBED, NORM, SCORES, MLP, ROUTER, STRANGE, OFF = range(1, 8)
SITES = [None, (1, -1, 0), (2, 0, 0), (3, 0, 0), (4, 0, 0), (5, 0, 0), (6, 0, 0), (1, 5, _reader.SITE_OFF)]
INT64 = 5
SECOND = 1_000_000_000
NOW = 100 * SECOND


def off(checksum: int, by: float = 0.0, **values: Any) -> Tensor:
    """Return a tensor of norm 1. Its sketch is `by`, followed by zeros."""
    return Tensor(checksum, 1.0, (by, *(0.0,) * 15), **values)


def chain(
    born: int | None = None, *, steps: int = 3, sites: Sequence[int] = (EMBED, NORM, SCORES, MLP), by: float = 0.5
) -> list[CheckedRecord]:
    """Return the records of steps. Each site reads the output of the site before it; from the site `born` on, all
    outputs are wrong.
    """
    reported, at = [], 0
    for step in range(1, steps + 1):
        given = Tensor(1000 * step)
        for site in sites:
            at += 1
            wrong = born is not None and site >= born
            out = off(1000 * step + 10 * site + wrong, by * wrong)
            reported.append(
                CheckedRecord(out, (given,), site=site, step=step, ticks=at * SECOND, flags=_reader.CHECKED_STEP)
            )
            given = out
    return reported


@dataclass
class ComparableWorkers:
    """Workers of the service `api`, with their records.

    Attributes:
        records: the records of each worker, in the order of the workers' names.
        lost: the number of lost records of each worker.
        process: unusual values in the process line of each worker.
        spans: the durations of each worker's spans in ns.
        dead: the dead workers.
        called: unusual names of kernels, keyed by worker.
    """

    records: Sequence[Sequence[CheckedRecord]]
    lost: Mapping[int, int] = field(default_factory=dict)
    process: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    spans: Mapping[int, int] = field(default_factory=dict)
    services: Mapping[int, str] = field(default_factory=dict)
    dead: Sequence[int] = ()
    called: Mapping[int, Sequence[tuple[str, int] | None]] = field(default_factory=dict)
    source: Source = "shared memory"

    def survey(self) -> Survey:
        """All workers."""
        return Survey([self._worker(number) for number in range(len(self.records))], [])

    def _worker(self, number: int) -> Worker:
        service = self.services.get(number, "api")
        made = MadeUp(service=service)
        for call in range(200):
            made.begin("gemm")
            made.spend(self.spans.get(number, 1_000_000) + 1_000 * (call % 7))
            made.end()
        reading = made.reading()
        header: Any = {**reading.header, "uuid": bytes([number + 1]) * 16}
        process: Any = {**reading.process, "key": 7, "weights": 0, "scans": 0, **self.process.get(number, {})}
        before = len(reading.names)
        reading = replace(
            reading,
            header=header,
            process=process,
            pid=None if number in self.dead else 1,
            now_ticks=NOW,
            names=reading.names + [None if row is None else (row[0], row[1]) for row in NAMES],
            sites=[None if row is None else SiteKey(row[0] + before, row[1], row[2]) for row in SITES],
        )
        return Worker(f"{service}/{number}", reading, ledger_of(reading))

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """The workers' fingerprints."""
        numerics = Numerics()
        self.add_fingerprints(of, numerics)
        return numerics

    def compared(self) -> None:
        """Return None, because no daemon compares these workers continuously."""

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """Return nothing, because no daemon compares these workers continuously."""
        return ()

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints of these workers to `numerics`."""
        sites = [None if row is None else (row[0], row[1], row[2]) for row in SITES]
        for worker in of:
            number = worker.reading.header["uuid"][0] - 1
            tables = functools.partial(WorkerNames, self.called.get(number, NAMES), sites)
            producer = numerics.producer(mark + worker.reading.uuid, worker.service, tables, "")
            producer.receive(b"".join(each.slots() for each in self.records[number]))
            producer.lose(self.lost.get(number, 0))


def compared(*records: Sequence[CheckedRecord], **how: Any) -> Any:
    """Return the document of `diff` on workers with these records; raise if nothing is comparable."""
    document = answered(*records, **how)
    require_comparable(document)
    return document


def answered(*records: Sequence[CheckedRecord], names: Sequence[str] = ("api",), **how: Any) -> Any:
    """The document of `diff` on workers with these records."""
    world = {key: how.pop(key) for key in ("lost", "process", "spans", "services", "dead", "called") if key in how}
    question = DiffQuery(tuple(names), **how)
    return diff.answer(ComparableWorkers(records, **world), question).document
