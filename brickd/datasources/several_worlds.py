"""Several worlds (recordings, the live machine) shown as one world.

Owns: the names of workers from several worlds, and the world of each worker. Must not know: views, callers. Invariants:
A worker that is in two worlds counts as two workers. If a world cannot answer, this is an error and is never ignored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from brickd.analysis.numerics import fingerprint_export
from brickd.analysis.numerics.fingerprints import ALL_BYTES, Numerics
from brickd.analysis.weights.verdicts import WeightsVerdict
from brickd.client import client
from brickd.client.client import NoAnswer
from brickd.client.protocol import FINGERPRINTS
from brickd.datasources.shared_memory import SharedMemory
from brickd.datasources.world import Source
from brickd.model.workers import Survey, Worker
from brickd.shm.segment_copy import Reading

_SECONDS = 30.0  # the time limit for a daemon's answer with all fingerprints
_ASKED_MAX = 100  # above this number, all workers are requested instead of a list of uuids


class ComparableWorld(Protocol):
    """A world whose workers may be compared with those of another world."""

    def survey(self) -> Survey:
        """Return all workers as they are at one moment."""

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints of workers to `numerics`, with `mark` as a prefix of the workers' uuids."""


class Live(SharedMemory):
    """The live machine. If a daemon runs, the daemon provides the fingerprints."""

    def add_fingerprints(self, of: Sequence[Worker], numerics: Numerics, mark: str = "") -> None:
        """Add the fingerprints that a daemon keeps, or those in the rings if no daemon runs."""
        query = [("uuid", worker.reading.uuid) for worker in of] if len(of) <= _ASKED_MAX else []
        try:
            document = client.ask(FINGERPRINTS, query, seconds=_SECONDS).document()
        except NoAnswer as error:
            if error.why not in ("none", "stale", "elsewhere"):
                raise
            super().add_fingerprints(of, numerics, mark)
        else:
            fingerprint_export.add_exported(numerics, document, mark)


class WorldPart(NamedTuple):
    """One of several worlds; its `label` is put before the names of its workers."""

    label: str
    world: ComparableWorld

    def name(self, worker: str) -> str:
        """Return the name that one of this world's workers has among the workers of all worlds."""
        return f"{self.label}:{worker}" if self.label else worker


class Gathered:
    """Several worlds. Each world is surveyed once."""

    source: Source = "several"

    def __init__(self, parts: Sequence[WorldPart]) -> None:
        self.parts = parts
        self._whose: dict[int, tuple[int, Worker]] = {}
        surveys = [part.world.survey() for part in parts]
        self._survey = Survey(
            [self._taken(number, each, found) for number, found in enumerate(surveys) for each in found.workers],
            [refused for found in surveys for refused in found.refused],
            words=tuple(line for found in surveys for line in found.words),
            removed=tuple(each for found in surveys for each in found.removed),
        )

    def _taken(self, number: int, worker: Worker, found: Survey) -> Worker:
        """Return a copy of the worker with the name and the uuid that it has among the workers of all worlds."""
        part, reading = self.parts[number], worker.reading
        now_ticks = reading.now_ticks
        if now_ticks is None and reading.header["clock"] in found.clocks:
            now_ticks = found.clocks[reading.header["clock"]][0]
        header = {**reading.header, "uuid": bytes.fromhex(_mark(number)) + reading.header["uuid"]}
        renamed: Reading = replace(reading, header=header, now_ticks=now_ticks)  # type: ignore[arg-type]
        mine = worker._replace(name=part.name(worker.name), reading=renamed, label=part.name(""))
        self._whose[id(mine)] = number, worker
        return mine

    def survey(self) -> Survey:
        """Return all workers of all worlds, as they were at the time of the survey."""
        return self._survey

    def numerics(self, of: Sequence[Worker]) -> Numerics:
        """Return the fingerprints of some workers, from all worlds."""
        numerics = Numerics(ALL_BYTES)
        for number, part in enumerate(self.parts):
            mine = [worker for where, worker in (self._whose[id(each)] for each in of) if where == number]
            if mine:
                part.world.add_fingerprints(mine, numerics, _mark(number))
        return numerics

    def compared(self) -> None:
        """Return None, because several worlds are not compared continuously."""

    def weighed(self, found: Survey) -> Sequence[WeightsVerdict]:
        """Return no verdicts, because several worlds are not compared continuously."""
        return ()


def _mark(number: int) -> str:
    return f"{number:08x}"  # all marks have the same length, so none is a prefix of another
