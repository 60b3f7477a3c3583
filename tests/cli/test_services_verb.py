"""The verb `services`: how many workers each service has."""

from __future__ import annotations

from faults import Start
from verbs import brickd, document, started

IDLE = 'with brick.span("a"): pass\npause()'


def test_each_service_has_its_number_of_workers(worker: Start) -> None:
    for service in ("api", "api", "batch"):
        started(worker, IDLE, BRICKD_SERVICE=service)
    assert document("services")["services"] == [{"service": "api", "workers": 2}, {"service": "batch", "workers": 1}]
    assert brickd("services", "batch").stdout.split() == ["SERVICE", "WORKERS", "batch", "1"]
