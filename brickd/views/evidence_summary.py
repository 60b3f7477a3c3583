"""The verdicts that follow from each class of evidence, for the views that list services.

Owns: whether fingerprints are compared now, and over which period. Must not know: screens, how a verdict is reached.
Invariant: if fingerprints are not compared, the verdict says why.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from brickd.analysis.evidence_verdicts import Comparisons, verdicts
from brickd.datasources.world import World
from brickd.model.workers import Survey, Worker
from brickd.views.common import Document

if TYPE_CHECKING:
    from brickd.analysis.numerics.online_state import Compared
    from brickd.analysis.weights.verdicts import WeightsVerdict

_NO_DAEMON = ("no daemon compares them", "brickd up -d")
_RECORDED = ("status compares no recorded fingerprints", "brickd coverage")
_SWITCHED_OFF = ("the daemon compares none: --numerics-bytes 0", "brickd down && brickd up -d")


def of_status(
    world: World,
    found: Survey,
    workers: Collection[Worker],
    compared: Compared | None,
    weights: Sequence[WeightsVerdict],
) -> list[Document]:
    """Return the verdicts that are known now, on the services of some workers."""
    idle = _RECORDED if world.source == "recording" else _NO_DAEMON if world.source == "shared memory" else None
    if idle is None and compared is None:
        idle = _SWITCHED_OFF
    return _documents(Comparisons(compared, weights, time.time_ns(), idle), found, workers)


def of_coverage(
    world: World, found: Survey, workers: Collection[Worker], compared: Compared, weights: Sequence[WeightsVerdict]
) -> list[Document]:
    """Return the verdicts on the services of some workers, including those from comparisons made for this query."""
    known = world.compared() is not None
    idle = _NO_DAEMON if known and world.source == "shared memory" else None
    return _documents(Comparisons(compared, weights, time.time_ns() if known else None, idle), found, workers)


def _documents(of: Comparisons, found: Survey, workers: Collection[Worker]) -> list[Document]:
    services = {worker.service for worker in workers if worker.together == 1}
    members = [worker for worker in found.workers if worker.service in services and worker.together == 1]
    return [each.document() for each in verdicts(of, members)]
