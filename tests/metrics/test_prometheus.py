"""A real Prometheus scrapes a daemon and answers; promtool accepts the page. Debian's package `prometheus` has both."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import Start
from made_up_workers import HOSTILE
from metric_pages import get, parsed
from running import running, until
from verbs import document, started

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="prometheus is not installed (apt-get install prometheus)",
)

PROGRAM = f"""
norm, gemm, hostile = brick.brick("norm", "norm"), brick.brick("gemm"), brick.brick({HOSTILE!r})
for _ in range(100):
    with norm:
        with gemm: pass
        with hostile: pass
gemm.record(2_000_000_000)
pause()
"""

Ask = Callable[[str], list[dict[str, Any]]]


@contextmanager
def prometheus(folder: Path, target: str, token: Path) -> Iterator[Ask]:
    """Yield a function that asks a Prometheus which scrapes a target every second."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (folder / "prometheus.yml").write_text(f"""
scrape_configs:
  - job_name: brickd
    scrape_interval: 1s
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
""")
    command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with subprocess.Popen([*command, f"--web.listen-address={address}"], stderr=subprocess.DEVNULL) as process:

        def ask(query: str) -> list[dict[str, Any]]:
            url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
            try:
                with urllib.request.urlopen(url, timeout=10) as answered:
                    found: list[dict[str, Any]] = json.load(answered)["data"]["result"]
                    return found
            except (urllib.error.URLError, ConnectionError):
                return []  # it has not started yet

        try:
            yield ask
        finally:
            process.terminate()


@pytest.mark.slow
@needs_prometheus
def test_prometheus_scrapes_and_answers_with_the_figures_of_brickd(worker: Start, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(mode=0o600)
    token.write_text("s3cret\n")
    for index in "01":
        started(worker, PROGRAM, BRICKD_SERVICE="api", BRICKD_WORKER=index)
    options = ("--http", "127.0.0.1:0", "--metrics", "--http-token-file", str(token))
    with running(options=options) as daemon:
        (address,) = re.findall(r"http://(\S+)/metrics", daemon.said)
        page = get(address, "/metrics", "Authorization: Bearer s3cret").body
        checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
        with prometheus(tmp_path, address, token) as ask:
            until(lambda: ask('up{job="brickd"} == 1'))
            for row in document("bricks", "--over", "start")["bricks"]:
                name = json.dumps(row["name"].replace("\n", "\\n").replace("\x1b", "\\x1b"))
                (found,) = ask(f"brickd_span_seconds_count{{brick={name}}}")
                assert float(found["value"][1]) == row["count"]
            (found,) = ask('histogram_quantile(0.999, brickd_span_seconds_bucket{brick="gemm"})')
            assert 1 <= float(found["value"][1]) <= 3
            (found,) = ask('count({__name__=~"brickd_.+"})')
            assert float(found["value"][1]) == len(parsed(page))
            (found,) = ask('scrape_duration_seconds{job="brickd"}')
            assert float(found["value"][1]) < 5
            until(lambda: ask("changes(brickd_daemon_pages_total[1m]) > 1"))
            assert ask("resets(brickd_span_seconds_sum[1m]) > 0") == []
