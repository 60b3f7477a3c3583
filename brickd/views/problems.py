"""Problems: one table of their kinds, for every view that lists problems.

Owns: the kinds, their order, their sentences, the next command of each. Must not know: terminals, files. Invariants:
every problem names the next command; of any number of refused files at most LISTED_MAX are listed, and their number.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from brickd.analysis.numerics.announce import Called, command, headlines
from brickd.analysis.numerics.online_state import Compared, DivergentSite
from brickd.analysis.weights.verdicts import WeightsVerdict as JudgedWeights
from brickd.base.units import duration, plural
from brickd.datasources.world import DaemonStatus, World
from brickd.errors import SegmentOverBudget, SegmentRefused, SegmentUnopened
from brickd.model.worker_names import as_argument
from brickd.model.workers import Survey, Worker
from brickd.shm.losses import losses
from brickd.shm.removed_workers import RemovedWorker
from brickd.views import numerics_summary, removed_summary, weights_summary

if TYPE_CHECKING:
    from brickd.analysis.timing.alarms import Alarm
    from brickd.analysis.timing.findings import StragglerVerdict

LISTED_MAX = 64  # refused files

Problem = dict[str, str]
Found = Iterator[tuple[str, str]]  # a sentence and the next command


@dataclass(frozen=True, slots=True)
class Seen:
    """What problems are found in.

    Attributes:
        workers: those that were asked for.
        slow: stragglers among them; None where they were not compared.
        alarms: what is wrong with single ones of them.
        refused: files that are no segments; none where only some workers were asked for.
        removed: workers without a segment, of the services that were asked for.
        compared: the comparison of tensors; None where nothing has been compared.
        differing: its findings about the workers; None likewise.
        called: the names of all workers.
        beside: the comparison of weights.
        weights: its findings about the workers; None where nothing was compared.
    """

    workers: Sequence[Worker]
    daemon: DaemonStatus | None = None
    slow: StragglerVerdict | None = None
    alarms: Sequence[Alarm] | None = None
    refused: Sequence[SegmentRefused] = ()
    removed: Sequence[RemovedWorker] = ()
    compared: Compared | None = None
    differing: Sequence[DivergentSite] | None = None
    called: Called = Called({})  # noqa: RUF009
    beside: Sequence[JudgedWeights] = ()
    weights: Sequence[dict[str, Any]] | None = None

    @classmethod
    def of(cls, world: World, found: Survey, workers: Sequence[Worker], names: Sequence[str]) -> Self:
        """Collect it."""
        judged, compared = world.stragglers(), world.compared()
        if compared is not None and not compared.since_ns:  # nothing has been compared
            compared = None
        services, alarms = {worker.service for worker in workers}, world.alarms()
        mine = {worker.name for worker in workers}
        beside = [each for each in world.weighed(found) if each.service in services]
        return cls(
            workers,
            world.daemon(),
            None if judged is None else judged.about(mine),
            None if alarms is None else [each for each in alarms if not mine.isdisjoint(each.workers)],
            () if names else found.refused,
            removed_summary.chosen(found, names),
            compared,
            None if compared is None else numerics_summary.about(compared, workers, partial=bool(names)),
            numerics_summary.called_now(found.workers),
            beside,
            weights_summary.findings(beside, workers, partial=bool(names)),
        )


def problems(seen: Seen) -> list[Problem]:
    """All that is wrong, what is worst first."""
    return [{"text": text, "command": following} for kind in _KINDS for text, following in kind(seen)]


def _differing_weights(seen: Seen) -> Found:
    for each in seen.weights or ():
        yield f"weights: {each['text']}", each["command"]


def _differing_tensors(seen: Seen) -> Found:
    for finding, text in headlines(seen.differing or (), seen.called, time.time_ns()):
        yield text, command(finding, seen.called)


def _uncounted(seen: Seen) -> Found:
    text = removed_summary.sentence(seen.removed)
    if text is not None:
        yield text, "brickd prune" if seen.daemon is not None else "brickd up -d"


def _slow(seen: Seen) -> Found:
    if seen.slow is None:
        return
    for finding, text in seen.slow.headlines():
        yield text, f"brickd stragglers {as_argument(finding.about.service)}"
    for each in seen.slow.waiting:
        yield each.text, f"brickd stragglers {as_argument(each.service)}"
    if not seen.slow.current:
        text = f"no worker is judged now: the last look at all workers was {duration(seen.slow.age_ns)} ago"
        yield text, "brickd events"


def _alarms(seen: Seen) -> Found:
    for alarm in seen.alarms or ():
        yield alarm.text, alarm.command


def _off(seen: Seen) -> Found:
    off = Counter(worker.service for worker in seen.workers if worker.reading.alive and worker.reading.off)
    for service, n in off.items():
        text = f"recording is off in {plural(n, 'worker')} of {service}"
        yield text, f"brickd set --recording on {as_argument(service)}"


def _without_a_daemon(seen: Seen) -> Found:
    if seen.daemon is not None:
        return
    if unread := sum(worker.reading.unread for worker in seen.workers):
        text = f"spans are on in {plural(unread, 'worker')} and no process reads them: their reader was killed"
        yield text, "brickd up -d"
    if thinned := sum(worker.reading.thinned_for_nobody for worker in seen.workers):
        yield f"fingerprints are set in {plural(thinned, 'worker')} by a daemon that was killed", "brickd up -d"


def _quarantined(seen: Seen) -> Found:
    if len(seen.refused) > LISTED_MAX:
        yield f"{len(seen.refused):,} files are quarantined", "brickd doctor"
    for error in seen.refused[:LISTED_MAX]:
        # What cannot be opened `prune` leaves alone; what costs too much may be a live worker's.
        stays = isinstance(error, SegmentUnopened | SegmentOverBudget)
        yield f"{error.path} is quarantined: {error.reason}", "brickd doctor" if stays else "brickd prune --refused"


def _daemon(seen: Seen) -> Found:
    if seen.daemon is None:
        return
    if seen.daemon.checkpoint_problem is not None:
        yield f"the daemon cannot save what it knows: {seen.daemon.checkpoint_problem}", "brickd events"
    if seen.daemon.recording_problem is not None:
        yield f"what is being recorded cannot be written: {seen.daemon.recording_problem}", "brickd events"
    if seen.daemon.broken is not None:
        yield f"the daemon began anew: {seen.daemon.broken}", "brickd events"


def _dead(seen: Seen) -> Found:
    dead = [worker for worker in seen.workers if not worker.reading.alive and not worker.reading.ended]
    if dead:
        more = sum(worker.together for worker in dead) - 1
        who = f"{dead[0].name} and {more:,} more" if more else dead[0].name
        yield f"{who} died; what was recorded is kept", "brickd prune"


def _lost(seen: Seen) -> Found:
    for worker in seen.workers:
        for loss in losses(worker.reading, worker.ledger):
            yield f"{worker.name}: {loss}", f"brickd inspect {as_argument(worker.name)}"


_KINDS: tuple[Callable[[Seen], Found], ...] = (
    _differing_weights,
    _differing_tensors,
    _uncounted,
    _alarms,
    _slow,
    _off,
    _without_a_daemon,
    _quarantined,
    _daemon,
    _dead,
    _lost,
)
