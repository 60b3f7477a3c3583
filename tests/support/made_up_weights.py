"""Workers that never ran, and their records of made-up weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from checked_record import CheckedRecord
from checked_record import Tensor as Sums
from made_up_workers import MadeUp

from brickd.analysis.numerics.fingerprints import FingerprintProducer, Numerics
from brickd.analysis.weights.replicas import judge
from brickd.analysis.weights.store import BYTES_MAX, Weights
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.model.workers import Worker
from brickd.shm import _reader
from brickd.shm.ledger import ledger_of
from brickd.shm.sites import WorkerNames

SECOND = 1_000_000_000
NOW = 1000 * SECOND


class MadeUpWeights:
    """Workers with given tensors. A tick of their clock is 1 ns, and the time is `NOW`."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.numerics = Numerics(weights=Weights(bytes_max))
        self.workers: list[Worker] = []
        self._producers: dict[str, FingerprintProducer] = {}
        self._names: dict[str, int] = {}
        self._sites: dict[tuple[str, int], int] = {}
        self._ticks = 0

    def add(
        self,
        name: str,
        *,
        service: str = "api",
        watched: int = 0,
        scans: int = 1,
        key: int = 7,
        alive: bool = True,
        every: int = 0,
        once: int = 0,
        refused: int = 0,
    ) -> str:
        """Add a worker; the part of its name after the service gives its coordinates."""
        reading = MadeUp(service=service, now=NOW).reading()
        uuid = (len(self.workers) + 1).to_bytes(16, "big")
        header: Any = {**reading.header, "uuid": uuid, "coordinates": name.partition("/")[2].encode()}
        process: Any = {**reading.process, "weights": watched, "scans": scans, "key": key, "tensors_refused": refused}
        reading = replace(reading, header=header, process=process, pid=1 if alive else None)
        ledger, other = ledger_of(reading), {"weights_every": 7, "weights_once": 7}
        lanes: Any = [(1, other, {}), (0, {"weights_every": every, "weights_once": once}, {})] if every or once else []
        self.workers.append(Worker(name, replace(reading, lanes=lanes), ledger))
        self._producers[name] = self.numerics.producer(uuid.hex(), service, self._tables, "")
        return name

    def place(self, name: str, coordinates: str) -> None:
        """Set a worker's coordinates."""
        for number, worker in enumerate(self.workers):
            if worker.name == name:
                header: Any = {**worker.reading.header, "coordinates": coordinates.encode()}
                self.workers[number] = worker._replace(reading=replace(worker.reading, header=header))

    def _tables(self) -> WorkerNames:
        names = [None, *((name, 0) for name in self._names)]
        return WorkerNames(names, [None, *((self._names[name], layer, 0) for name, layer in self._sites)])

    def add_weight(
        self,
        name: str,
        checksum: int | Sums,
        tensor: str = "w",
        layer: int = -1,
        expert: int = -1,
        *,
        generation: int = 1,
        ticks: int | None = None,
    ) -> None:
        """Add a record of one tensor of a worker."""
        self._names.setdefault(tensor, len(self._names) + 1)
        site = self._sites.setdefault((tensor, layer), len(self._sites) + 1)
        self._ticks += SECOND
        records = CheckedRecord(
            checksum if isinstance(checksum, Sums) else Sums(checksum),
            site=site,
            step=generation,
            position=max(expert, 0),
            ticks=self._ticks if ticks is None else ticks,
            flags=_reader.CHECKED_WEIGHT | (_reader.CHECKED_POSITION if expert >= 0 else 0),
        )
        self._producers[name].receive(records.slots())

    def judged(self) -> WeightsVerdict:
        """Return the verdict on the only service."""
        (judged,) = judge(self.numerics.weights, self.workers)
        return judged


def several(*names: str, **of: Any) -> MadeUpWeights:
    """Workers without records."""
    weighed = MadeUpWeights()
    for name in names:
        weighed.add(name, **of)
    return weighed
