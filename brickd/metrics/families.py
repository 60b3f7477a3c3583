"""The families of metrics: name, type, meaning. `docs/reference/metrics.md` describes each one.

Owns: the names. Must not know: values. Invariant: the names, types and labels of a family never change.
"""

from __future__ import annotations

from typing import Literal, NamedTuple


class Family(NamedTuple):
    """The series that share a name. `labels` has the names of their labels, except `le`."""

    name: str
    type: Literal["counter", "gauge", "histogram", "summary"]
    labels: tuple[str, ...]
    help: str


SPANS = Family("brickd_span_seconds", "histogram", ("service", "brick"), "Durations of spans.")
BOUNDS = Family(
    "brickd_span_bound_seconds",
    "summary",
    ("service", "brick"),
    "Upper bounds of the durations of deferred work that no device measured.",
)
WORKER_SPANS = Family(
    "brickd_worker_span_seconds", "summary", ("service", "worker", "brick"), "Durations of spans of a worker."
)
WORKER_BOUNDS = Family(
    "brickd_worker_span_bound_seconds",
    "summary",
    ("service", "worker", "brick"),
    "Upper bounds of the durations of a worker's deferred work that no device measured.",
)
OTHER_BRICKS = Family(
    "brickd_other_bricks", "gauge", ("service",), "The number of bricks that are counted as brick=other."
)

WORKERS = Family("brickd_workers", "gauge", ("service", "state"), "The number of workers in this state.")
WORKER_UP = Family("brickd_worker_up", "gauge", ("service", "worker"), "1 if the worker is alive, else 0.")
WORKER_STARTED = Family(
    "brickd_worker_start_time_seconds",
    "gauge",
    ("service", "worker"),
    "When the worker started, in seconds since 1970.",
)
WORKER_LOST = Family(
    "brickd_worker_lost_records_total",
    "counter",
    ("service", "worker", "stream"),
    "Spans, details and events of a worker that were lost.",
)
LOST = Family(
    "brickd_lost_records_total", "counter", ("service", "stream"), "Spans, details and events that were lost."
)
LEDGER = Family(
    "brickd_ledger_records",
    "gauge",
    ("service", "stream", "term"),
    "The number of records with this term of the ledger.",
)

PROBLEM = Family(
    "brickd_problem",
    "gauge",
    ("service", "worker", "kind", "state"),
    "The number of problems of this kind in this state.",
)
EVIDENCE = Family(
    "brickd_evidence_verdict",
    "gauge",
    ("service", "evidence", "verdict"),
    "1 for the present verdict by this class of evidence: equal, diverged or unproven.",
)
LOOKED_AT = Family(
    "brickd_evidence_looked_at",
    "gauge",
    ("service", "evidence"),
    "The number of recorded fingerprints, or of watched weights.",
)
COMPARED = Family(
    "brickd_evidence_compared",
    "gauge",
    ("service", "evidence"),
    "The number of recorded fingerprints, or of watched weights, that were compared.",
)
WEIGHTS = Family(
    "brickd_weights_info",
    "gauge",
    ("service", "worker", "shard", "key", "digest"),
    "The digest of all weights of a worker. Compare the digests of one service, shard and key.",
)
WEIGHTS_SUPPRESSED = Family(
    "brickd_weights_info_suppressed",
    "gauge",
    ("service", "worker"),
    "1 if brickd_weights_info leaves out the digest of this worker, because the digest changes too often.",
)

DAEMON = Family("brickd_daemon_info", "gauge", ("version",), "The version of the daemon.")
STARTED = Family("brickd_daemon_start_time_seconds", "gauge", (), "When the daemon started, in seconds since 1970.")
LOOP_AGE = Family("brickd_daemon_loop_age_seconds", "gauge", (), "The time since the daemon last read all segments.")
SAVE_FAILING = Family(
    "brickd_daemon_save_failing", "gauge", (), "1 if the daemon's last attempt to save its state failed."
)
QUARANTINED = Family("brickd_daemon_quarantined_segments", "gauge", (), "The number of invalid segments.")
CPU_SECONDS = Family("brickd_daemon_cpu_seconds_total", "counter", (), "The processor time of the daemon.")
MEMORY = Family("brickd_daemon_resident_memory_bytes", "gauge", (), "The resident memory of the daemon.")
PAGES = Family(
    "brickd_daemon_pages_total", "counter", (), "The number of pages of metrics that were made before this page."
)
PAGE_SECONDS = Family(
    "brickd_daemon_page_cpu_seconds_total",
    "counter",
    (),
    "The processor time for the pages of metrics that were made before this page.",
)
TEXTFILE_FAILURES = Family(
    "brickd_daemon_textfile_failures_total",
    "counter",
    (),
    "The number of failed attempts to write the file of metrics.",
)

FAMILIES = (
    *(SPANS, BOUNDS, OTHER_BRICKS, WORKER_SPANS, WORKER_BOUNDS),
    *(WORKERS, WORKER_UP, WORKER_STARTED, WORKER_LOST, LOST, LEDGER),
    *(PROBLEM, EVIDENCE, LOOKED_AT, COMPARED, WEIGHTS, WEIGHTS_SUPPRESSED),
    *(DAEMON, STARTED, LOOP_AGE, SAVE_FAILING, QUARANTINED, CPU_SECONDS, MEMORY),
    *(PAGES, PAGE_SECONDS, TEXTFILE_FAILURES),
)
