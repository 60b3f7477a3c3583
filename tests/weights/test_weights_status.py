"""How `status`, problems, `status --check` and `workers` show weights that differ."""

from __future__ import annotations

import re
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from checked_record import Tensor as Sums
from faults import Start
from made_up_weights import SECOND, MadeUpWeights, several
from running import running
from test_record import recording
from test_weights_verb import settled, watching
from verbs import brickd, document, started

from brickd.analysis.weights.monitor import Weighing
from brickd.analysis.weights.replicas import holdings
from brickd.analysis.weights.scan_times import ScanTimes
from brickd.analysis.weights.verdicts import ComparedWorker, WeightsVerdict
from brickd.screens.wording import numerics
from brickd.views import weights_summary as views
from brickd.views.problems import Seen, problems

THREE = ("api/0", "api/1", "api/2")
ODD = '{"layers.1.mlp.up.weight": array("f", [1.5] * 8)}'
PROBLEM = "weights: api/2 differs in layers.1.mlp.up.weight, 1 of 3 tensors: relative error 0.5"


def odd_among(worker: Start) -> None:
    watching(worker, "0", "1")
    watching(worker, "2", more=ODD)


def checked(*arguments: str) -> tuple[int, str]:
    ended = brickd("status", "--check", *arguments)
    return ended.returncode, ended.stdout.strip()


@pytest.mark.ci
def test_differing_weights_lead_every_screen_with_and_without_a_daemon(worker: Start, prefix: str) -> None:
    odd_among(worker)
    alone = document("status")
    (finding,) = alone["weights"]
    assert (finding["kernel"], finding["layer"], finding["workers"]) == ("layers.*.mlp.up.weight", 1, ["api/2"])
    assert (finding["evidence"], finding["blame"], finding["relative_error"]) == ("weights", "culprit", 0.5)
    with running() as daemon:
        settled(daemon, *THREE)
        assert document("status")["weights"] == alone["weights"]
        screen = brickd("status", COLUMNS="140").stdout.splitlines()
        assert re.sub("[0-9a-f]{8} ", "", screen[1]) == f"! {PROBLEM}  brickd weights api"
        assert screen[2].startswith("numerics  weights: 2 of 3 workers equal, 1 of 3 tensors differs (")
        assert brickd("workers", COLUMNS="140").stdout.splitlines()[-1] == screen[1]
        assert checked() == (
            1, "unhealthy: weights of api/2 differ, expected equal weights in all replicas (brickd weights api)",
        )  # fmt: skip
        assert checked("--ignore", "weights")[0] == 0
        assert checked("--ignore", "diverged")[0] == 1
        assert document("status", "api/0")["problems"] == document("workers", "api/0")["problems"] == []
        assert checked("api/0")[0] == 0


@pytest.mark.ci
def test_the_outlier_has_a_line_among_many_workers(worker: Start, prefix: str) -> None:
    odd_among(worker)
    watching(worker, *"34567")
    assert [line.split()[0] for line in brickd("status").stdout.splitlines() if line.startswith("api/")] == ["api/2"]


@pytest.mark.ci
def test_a_recording_shows_the_worker_with_differing_weights(worker: Start, prefix: str, tmp_path: Path) -> None:
    path = str(tmp_path / "w.brick")
    program = "brick.init(); pause(); from array import array; brick.weights({'w': array('f', [n == '2'])}); pause()"
    idle = [worker(f"n = '{n}'; {program}", BRICKD_SERVICE="api", BRICKD_WORKER=n) for n in "012"]
    for each in idle:
        each.paused()
    with recording("-o", path) as process:
        for each in idle:
            each.go()
            each.paused()
        process.send_signal(signal.SIGINT)
        process.communicate()
    text = "weights: api/2 differs in w, 1 of 1 tensor: the error is unknown"
    for verb in ("status", "workers"):
        assert [each["text"] for each in document(verb, path)["problems"]] == [text]
    assert document("status", path)["numerics"][0]["input"] is None


def test_without_weights_no_screen_mentions_them(worker: Start, prefix: str) -> None:
    started(worker)
    answer = document("status")
    assert (answer["weights"], answer["numerics"], answer["problems"]) == (None, None, [])
    assert "no weights compared" in checked()[1]


# ---- how much was compared


def line(*judged: WeightsVerdict) -> str:
    """Return the line `numerics` of a status in which only weights were compared."""
    services = [
        {"service": each.service, "workers": 0, "weights": views.summary(each), "input": None, "unseen": None}
        for each in judged
    ]
    return numerics(services).replace(" · same input: not compared (brickd coverage)", "")


def test_the_status_line_shows_how_much_was_compared() -> None:
    weighed = several(*THREE, watched=2)
    assert line(weighed.judged()) == "weights: not read yet in 3 workers · unseen: 6 tensors not read yet"
    weighed.add_weight("api/0", 1)
    assert line(weighed.judged()) == (
        "weights: nothing comparable in 3 workers · unseen: 1 tensor of a single replica, 5 tensors not read yet"
    )
    weighed.add_weight("api/1", 1)
    weighed.add_weight("api/1", 5, "v")
    assert line(weighed.judged()).startswith("weights: 2 of 3 workers equal, 1 tensor (")
    assert "unseen: 1 tensor that no other worker has, 3 tensors not read yet" in line(weighed.judged())
    weighed.add_weight("api/2", 2)
    assert line(weighed.judged()).startswith("weights: 2 of 3 workers equal, 1 of 1 tensor differs (")


def aged(worker: ComparedWorker, **changes: Any) -> ComparedWorker:
    return worker._replace(times=worker.times._replace(**changes))


def test_the_status_line_shows_load_only_tensors_and_the_age() -> None:
    weighed = MadeUpWeights()
    for name in THREE:
        weighed.add(name, watched=2, once=2)
        for layer in range(2):
            weighed.add_weight(name, layer, "w", layer)
    judged = weighed.judged()
    age = "16.7 min ago"
    assert line(judged) == f"weights: 3 of 3 workers equal, 2 tensors (read at load only {age})"
    partly = judged._replace(workers=tuple(aged(each, at_load=1, rescanned_age_ns=SECOND) for each in judged.workers))
    assert line(partly) == f"weights: 3 of 3 workers equal, 2 tensors (1.0 s ago, 1 read at load only {age})"
    ended = judged._replace(workers=tuple(aged(each, age_ns=None, rescanned_age_ns=None) for each in judged.workers))
    assert line(ended) == "weights: 3 of 3 workers equal, 2 tensors (read at load only)"
    one = aged(partly.workers[0], age_ns=None, rescanned_age_ns=None)
    one_ended = partly._replace(workers=(one, *partly.workers[1:]))
    assert line(one_ended) == "weights: 3 of 3 workers equal, 2 tensors (1 read at load only)"
    assert line(partly, one_ended) == ("weights: 6 of 6 workers equal, 4 tensors (1.0 s ago, 2 read at load only)")
    slow = ScanTimes(2_000 * SECOND, 2_000 * SECOND, interval_ns=2_000 * SECOND)
    other = judged._replace(workers=tuple(each._replace(times=slow) for each in judged.workers))
    assert line(partly, other) == (
        f"weights: 6 of 6 workers equal, 4 tensors (33.3 min ago, 1 read at load only {age})"
    )


def test_several_services_are_summed_up() -> None:
    weighed = several(*THREE, watched=1)
    weighed.add("batch/0", service="batch")
    for name in THREE:
        weighed.add_weight(name, 1)
    api, batch = Weighing(weighed.numerics.weights).judged(weighed.workers)[0], several("batch/0").judged()
    assert views.summary(batch) is None
    assert line(api, api).startswith("weights: 6 of 6 workers equal, 2 tensors (")


# ---- workers that differ


def found(weighed: MadeUpWeights, *named: str) -> list[dict[str, Any]] | None:
    workers = [each for each in weighed.workers if each.name in named] or weighed.workers
    return views.findings([weighed.judged()], workers, partial=bool(named))


def only(weighed: MadeUpWeights) -> dict[str, Any]:
    of = found(weighed)
    assert of is not None
    (finding,) = of
    return finding


def test_without_a_comparison_there_is_no_empty_list_of_findings() -> None:
    weighed = several(*THREE)
    assert found(weighed) is None
    weighed.add_weight("api/0", 1)
    assert found(weighed) is None
    weighed.add_weight("api/1", 1)
    assert found(weighed) == []


def test_two_disagreeing_workers_are_named_without_blame() -> None:
    weighed = several("api/0", "api/1")
    weighed.add_weight("api/0", 1)
    weighed.add_weight("api/1", Sums(2, nan=1))
    finding = only(weighed)
    assert (finding["workers"], finding["outliers"], finding["blame"]) == (["api/0", "api/1"], {}, "unknown")
    assert (finding["not_finite"], finding["relative_error"]) == ("unknown", None)
    assert found(weighed, "api/1") == [finding]


def test_a_worker_that_changed_in_place_contradicts_itself() -> None:
    weighed = several("api/0", "api/1")
    for name, checksum in (("api/0", 1), ("api/1", 1), ("api/1", Sums(2, nan=1))):
        weighed.add_weight(name, checksum)
    finding = only(weighed)
    assert (finding["workers"], finding["contradict_themselves"]) == (["api/1"], ["api/1"])
    assert finding["not_finite"] == "born"


def test_the_weights_of_another_shard_are_a_finding_without_comparable_tensors() -> None:
    weighed = several("api/0.pp0", "api/1.pp0", "api/2.pp0", "api/1.pp1", "api/2.pp1")
    for worker in weighed.workers:
        at = "first" if worker.name.endswith("pp0") and worker.name != "api/0.pp0" else "last"
        weighed.add_weight(worker.name, 1, at)
    finding = only(weighed)
    assert (finding["workers"], finding["kernel"], finding["holds_shard"]) == (["api/0.pp0"], None, "pp1")
    assert (finding["cases"], finding["relative_error"], finding["blame"]) == (0, None, "culprit")
    assert problems(Seen((), weights=[finding]))[0].text.startswith(
        "weights: api/0.pp0 has the weights of pp1 in all of its 1 "
    )


def test_unchanged_weights_are_compared_once_and_age(monkeypatch: pytest.MonkeyPatch) -> None:
    weighed = several(*THREE, watched=1)
    for name in THREE:
        weighed.add_weight(name, 1)
    weighing = Weighing(weighed.numerics.weights)
    (before,) = weighing.judged(weighed.workers)
    with monkeypatch.context() as context:
        context.setattr("brickd.analysis.weights.monitor.judge", None)
        (after,) = weighing.judged(weighed.workers)
    assert before.age_ns is not None
    assert after.age_ns is not None
    assert after.age_ns > before.age_ns
    weighed.add_weight("api/2", 2)
    assert weighing.judged(weighed.workers)[0].verdict == "differ"
    lane: Any = {"weights_every": 10**12, "weights_once": 0}
    consumer: Any = {}
    weighed.workers[0].reading.lanes.append((0, lane, consumer))
    planned, *_ = weighing.judged(weighed.workers)[0].workers
    assert planned.times.every_ns == 10**12
    one = weighed.workers[0]
    weighed.workers[0] = one._replace(reading=replace(one.reading, pid=None))
    assert len(weighing.judged(weighed.workers)[0].workers) == 2


# ---- compared weights


def tensors(weighed: MadeUpWeights) -> dict[tuple[str, int], views.TensorSeen]:
    held = holdings(weighed.numerics.weights, weighed.workers)
    return {(each.place.kernel, each.place.layer): each for each in views.tensors([weighed.judged()], held)}


def test_each_tensor_shows_comparisons_and_differences() -> None:
    weighed = several(*THREE)
    for name, checksum in zip(THREE, (1, 1, 2), strict=True):
        weighed.add_weight(name, checksum, "w.*", 3)
        weighed.add_weight(name, 7, "up.*", 3, 0)
    weighed.add_weight("api/0", 8, "up.*", 3, 1)
    weighed.add_weight("api/1", 9, "v", generation=1)
    weighed.add_weight("api/2", 9, "v", generation=2)
    found = tensors(weighed)
    assert found["w.*", 3][1:] == (3, 3, 1, True)
    assert found["up.*", 3][1:] == (4, 3, 0, False)
    assert found["v", -1][1:] == (2, 0, 0, False)


def test_a_missing_tensor_is_a_finding() -> None:
    weighed = several(*THREE, watched=1)
    weighed.workers[0].reading.process["weights"] = 2
    for name in THREE:
        weighed.add_weight(name, 7)
    weighed.add_weight("api/0", Sums(8, nan=1), "v")
    assert tensors(weighed)["v", -1][1:] == (1, 0, 0, True)
    finding = only(weighed)
    assert (finding["workers"], finding["kernel"], finding["not_finite"]) == (["api/0"], "v", None)
    assert finding["text"] == "api/0 differs in v, 1 of 2 tensors: missing in the others, contains 1 NaN"


def test_tensors_of_other_shards_do_not_count_as_compared() -> None:
    weighed = several("api/0.tp0", "api/1.tp0", "api/0.tp1", "api/2.tp0")
    for name in ("api/0.tp0", "api/1.tp0", "api/0.tp1"):
        weighed.add_weight(name, 1)
    weighed.add_weight("api/2.tp0", Sums(1, shape=2))
    assert tensors(weighed)["w", -1][1:] == (4, 3, 1, True)


@pytest.mark.ci
def test_coverage_shows_weights_next_to_inputs(worker: Start, prefix: str) -> None:
    odd_among(worker)
    answer = document("coverage")
    assert [(each["kernel"], each["layer"], each["state"], each["evidence"]) for each in answer["sites"]] == [
        ("layers.*.mlp.up.weight", 1, "differs", ["weights"]),
        ("layers.*.mlp.up.weight", 0, "compared", ["weights"]),
        ("norm.weight", None, "compared", ["weights"]),
    ]
    assert answer["findings"] == document("status")["weights"]
    assert (answer["services"][0]["weights"]["compared"], answer["services"][0]["weights"]["differ"]) == (3, 1)
    screen = brickd("coverage", COLUMNS="120").stdout.splitlines()
    assert screen[1:3] == [
        f"! {PROBLEM}  brickd weights api",
        "unproven  api: outputs (no fingerprints)  brickd coverage api",
    ]
    assert screen[4].split() == ["layers.*.mlp.up.weight", "1", "weights", "differs", "3", "3", "1", "0"]
