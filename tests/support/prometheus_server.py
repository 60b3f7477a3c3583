"""A real Prometheus for a test. Debian's package `prometheus` has it, with promtool."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running import until

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed (apt-get install prometheus)",
)


class Prometheus:
    """A running Prometheus."""

    def __init__(self, address: str) -> None:
        self._address = address

    def get(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of the API."""
        url = f"http://{self._address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        with urllib.request.urlopen(url, timeout=10) as answered:
            return json.load(answered)["data"]

    def ask(self, query: str) -> list[dict[str, Any]]:
        """Return the series that answer a query now."""
        found: list[dict[str, Any]] = self.get("query", query=query)["result"]
        return found

    def ready(self) -> bool:
        """Whether it answers."""
        try:
            self.get("status/buildinfo")
        except (urllib.error.URLError, ConnectionError):
            return False
        return True


@contextmanager
def prometheus(folder: Path, config: str) -> Iterator[Prometheus]:
    """Yield a Prometheus with this configuration, whose files are in a folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "prometheus.yml").write_text(config)
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL) as process:
        try:
            found = Prometheus(address)
            until(lambda: found.ready() or process.poll() is not None)
            yield found
        finally:
            process.terminate()
