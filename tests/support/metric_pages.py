"""Pages of metrics as Prometheus reads them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from serving import Answer, answer, request, rest

from brickd.datasources.world import World
from brickd.metrics.page import MetricsPage
from brickd.model.exported_series import ExportedSeries


def pages_of(world: World, keep: Callable[[ExportedSeries], object] = lambda _: None) -> MetricsPage:
    """Return the object that makes pages of metrics for workers without weights."""
    return MetricsPage(world, ExportedSeries(), keep, lambda _: {}, lambda *_, **__: None)


Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def parsed(page: bytes) -> Series:
    """Return the value of each series. A series that occurs twice, or a malformed line, fails."""
    found: Series = {}
    for family in text_string_to_metric_families(page.decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def value(of: Series, name: str, **labels: str) -> float:
    """Return the value of one series."""
    return of[name, frozenset(labels.items())]


def labels(of: Series, name: str) -> list[Mapping[str, Any]]:
    """Return the labels of all series with a name."""
    return [dict(labels) for each, labels in of if each == name]


def get(address: str, target: str = "/metrics", *headers: str, method: str = "GET") -> Answer:
    """Send a request to the TCP port of a daemon. If no header is a Host, add one with the address of the daemon."""
    host, _, port = address.rpartition(":")
    hosts = () if any(each.startswith("Host:") for each in headers) else (f"Host: {address}",)
    sent = request(target, None, *hosts, *headers).replace(b"Host: brickd\r\n", b"", 1)
    sent = sent.replace(b"GET", method.encode(), 1)
    with socket.create_connection((host.strip("[]"), int(port)), timeout=30) as client:
        client.sendall(sent)
        return answer(rest(client))
