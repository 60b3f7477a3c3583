"""The workers of this machine at one moment, and their selection by name.

Owns: what is known about a worker, about all workers, and about the files that a process drains. Must not know: how
segments are found and read, totals, screens, how names are made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from brickd.base.users import others_have
from brickd.errors import NoSuchWorker, SegmentRefused
from brickd.model.worker_names import suggestion
from brickd.model.worker_origins import Origin
from brickd.shm.ledger import Ledger
from brickd.shm.memory_budget import Account
from brickd.shm.removed_workers import RemovedWorker
from brickd.shm.segment import Segment
from brickd.shm.segment_copy import Reading
from brickd.shm.segment_files import Identifier, Owners, identifier_of

WorkerState = Literal["live", "ended", "died"]


def state_of(reading: Reading) -> WorkerState:
    """Return the state of a worker."""
    return "live" if reading.alive else "ended" if reading.ended else "died"


class Usage(NamedTuple):
    """The resource use of a process.

    Attributes:
        cpu_percent: the use in percent of one processor; None before the second measurement.
        stopped: whether a signal or a debugger stopped the process.
        ran, waited: for how long its threads ran, and for how long they waited for a processor. Each is a sum over all
            threads since the last measurement, divided by the time since then; None if unknown.
        cpu: the only processor that the process may use; None if it may use several, or if this is unknown.
        throttled: for how long its control group was throttled, as a fraction of the same time; None if unknown.
    """

    cpu_percent: float | None
    rss_bytes: int
    stopped: bool = False
    ran: float | None = None
    waited: float | None = None
    cpu: int | None = None
    throttled: float | None = None


class Worker(NamedTuple):
    """One instrumented process, in one reading of its segment.

    Attributes:
        together: the number of workers; above 1 for a sum of old dead workers.
        added: for a sum, the known workers that were last merged into it, in order.
        label: the name of the worker's world, if several worlds are shown as one; the worker's name begins with it.
    """

    name: str
    reading: Reading
    ledger: Ledger
    together: int = 1
    usage: Usage | None = None
    added: tuple[Origin, ...] = ()
    label: str = ""

    @property
    def service(self) -> str:
        """The name of the group of workers that run the same program."""
        return self.reading.service


@dataclass(frozen=True, slots=True)
class Held:
    """The files that this process drains, and the known facts about other files.

    Attributes:
        segments: the open segments. Opening one of their files again and closing it would release the lock.
        drained: the drained segments whose workers do not continue in another one. Drained segments are included even
            if their file was removed. Any process may remove a file, and this process may do so during the survey.
        refused: the invalid files by name, including files whose defect a single reading would not find.
        others: the known owners of other users' files.
        accounts: the memory accounts of the drained segments.
        goes_on: a function that returns whether the next segment should be read.
    """

    segments: Mapping[Identifier, Segment] = field(default_factory=dict)
    drained: Sequence[Segment] = ()
    refused: Mapping[str, SegmentRefused] = field(default_factory=dict)
    others: Owners = field(default_factory=dict)
    accounts: Mapping[Identifier, Account] = field(default_factory=dict)
    goes_on: Callable[[], bool] = lambda: True

    def segment(self, file: str) -> Segment | None:
        """Return the open segment whose file has this name.

        If no file has this name now, return the segment whose file had it.
        """
        identifier = identifier_of(file) if self.segments else None
        if identifier is not None:
            return self.segments.get(identifier)
        return next((each for each in self.drained if each.name == file), None)


class Survey(NamedTuple):
    """All workers at one moment.

    Attributes:
        workers: the workers whose segments can be read, sorted by service and name.
        refused: the invalid segments.
        foreign: the number of segments of each other user, keyed by uid; these segments are not read.
        clocks: for each kind of clock, its time and the time of CLOCK_MONOTONIC_RAW, both read before the search for
            segments. Segments that were created later are not in the survey.
        removed: the workers whose segments were removed, each with those of its counts that are in no total.
    """

    workers: list[Worker]
    refused: list[SegmentRefused]
    foreign: Mapping[int, int] = MappingProxyType({})
    words: tuple[str, ...] = ()
    clocks: Mapping[int, tuple[int, int]] = MappingProxyType({})
    removed: tuple[RemovedWorker, ...] = ()


_NO_FOREIGN: Mapping[int, int] = MappingProxyType({})


def select(
    workers: Sequence[Worker],
    names: Sequence[str],
    *,
    segments: Iterable[str] | None = None,
    foreign: Mapping[int, int] = _NO_FOREIGN,
    services: Iterable[str] = (),
) -> list[Worker]:
    """Select the workers with these names or services, or all workers if no name is given.

    Args:
        workers: the workers to select from.
        names: names of workers and services.
        segments: the known segments, if a name may also be the name of a segment's file.
        foreign: the number of segments of each other user; if this user has no workers, the name may belong to one of
            these.
        services: further valid names, which may have no workers.

    Raises:
        NoSuchWorker: a name is unknown; the message has similar names.
    """
    readable = {worker.name for worker in workers} | {worker.service for worker in workers} | set(services)
    for name in names:
        if name not in readable:
            what = "worker or service" if segments is None else "worker, service or segment"
            known = readable | set(segments or ())
            hint = f"{suggestion(name, known)} (brickd status lists them)"
            if foreign and not known:
                hint = others_have(foreign)
            raise NoSuchWorker(f"no {what} {name}: {hint}")
    if not names:
        return list(workers)
    return [worker for worker in workers if worker.name in names or worker.service in names]
