"""The page of metrics: every series, from one survey.

Owns: which workers have their own series, the labels of services and workers, how often a page is made. Must not know:
HTTP, files. Invariants: All figures of a page are from one survey. However many readers there are, at most one page a
second is made. A worker that was restarted under the same name takes over the series of the dead worker, so that
restarts make no new series.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

import psutil

from brickd.base.units import SECOND
from brickd.datasources.world import World
from brickd.metrics import gauges
from brickd.metrics.exposition import Exposition, label
from brickd.metrics.families import CPU_SECONDS, MEMORY, PAGE_SECONDS, PAGES, TEXTFILE_FAILURES
from brickd.metrics.span_series import SpanSeries
from brickd.metrics.weights_info import WeightsInfo
from brickd.model.event_log import LogEvent
from brickd.model.exported_series import ExportedSeries
from brickd.model.worker_names import has_mark
from brickd.model.workers import Survey, Worker
from brickd.views import evidence_summary
from brickd.views.problems import Seen, active

_AGE_NS = SECOND


class MetricsPage:
    """Makes pages. Any thread may ask for a page.

    Attributes:
        textfile_failures: how often the page could not be written into a file; None if there is no such file.
    """

    def __init__(
        self,
        world: World,
        exported: ExportedSeries,
        keep: Callable[[ExportedSeries], object],
        digests: Callable[[Sequence[Worker]], Mapping[str, str]],
        log_event: LogEvent,
    ) -> None:
        """Continue the series of an earlier daemon.

        Args:
            world: where the figures come from.
            exported: the series of the earlier daemon.
            keep: a function that saves the series when they change.
            digests: a function that returns the digests of workers' weights, keyed by uuid.
            log_event: a function that logs what is left out.
        """
        self._world, self._keep, self._digests = world, keep, digests
        self._spans, self._weights = SpanSeries(exported), WeightsInfo(log_event)
        self._lock = threading.Lock()
        self._page, self._made_ns = b"", -_AGE_NS
        self._pages = self._cpu_ns = 0
        self.textfile_failures: int | None = None

    def newest(self) -> bytes:
        """Return a page that is at most a second old."""
        with self._lock:
            if time.monotonic_ns() - self._made_ns >= _AGE_NS:
                began_ns = time.thread_time_ns()
                self._page = self._of(self._world.survey())
                self._count(began_ns)
                self._made_ns = time.monotonic_ns()
            return self._page

    def of(self, found: Survey) -> bytes:
        """Return the page of a survey."""
        with self._lock:
            began_ns = time.thread_time_ns()
            page = self._of(found)
            self._count(began_ns)
            return page

    def _count(self, began_ns: int) -> None:
        self._pages += 1
        self._cpu_ns += time.thread_time_ns() - began_ns

    def _of(self, found: Survey) -> bytes:
        into, workers = Exposition(), defaultdict[str, list[Worker]](list)
        for worker in found.workers:
            workers[label(worker.service)].append(worker)
        shown = _shown(found.workers)
        before = self._spans.exported
        self._spans.write(workers, shown, into)
        if self._spans.exported != before:
            self._keep(self._spans.exported)
        gauges.write_workers(workers, shown, into)
        gauges.write_ledgers(workers, found.removed, into)
        seen = Seen.of(self._world, found, found.workers, ())
        named = {worker.name: shown[worker.reading.uuid] for worker in found.workers if worker.reading.uuid in shown}
        gauges.write_problems(active(seen, time.time_ns()), named, into)
        evidence = evidence_summary.of_status(self._world, found, found.workers, seen.compared, seen.weighed)
        gauges.write_evidence(evidence, into)
        self._weights.write(found.workers, shown, self._digests(found.workers), time.monotonic_ns(), into)
        if seen.daemon is not None:
            gauges.write_daemon(seen.daemon, found, into)
        into.add(CPU_SECONDS, time.process_time())
        into.add(MEMORY, psutil.Process().memory_info().rss)
        into.add(PAGES, self._pages)
        into.add(PAGE_SECONDS, self._cpu_ns / 1e9)
        if self.textfile_failures is not None:
            into.add(TEXTFILE_FAILURES, self.textfile_failures)
        return into.text()


def _shown(workers: Iterable[Worker]) -> dict[str, str]:
    """Return the label of each worker that has its own series, keyed by uuid.

    Live workers have their own series, and so have dead workers whose name no other worker has taken. When another
    worker takes the name of a dead worker, the dead worker gets a new name. If it had series under its new name, each
    restart would make new series.
    """
    names: dict[str, str] = {}
    taken = set()
    for worker in workers:
        uuid, name = worker.reading.uuid, label(worker.name)
        if worker.together == 1 and (worker.reading.alive or not has_mark(worker.name, uuid)):
            if name in taken:  # the names differ only in characters that no terminal shows
                name = f"{name}~{uuid}"
            names[uuid] = name
            taken.add(name)
    return names
