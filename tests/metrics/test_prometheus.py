"""A real Prometheus scrapes a daemon and answers; promtool accepts the page. Debian's package `prometheus` has both."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from faults import Start
from made_up_workers import HOSTILE
from metric_pages import get, parsed
from prometheus_server import needs_prometheus, prometheus
from running import running, until
from verbs import document, started

PROGRAM = f"""
norm, gemm, hostile = brick.brick("norm", "norm"), brick.brick("gemm"), brick.brick({HOSTILE!r})
for _ in range(100):
    with norm:
        with gemm: pass
        with hostile: pass
gemm.record(2_000_000_000)
pause()
"""

CONFIG = """
scrape_configs:
  - job_name: brickd
    scrape_interval: 1s
    authorization: {{credentials_file: {token}}}
    static_configs: [{{targets: ["{target}"]}}]
"""


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
        with prometheus(tmp_path, CONFIG.format(target=address, token=token)) as server:
            ask = server.ask
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
