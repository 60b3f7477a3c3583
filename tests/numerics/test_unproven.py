"""If nothing proves that workers agree, every screen shows this, with or without a daemon."""

from __future__ import annotations

import os
import time

import pytest
from faults import Start
from running import running
from test_coverage import OF_A_ROUND, settled, workers
from verbs import brickd, document, started

from brickd.base.paths import runtime
from brickd.base.units import SECOND
from brickd.daemon.daemon import Daemon
from brickd.model.survey_snapshot import Snapshot
from brickd.query.orders import Setting
from brickd.state.runtime_dir import Home

# Each worker computes something different, so no fingerprint has a counterpart. All workers have the same weights.
ALONE = """
from array import array
import numpy as np
brick.init()
if WEIGHTS:
    brick.weights({"w": array("f", [1, 2])})
x = np.arange(4, dtype="f")
for step in range(3):
    brick.checksum("mlp", x + step, input=x + 100 * NUMBER + step, layer=0)
pause()
"""


def alone(worker: Start, *, weights: bool = False) -> None:
    for number in range(2):
        program = f"NUMBER, WEIGHTS = {number + 1}, {weights}\n{ALONE}"
        started(worker, program, BRICKD_SERVICE="api", BRICKD_WORKER=str(number))


@pytest.mark.ci
def test_without_a_counterpart_no_screen_reports_that_all_is_well(worker: Start, prefix: str) -> None:
    with running() as daemon:
        alone(worker)
        settled(daemon, 6)
        screen = brickd("status", COLUMNS="140").stdout.splitlines()
        assert screen[0].endswith("  no problem, 1 unproven")
        why = "outputs (0 of 6 fingerprints had a counterpart)"
        line = f"unproven  api: weights (none watched), {why}  brickd coverage api"
        assert line in screen
        assert brickd("coverage", COLUMNS="140").stdout.splitlines()[1] == line
        ended = brickd("status", "--check", "--require", "outputs")
        assert ended.returncode == 1
        assert ended.stdout.startswith("unhealthy: outputs unproven in api (0 of 6 fingerprints had a counterpart), ")
        assert brickd("status", "--check").returncode == 0
        assert brickd("diff", "api").returncode == 6
        ended = brickd("diff", "api", "--fail-on", "unproven")
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.startswith("brickd: unproven: nothing of api/0 and api/1 can be compared")


@pytest.mark.ci
def test_a_daemon_reports_unproven_outputs_after_its_threshold(worker: Start, prefix: str) -> None:
    alone(worker)
    with Home(runtime()) as home:
        daemon = Daemon(home)
        begun_ns = time.monotonic_ns()

        def reported(after_seconds: float) -> bool:
            """Take a snapshot at this time, as the daemon's sampler would; return whether the event is logged then."""
            now_ns = begun_ns + int(after_seconds * SECOND)
            for taker in daemon._sampler._takers:
                taker.take(Snapshot.of(daemon.survey(), now_ns, time.time_ns()))
            return "evidence_unproven" in [event.kind for event in daemon.events.since(0).events]

        assert [reported(0), reported(59)] == [False, False]
        daemon.orders.set_thresholds(Setting(threshold=("unproven_for=2m",)))
        assert [reported(60), reported(119)] == [False, False]
        daemon.orders.set_thresholds(Setting(threshold=("unproven_for=119s",)))
        assert reported(119)
        os.close(daemon._loop._wake)


@pytest.mark.ci
def test_equal_weights_do_not_prove_outputs(worker: Start, prefix: str) -> None:
    alone(worker, weights=True)
    answer = document("diff", "api")
    assert (answer["evidence"], answer["verdict"]) == ("weights", "identical")
    assert [(each["evidence"], each["verdict"], each["looked_at"]) for each in answer["evidence_classes"]] == [
        ("weights", "equal", 1),
        ("input", "unproven", 6),
    ]
    assert answer["headlines"][1].startswith("outputs unproven (0 of 6 fingerprints compared): ")
    ended = brickd("diff", "api", "--fail-on", "unproven")
    assert (ended.returncode, ended.stderr) == (1, "")
    assert brickd("diff", "api", "--by", "weights", "--fail-on", "unproven").returncode == 0
    ended = brickd("status", "--check", "--require", "weights", "--require", "outputs")
    assert ended.stdout.startswith("unhealthy: outputs unproven in api (no daemon compares them), ")
    assert brickd("status", "--check", "--require", "weights").returncode == 0
    assert brickd("status", "--check", "--require", "history").returncode == 1


def test_equal_outputs_are_proven_without_watched_weights(worker: Start, prefix: str) -> None:
    workers(worker, (0, 0))
    answer = document("diff", "api")
    assert [(each["evidence"], each["verdict"]) for each in answer["evidence_classes"]] == [
        ("weights", "unproven"),
        ("input", "equal"),
    ]
    ended = brickd("diff", "api", "--fail-on", "unproven")
    assert (ended.returncode, "by weights: unproven: none watched" in ended.stdout) == (0, True)
    assert brickd("diff", "api", "--by", "weights", "--fail-on", "unproven").returncode == 1


def test_a_service_without_fingerprints_is_reported_as_unproven_in_few_words(worker: Start, prefix: str) -> None:
    started(worker, BRICKD_SERVICE="api")
    screen = brickd("status").stdout.splitlines()
    assert screen[0].endswith("  no problem")
    assert screen[1] == "unproven  api: no fingerprints, no weights"
    proofs = document("status")["evidence"]
    assert {(each["service"], each["verdict"], each["recorded"]) for each in proofs} == {("api", "unproven", False)}


def test_without_workers_the_check_fails_unless_that_is_allowed(prefix: str) -> None:
    ended = brickd("status", "--check")
    assert (ended.returncode, ended.stdout.split(" (")[0]) == (1, "unhealthy: no worker, expected at least one")
    assert brickd("status", "--check", "--allow-empty").returncode == 0


@pytest.mark.ci
def test_a_comparison_of_two_workers_mentions_the_outlier_named_by_the_daemon(worker: Start, prefix: str) -> None:
    workers(worker, (0, 1, 0))
    with running() as daemon:
        settled(daemon, 3 * OF_A_ROUND)
        daemon.until("diverged")
        answer = document("diff", "api/0", "api/1", code=1)
        assert answer["outlier"] is None
        assert answer["headlines"][1].startswith("over all workers: api/1 differs from the others since ")
        (known,) = answer["known"]
        assert (known["evidence"], known["workers"]) == ("input", ["api/1"])
        answer = document("diff", "api", code=1)
        assert (answer["outlier"], len(answer["known"])) == ("api/1", 1)
        assert not any(line.startswith("over all") for line in answer["headlines"])
        assert document("diff", "api/0", "api/2")["known"] == []
