"""prometheus_client in multiprocess mode; PROMETHEUS_MULTIPROC_DIR is set before the process starts."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.method import Case
from benchmarks.peers import needs

BY = "prometheus_client"
TIME = "with h.time():"
OBSERVE = "h.observe(x)"
INC = "c.inc()"
HOW = dict.fromkeys((TIME, OBSERVE, INC), "multiprocess mode")


def cases(_: Path) -> list[Case]:
    """Return three cases: a timed block, an observation and an increment."""
    client = needs.package("prometheus_client", needs.BENCH)
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        raise RuntimeError("PROMETHEUS_MULTIPROC_DIR is not set, expected prometheus_client in multiprocess mode")
    registry = client.CollectorRegistry()

    def recorded(sample: str) -> int:
        return int(registry.get_sample_value(sample))

    timed, observed = (client.Histogram(name, "A span", registry=registry) for name in ("timed", "observed"))
    counter = client.Counter("spans", "Spans", registry=registry)
    return [
        Case(TIME, "with h.time(): pass", {"h": timed}, recorded=lambda: recorded("timed_count")),
        Case(OBSERVE, "h.observe(x)", {"h": observed, "x": 0.001}, recorded=lambda: recorded("observed_count")),
        Case(INC, "c.inc()", {"c": counter}, recorded=lambda: recorded("spans_total")),
    ]
