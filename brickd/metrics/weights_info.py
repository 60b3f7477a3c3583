"""The digests of workers' weights as series.

Owns: which digests are left out. Must not know: how a digest is made. Invariants: A worker has at most one digest at a
time. Each digest is a new series, which Prometheus keeps for a long time. So if a worker's digest changes more than
CHANGES_MAX times in an hour, the digest is left out, and this is reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from brickd.analysis.weights.shards import shard_of
from brickd.base.units import SECOND
from brickd.metrics.exposition import Exposition, label
from brickd.metrics.families import WEIGHTS, WEIGHTS_SUPPRESSED
from brickd.model.event_log import LogEvent
from brickd.model.worker_names import as_argument
from brickd.model.workers import Worker
from brickd.views.weights import key_name

CHANGES_MAX = 4
_HOUR_NS = 3_600 * SECOND


class _Seen(NamedTuple):
    """The last digest under a name, and the times at which it changed in the last hour."""

    digest: str
    changed_ns: tuple[int, ...] = ()

    def now(self, digest: str | None, now_ns: int) -> _Seen:
        recent = tuple(each for each in self.changed_ns if now_ns - each < _HOUR_NS)
        if digest is None or digest == self.digest:
            return self._replace(changed_ns=recent)
        return _Seen(digest, (*recent, now_ns)[-CHANGES_MAX - 1 :])

    @property
    def suppressed(self) -> bool:
        return len(self.changed_ns) > CHANGES_MAX


class WeightsInfo:
    """Adds the digests of workers.

    It remembers them by the name of the worker, so a restart of a process does not reset the count of changes.
    """

    def __init__(self, log_event: LogEvent) -> None:
        self._log_event = log_event
        self._seen: dict[tuple[str, str], _Seen] = {}

    def write(
        self,
        workers: Sequence[Worker],
        shown: Mapping[str, str],
        digests: Mapping[str, str],
        now_ns: int,
        into: Exposition,
    ) -> None:
        """Add the series; `shown` and `digests` are keyed by uuid; `now_ns` is the time on a monotonic clock."""
        before, self._seen = self._seen, {}
        for worker in workers:
            uuid = worker.reading.uuid
            if uuid not in shown:
                continue
            about, digest = (label(worker.service), shown[uuid]), digests.get(uuid)
            seen = before.get(about) or (None if digest is None else _Seen(digest))
            if seen is None:
                continue
            now = self._seen[about] = seen.now(digest, now_ns)
            if now.suppressed and not seen.suppressed:
                text = (
                    f"the weights of {worker.name} changed more than {CHANGES_MAX} times in an hour:"
                    " brickd_weights_info leaves them out until they change less often"
                )
                command = f"brickd weights {as_argument(worker.service)}"
                self._log_event("metrics_suppressed", text, service=worker.service, worker=worker.name, command=command)
            if digest is not None:
                into.add(WEIGHTS_SUPPRESSED, int(now.suppressed), *about)
                if not now.suppressed:
                    shard, key = shard_of(worker.reading.coordinates), key_name(worker.reading.process["key"])
                    into.add(WEIGHTS, 1, *about, label(shard), key or "", digest)
