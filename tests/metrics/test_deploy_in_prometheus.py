"""A real Prometheus scrapes a real daemon: every expression in deploy/ has an answer, and alerts name their cause."""

from __future__ import annotations

import re
import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest
from deploy_files import RULES, SCRAPE, dashboard, panel_expressions, rules, variable_queries
from faults import Start
from prometheus_server import needs_prometheus, prometheus
from running import running, until
from verbs import LOSING, started

pytestmark = [pytest.mark.slow, needs_prometheus]

REPLICA = """
import select
from array import array
number = int(os.environ["BRICKD_WORKER"])
brick.weights({"layers.0.w": array("f", [number // 2] * 8)})
gemm, out = brick.brick("gemm"), array("f", [number // 2] * 8)
report()
while not select.select([0], [], [], 0.01)[0]:
    with brick.step(None):
        with gemm: pass
        brick.checksum("k", out, input=array("f", [1] * 8))
"""
# The selectors of conditions that no test can wait for, such as those about yesterday.
SELECTOR = re.compile(r"(?:\w+:)?brickd_\w+(?::\w+)?(?:\{[^}]*\})?")


def config(folder: Path, daemon: str) -> str:
    """Return the example configuration for this daemon, with short intervals.

    Write the rules into the folder, changed so that their alerts fire at once.
    """
    (folder / RULES.name).write_text(re.sub(r"\bfor: \d+m", "for: 0s", RULES.read_text()))
    return SCRAPE.read_text().replace("127.0.0.1:9230", daemon).replace("_interval: 15s", "_interval: 1s")


def filled(expression: str) -> str:
    """Return an expression of the dashboard with all services, and with a short period for rates."""
    return re.sub(r"\$(instance|service|brick)\b", ".*", expression).replace("$__rate_interval", "10s")


def test_every_expression_has_an_answer_and_every_alert_names_its_cause(tmp_path: Path, worker: Start) -> None:
    with running(options=("--http", "127.0.0.1:0", "--metrics")) as daemon, ExitStack() as stack:
        (address,) = re.findall(r"http://(\S+)/metrics", daemon.said)
        server = stack.enter_context(prometheus(tmp_path, config(tmp_path, address)))
        daemon.ask("/set", b"threshold=stuck_min%3D1s")
        for number in range(3):  # the last one has other weights
            worker(REPLICA, BRICKD_SERVICE="api", BRICKD_WORKER=str(number)).next_report()
        started(worker, LOSING, BRICKD_SERVICE="losing")
        started(worker, "with brick.span('a'): pass\npause()", BRICKD_SERVICE="killed").kill()
        stopped = worker(REPLICA, BRICKD_SERVICE="stopped", BRICKD_WORKER="0")
        stopped.next_report()
        stopped.process.send_signal(19)

        found = server.get("rules")["groups"]
        assert {each["name"] for group in found for each in group["rules"]} == {each.name for each in rules()}
        fires = {
            "BrickdWrongNumbersWhileWorkersStart": "api: api/2 has wrong numbers (weights)",
            "BrickdWorkerStuck": "stopped: stopped/0 hangs",
            "BrickdRecordsLost": "losing: records are lost (losing/0)",
            "BrickdProblem": "killed: died (killed/0)",
        }
        whole = [each.expression for each in rules() if each.kind == "record" or each.name in fires]
        parts = {part for each in rules() for part in SELECTOR.findall(each.expression)}
        asked = [*whole, *sorted(parts), *map(filled, panel_expressions()[: len(dashboard()["panels"])])]
        unanswered: list[str] = []

        def answered() -> bool:
            unanswered[:] = [each for each in asked if not server.ask(each)]
            return not unanswered

        until(answered)
        for query in variable_queries():
            inside = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
            assert inside is not None
            assert all(inside[2] in each["metric"] for each in server.ask(filled(inside[1])))
        for each in map(filled, panel_expressions()):
            server.ask(each)

        def firing() -> dict[str, set[str]]:
            texts: dict[str, set[str]] = {}
            for each in server.get("alerts")["alerts"]:
                texts.setdefault(each["labels"]["alertname"], set()).add(each["annotations"]["summary"])
            return texts

        until(lambda: fires.keys() <= firing().keys())
        texts = firing()
        assert all(summary in texts[name] for name, summary in fires.items()), texts
        assert texts.keys() == fires.keys()
        found = [each for group in server.get("rules")["groups"] for each in group["rules"]]
        assert {(each["name"], each["lastError"]) for each in found if each.get("lastError")} == set()
        described = [each["annotations"]["description"] for each in server.get("alerts")["alerts"]]
        assert all(f"On {address}, run" in each and "<no value>" not in each for each in described)
        daemon.kill()
        until(lambda: "BrickdDaemonDown" in firing())


def test_promtool_accepts_the_file_for_node_exporter(tmp_path: Path, worker: Start) -> None:
    file = tmp_path / "brickd.prom"
    worker(REPLICA, BRICKD_SERVICE="api", BRICKD_WORKER="0").next_report()
    with running(options=("--metrics-textfile", str(file))):
        until(lambda: b"brickd_span_seconds_bucket" in file.read_bytes())
        page = file.read_bytes()
        done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
