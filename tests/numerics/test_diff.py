"""`brickd diff` of real workers, live and in recordings, and its screens."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import Worker
from faults import Start
from made_up_workers import HOSTILE
from replicas import MODEL, PROMPT
from running import running
from test_record import recording
from verbs import brickd, document, sheet, started

import brickd as brickd_package
from brickd.base.units import NO_WORKERS
from brickd.errors import NothingComparable
from brickd.views.diff_operands import Term, term

# With this clock, a tick is 1 ns, so an idle worker shows the same numbers at any time.
STILL = {"BRICKD_CLOCK": "monotonic", "BRICKD_SERVICE": "api"}
DAMAGED = MODEL + "from benchmarks.damage import *\nweights = drawn(size, 1)\noperate = as_it_should\n"
REPORT = "\nreport_of(Model(size, weights, operate))\npause()\n"
WEIGHT = "assert WeightFault(1, 'layers.1.mlp.down.weight', Change(Kind.FLIP, 3, 30)).strike(weights, size)\n"
OPERATOR = (
    f"operate = OperatorFault(1, OperatorCall('mlp.gate', 1, 2, {PROMPT + 1}), Change(Kind.SCALE, 5, 0), size.heads)\n"
)
WATCHED = "brick.weights(weights)\n"
PLAIN = """
import numpy as np
x = np.arange(12, dtype="f").reshape(3, 4)
mlp = brick.brick(name, category="ffn")
brick.init()
pause()
for step in range(3):
    x += 1
    with brick.step(step + 1):
        y = x * 2 + bad * (step == 1)
        brick.checksum(mlp, y, input=x, layer=2)
        brick.checksum("down", y + 1, input=y, layer=2)
pause()
"""


def replica(worker: Start, number: int, fault: str = "") -> Worker:
    process = worker(DAMAGED + fault + REPORT, BRICKD_WORKER=str(number), **STILL)
    process.paused()
    return process


def idle_worker(worker: Start, number: int, bad: float = 0, name: str = "mlp", **environment: str) -> Worker:
    """Start a worker that has not recorded anything yet."""
    process = worker(f"bad, name = {bad}, {name!r}\n{PLAIN}", BRICKD_WORKER=str(number), **STILL | environment)
    process.paused()
    return process


def plain(worker: Start, number: int, bad: float = 0, name: str = "mlp", **environment: str) -> Worker:
    process = idle_worker(worker, number, bad, name, **environment)
    process.go()
    process.paused()
    return process


def recorded(file: str, *processes: Worker, arguments: Sequence[str] = ()) -> None:
    """Let the workers continue while a recording is made."""
    with recording("-o", file, *arguments) as recorder:
        for process in processes:
            process.go()
            process.paused()
        recorder.send_signal(signal.SIGINT)
        _, err = recorder.communicate()
        assert recorder.returncode == 0, err


def before_and_after(worker: Start, folder: Path) -> list[str]:
    """Make a recording of a correct worker, and another after it has become wrong."""
    files = [str(folder / name) for name in ("base.brick", "new.brick")]
    for number, file in enumerate(files):
        process = idle_worker(worker, 0, 0.5 * number)
        recorded(file, process)
        process.go()
        assert process.end() == 0
    return files


def place(given: Any) -> tuple[Any, ...]:
    first = given["first"]
    return first["kernel"], first["layer"], int(first["step"], 16), first["position"], first["blame"]


# ---- known faults


@pytest.mark.ci
@pytest.mark.parametrize("by", [(), pytest.param(("--by", "run"), marks=pytest.mark.ci)])
def test_a_damaged_weight_is_reported_at_its_first_reader(worker: Start, by: tuple[str, ...]) -> None:
    for number, fault in enumerate(("", WEIGHT, "")):
        replica(worker, number, fault + WATCHED)
    answer = document("diff", "api", *by, code=1)
    assert (answer["outlier"], place(answer)) == ("api/1", ("mlp.down", 1, 0, 0, "culprit"))
    assert [(each["name"], each["layer"]) for each in answer["first"]["weights"]] == [("layers.*.mlp.down.weight", 1)]
    assert "weight layers.1.mlp.down.weight differs in api/1 (--by weights)" in answer["headlines"]
    by_weights = document("diff", "api", "--by", "weights", code=1)
    assert (by_weights["evidence"], by_weights["outlier"], by_weights["diverged"]) == ("weights", "api/1", 1)
    assert document("diff", "api/0", "api/2", "--by", "weights")["verdict"] == "identical"


@pytest.mark.ci
def test_a_damaged_activation_is_found_at_its_kernel_layer_and_step(worker: Start) -> None:
    for number, fault in enumerate(("", OPERATOR)):
        replica(worker, number, fault)
    for by in ("input", "run"):
        answer = document("diff", "api/0", "api/1", "--by", by, code=1)
        assert place(answer) == ("mlp.gate", 1, 2, PROMPT + 1, "culprit")
    assert (answer["identical"], answer["diverged"], answer["follow"]) == (answer["compared"] - 4, 4, 3)


@pytest.mark.ci
def test_different_weights_are_not_equal_even_without_an_effect_yet(worker: Start) -> None:
    idle = "\nx = np.ones(4, 'f'); brick.checksum('k', x, input=x, step=1); pause()\n"
    for number, fault in enumerate(("", WEIGHT)):
        worker(DAMAGED + fault + WATCHED + idle, BRICKD_WORKER=str(number), **STILL).paused()
    answer = document("diff", "api", code=1)
    assert (answer["evidence"], answer["others"][0]["verdict"]) == ("weights", "identical")
    assert brickd("diff", "api").stdout.startswith("by weights: diverged: api/0 and api/1 disagree, in layers.1.mlp")


TRAFFIC = """
import numpy as np
weights = {"w": np.ones(4, "f")}
brick.init()
brick.weights(weights)
for step in (1, 2):
    x = np.arange(8, dtype="f") + step + 100 * number
    with brick.step(step):
        brick.checksum("up", x * 2, input=given)
        brick.checksum("down", x * 3, input=given)
pause()
"""


@pytest.mark.ci
def test_replicas_with_different_traffic_are_neither_equal_nor_diverged(worker: Start) -> None:
    for service, given in (("seen", "x"), ("bare", "None")):
        for number in range(2):
            program = f"number = {number}\n{TRAFFIC.replace('given', given)}"
            worker(program, BRICKD_WORKER=str(number), **STILL | {"BRICKD_SERVICE": service}).paused()
    for words in (("--step", "77"), ("--since", "0.5"), ("--by", "input")):
        ended = brickd("diff", "seen", *words)
        assert (ended.returncode, ended.stdout) == (6, ""), words
        assert "weights are equal (--by weights)" in ended.stderr
    for service in ("seen", "bare"):
        ended = brickd("diff", service)
        first, second, *_ = ended.stdout.splitlines()
        assert (ended.returncode, ended.stderr) == (0, "")
        assert first == f"by weights: identical, {service}/0 and {service}/1: 1 tensor"
        assert second.startswith("  outputs unproven (0 of 8 fingerprints compared): 8 without ")
        assert second.endswith(" (if the workers did the same work: --by run)")
    assert document("diff", "bare", "--by", "run", code=1)["verdict"] == "diverged"
    assert document("diff", "seen", "--by", "weights")["verdict"] == "identical"


@pytest.mark.ci
def test_a_text_step_can_be_selected_by_text_or_digits(worker: Start) -> None:
    program = """
from array import array
for step in ("req-1", "Anfrage ä", 1_700_000_000_000_000):
    with brick.step(step):
        brick.checksum("mlp", array("f", [3, bad * (step == "Anfrage ä")]), input=array("f", [len(str(step))]))
pause()
"""
    for number in range(2):
        worker(f"bad = {number}\n{program}", BRICKD_WORKER=str(number), **STILL).paused()
    assert document("diff", "api", "--step", "req-1")["compared"] == 1
    answer = document("diff", "api", "--step", "Anfrage ä", code=1)
    assert answer["compared"] == 1
    assert (answer["first"]["step_text"], ", step Anfrage ä, position 0" in answer["diagnosis"]) == ("Anfrage ä", True)
    digest = answer["first"]["step"]
    unnamed = document("diff", "api", "--step", digest, code=1)
    assert (unnamed["first"], unnamed["diagnosis"]) == (answer["first"], answer["diagnosis"])
    ended = brickd("diff", "api", "--step", "req-2")
    assert (ended.returncode, ended.stdout) == (6, "")
    assert "step req-2 has no fingerprints" in ended.stderr
    assert brickd_package.diff("api", step="req-1").matched
    assert brickd_package.diff("api", step=1_700_000_000_000_000).compared == 1


def test_an_overwritten_input_is_compared_by_its_earlier_fingerprint(worker: Start) -> None:
    program = """
import numpy as np
kernel = brick.brick("scale")
for step in (1, 2):
    x = np.arange(8, dtype="f") + step
    before = brick.take(kernel, x)
    x *= 2 + bad * (step == 2)
    brick.checksum(kernel, x, input=before, step=step)
pause()
"""
    for number in range(2):
        worker(f"bad = {number}\n{program}", BRICKD_WORKER=str(number), **STILL).paused()
    assert place(document("diff", "api", code=1)) == ("scale", None, 2, 0, "culprit")


@pytest.mark.ci
@pytest.mark.parametrize("fixtures", [(), ("daemon",)])
def test_shards_of_a_model_are_compared_only_with_their_replicas(
    worker: Start, fixtures: Sequence[str], request: pytest.FixtureRequest
) -> None:
    for name in fixtures:
        request.getfixturevalue(name)
    program = "y = np.arange(8, dtype='f'); brick.checksum('qkv', y * n, input=y, step=1); pause()\n"
    for coordinates, factor in (("0.tp0", 1), ("0.tp1", 2), ("1.tp0", 1), ("1.tp1", 2)):
        started = worker(f"import numpy as np\nn = {factor}\n{program}", **STILL | {"BRICKD_WORKER": coordinates})
        started.paused()
    for by in ("input", "run"):
        answer = document("diff", "api", "--by", by)
        assert (answer["verdict"], answer["identical"], answer["not_comparable"]) == ("identical", 2, {})
        alone = brickd("diff", "api/0.tp0", "api/0.tp1", "--by", by)
        assert (alone.returncode, "1 of another shard" in alone.stderr) == (6, True), alone.stderr
    assert brickd("status", "--check").returncode == 0
    worker(f"import numpy as np\nn = 3\n{program}", **STILL | {"BRICKD_WORKER": "2.tp1"}).paused()
    answer = document("diff", "api", code=1)
    assert (answer["outlier"], answer["first"]["kernel"], answer["identical"]) == ("api/2.tp1", "qkv", 2)


@pytest.mark.ci
def test_only_outputs_of_the_same_weights_generation_are_compared(worker: Start) -> None:
    program = """
import numpy as np
w, x = np.full(4, 1 + updated, "f"), np.arange(4, dtype="f")
brick.weights({"w": w}, generation=f"v{updated}")
brick.checksum("gen", w * x, input=x, step=1)
pause()
w[:] = 2
brick.weights({"w": w}, generation="v1")
brick.checksum("gen", w * x, input=x, step=2)
pause()
"""
    workers = [worker(f"updated = {n}\n{program}", BRICKD_WORKER=str(n * 2), **STILL) for n in (0, 1)]
    workers.append(worker(f"updated = 0\n{program}", BRICKD_WORKER="1", **STILL))
    for each in workers:
        each.paused()
    for by in ("input", "run"):
        answer = document("diff", "api", "--by", by)
        assert (answer["verdict"], answer["identical"], answer["not_comparable"]) == ("identical", 1, {"params": 1})
    assert brickd("status", "--check").returncode == 0
    for each in workers:
        each.go()
        each.paused()
    answer = document("diff", "api", "--by", "run")
    assert (answer["verdict"], answer["identical"], answer["not_comparable"]) == ("identical", 3, {"params": 1})


def test_different_experts_fail_like_any_difference(worker: Start) -> None:
    program = "brick.checksum('moe.router', array('q', [3, expert]), input=b'same', step=1); pause()\n"
    for number in range(2):
        worker(f"from array import array\nexpert = {number}\n{program}", BRICKD_WORKER=str(number), **STILL).paused()
    assert document("diff", "api", code=1)["verdict"] == "routing"


# ---- the sources of an answer


OTHER = {"BRICKD_SERVICE": "batch"}
TIMED = {"source", "recording", "recordings", "command"}


def still(value: Any, names: dict[str, str]) -> Any:
    """Return a document without the values that depend on the reader, and with the names that the workers have on this
    machine.
    """
    if isinstance(value, dict):
        return {key: still(each, names) for key, each in value.items() if key not in TIMED}
    if isinstance(value, str):
        for other, name in names.items():
            value = value.replace(other, name)
    return [still(each, names) for each in value] if isinstance(value, list) else value


@pytest.mark.ci
def test_the_document_is_the_same_from_a_daemon_memory_recordings_or_a_mix(worker: Start, tmp_path: Path) -> None:
    for number in range(2):
        plain(worker, number, 0.5 * number)
    alone = document("diff", "api/0", "api/1", code=1)
    assert (alone["source"], place(alone)) == ("shared memory", ("mlp", 2, 2, 0, "culprit"))
    base = str(tmp_path / "o:ne.brick")
    with running():
        answer = document("diff", "api/0", "api/1", code=1)
        assert (answer["source"], still(answer, {})) == ("daemon", still(alone, {}))
        processes = [idle_worker(worker, number, 0.5 * number, **OTHER) for number in range(2)]
        recorded(base, *processes, arguments=["--values"])
        answer = document("diff", "batch", code=1)
        assert place(answer) == place(alone)
        wanted = still(answer, {})
        for words in ((f"{base}:batch",), (f"{base}:batch/0", f"{base}:batch/1"), (base, "batch"), (base, "batch/*")):
            assert still(document("diff", *words, code=1), {}) == wanted, words
        mixed = document("diff", f"{base}:batch/0", "batch/1", code=1)
        assert (mixed["source"], still(mixed, {f"{base}:": ""})) == ("several", wanted)


@pytest.mark.ci
def test_workers_of_two_recordings_are_compared_with_each_other(worker: Start, tmp_path: Path) -> None:
    base, new = before_and_after(worker, tmp_path)
    for words in ((f"{base}:api/0", f"{new}:api/0"), (base, new), (base, new, "api/0"), (base, new, "api")):
        answer = document("diff", *words, code=1)
        assert [each["worker"] for each in answer["workers"]] == [f"{base}:api/0", f"{new}:api/0"]
        assert (place(answer), answer["first"]["b"]["worker"]) == (("mlp", 2, 2, 0, "culprit"), f"{new}:api/0")
    assert len(answer["recordings"]) == 2
    assert brickd("diff", f"{base}:api/3", f"{new}:api/0").returncode == 4
    assert brickd("diff", f"{tmp_path}/none.brick:api/0", f"{new}:api/0").returncode == 2
    shutil.copy(base, tmp_path / "copy.brick")
    assert brickd("diff", base, str(tmp_path / "copy.brick")).returncode == 2


@pytest.mark.ci
def test_fingerprints_drained_by_a_daemon_are_compared_with_recordings(worker: Start, tmp_path: Path) -> None:
    base = str(tmp_path / "base.brick")
    with running():
        processes = [idle_worker(worker, number, 0.5 * number) for number in range(2)]
        recorded(base, *processes)
        answer = document("diff", "api", code=1)
        assert (answer["source"], place(answer)) == ("daemon", ("mlp", 2, 2, 0, "culprit"))
        for words in ((f"{base}:api/0", "api/1"), ("api/1", f"{base}:api/0")):
            mixed = document("diff", *words, code=1)
            assert [each["worker"] for each in mixed["workers"]] == list(words)
            assert place(mixed) == place(answer)
        assert document("diff", f"{base}:api/0", "api/0")["verdict"] == "identical"
        for process in processes:  # when a worker ends, its rings are removed
            process.go()
            assert process.end() == 0
        assert place(document("diff", f"{base}:api/0", "api/1", code=1)) == place(answer)


@pytest.mark.ci
def test_a_recording_without_values_shows_where_workers_differ_but_not_how_much(worker: Start, tmp_path: Path) -> None:
    base = str(tmp_path / "base.brick")
    with running():
        recorded(base, *(idle_worker(worker, number, 1e-6 * number) for number in range(2)))
        for words in ((base,), (f"{base}:api/0", "api/1")):
            first = document("diff", *words, code=1)["first"]
            assert (first["kernel"], first["blame"], first["relative_error"]) == ("mlp", "culprit", None)
            assert [first["a"][name] for name in ("mean", "l2", "min", "max", "fnv1a")] == [None] * 5
        assert first["b"]["l2"] > 0, "the tensor that was recorded has its statistics"
    lines = brickd("diff", base).stdout.splitlines()
    (shown,) = (
        line.split() for line in lines if first["a"]["checksum"] in line and "MEAN" not in line and "float32" in line
    )
    assert shown[4:6] == ["-", "-"]


@pytest.mark.ci
def test_weights_of_a_recording_are_compared_with_those_of_a_daemon(worker: Start, tmp_path: Path) -> None:
    base = str(tmp_path / "base.brick")
    idle = "\nbrick.init(); pause()\n" + WATCHED + "pause()\n"
    with running():
        processes = []
        for number, fault in enumerate(("", WEIGHT)):
            processes.append(worker(DAMAGED + fault + idle, BRICKD_WORKER=str(number), **STILL))
            processes[-1].paused()
        recorded(base, *processes)
        answer = document("diff", f"{base}:api/0", "api/1", "--by", "weights", code=1)
        assert (answer["diverged"], answer["first"]["kernel"]) == (1, "layers.*.mlp.down.weight")
        assert answer["compared"] == document("diff", "api", "--by", "weights", code=1)["compared"]
        assert document("diff", f"{base}:api/0", "api/0", "--by", "weights")["verdict"] == "identical"


@pytest.mark.ci
def test_a_redacted_recording_is_compared_only_within_itself(worker: Start, tmp_path: Path) -> None:
    base = str(tmp_path / "base.brick")
    with running():
        recorded(base, *(idle_worker(worker, number, 1e-6 * number) for number in range(2)), arguments=["--redact"])
        answer = document("diff", base, code=1)
        assert (answer["verdict"], answer["first"]["kernel"], answer["first"]["relative_error"]) == (
            "diverged",
            "mlp",
            None,
        )
        by_run = document("diff", base, "--by", "run", code=1)
        assert (by_run["verdict"], by_run["within"]) == ("diverged", 0)
        ended = brickd("diff", f"{base}:api/0", "api/0")
    assert ended.returncode == 6
    assert f"the checksums of {base}:api/0 and api/0 are made with different keys" in ended.stderr


# ---- screens


@pytest.mark.ci
def test_a_screen_begins_with_evidence_and_verdict_and_has_at_most_24_lines(worker: Start) -> None:
    for number, fault in enumerate(("", WEIGHT, OPERATOR)):
        replica(worker, number, fault + WATCHED)
    ended = brickd("diff", "api", COLUMNS="100")
    lines = ended.stdout.splitlines()
    assert ended.returncode == 1
    assert lines[0].startswith("by input: diverged: api/1 differs from 2 that agree, first at mlp.down, layer 1,")
    assert re.fullmatch(r"  equal up to there: [1-9][0-9]* comparisons", lines[1])
    assert lines[2].startswith("  relative error ")
    assert "the difference began there: the inputs were equal" in lines[2]
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 100
    everything = brickd("diff", "api", "--all").stdout.splitlines()
    assert len(everything) > len(lines)
    nearer = brickd("diff", "api", "--context", "0").stdout
    assert "mlp.gate" not in nearer.split("time:")[0]
    assert "VERDICT" in nearer


def test_equality_is_printed_in_a_few_lines_with_its_coverage(worker: Start) -> None:
    for number in range(2):
        plain(worker, number)
    ended = brickd("diff", "api/0", "api/1")
    first, second, *_ = ended.stdout.splitlines()
    assert (ended.returncode, ended.stderr) == (0, "")
    assert first == "by input: identical, api/0 and api/1: 6 comparisons at 2 sites"
    assert second == "6 comparisons: 6 identical"
    assert "by run" not in ended.stdout


def test_the_screen_shows_incomparable_sites_separately_with_their_reason(worker: Start) -> None:
    program = """
import numpy as np
x = np.arange(4, dtype="f")
for step in range(3):
    with brick.step(step + 1):
        x = x + 1
        brick.checksum("equal", x, input=x, layer=2)
        brick.checksum("other", x.astype("d") if number else x, input=x, layer=2)
        backend = ["a", "b"][number] if step else "a"
        brick.checksum("both", x.astype("d") if number and step == 2 else x, input=x, backend=backend)
pause()
"""
    for number in range(2):
        worker(f"number = {number}\n{program}", BRICKD_WORKER=str(number), **STILL).paused()
    answer = document("diff", "api", "--by", "input")
    assert {
        site["kernel"]: (site["compared"], site["verdict"], site["not_comparable"]) for site in answer["sites"]
    } == {
        "equal": (3, None, {}),
        "other": (0, "not_comparable", {"dtype": 3}),
        "both": (1, None, {"dtype": 1, "backend": 1}),
    }
    lines = brickd("diff", "api", "--by", "input", "--all").stdout.split("\ntime:")[0].splitlines()
    assert [" ".join(line.split()) for line in lines if line.startswith(("SITE", "equal", "other", "both"))] == [
        "SITE LAYER COMPARED IDENTICAL DIVERGED MISSING ERROR VERDICT BLAME",
        "equal 2 3 3 0 0 -",
        "both 1 1 0 0 -",
        "SITE LAYER TIMES MISSING WHY",
        "other 2 3 0 of another dtype",
        "both 2 0 1 of another dtype, 1 of another backend",
    ]
    apart = lines[lines.index("not comparable: 5 at 2 sites") :][:4]
    first, _, *shown = brickd("diff", "api", "--by", "input").stdout.splitlines()
    assert first == "by input: identical, api/0 and api/1: 4 comparisons at 2 sites"
    assert shown[:4] == apart


def test_fail_on_adds_verdicts_that_exit_1(worker: Start) -> None:
    for number, bad in enumerate((0, 1e-6)):
        plain(worker, number, bad)
    assert document("diff", "api", "--by", "run")["verdict"] == "within"
    assert brickd("diff", "api", "--by", "run", "--fail-on", "incomplete").returncode == 0
    assert brickd("diff", "api", "--by", "run", "--fail-on", "within").returncode == 1
    assert brickd("diff", "api", "--by", "run", "--rtol", "0").returncode == 1
    assert brickd("diff", "api", "--rtol", "-1").returncode == 2


def test_an_invalid_step_or_worker_is_refused(worker: Start) -> None:
    plain(worker, 0)
    assert "--step" in brickd("diff", "api", "--step", "").stderr
    alone = brickd("diff", "api")
    assert (alone.returncode, alone.stdout) == (6, "")
    assert brickd("diff", "api/0", "api/9").returncode == 4


@pytest.mark.ci
def test_a_program_gets_an_error_with_reasons_if_nothing_is_comparable(worker: Start) -> None:
    for number in range(2):
        plain(worker, number)
    answer = document("diff", "api", "--step", "77", code=6)
    assert (answer["schema_version"], answer["evidence"], answer["verdict"]) == (1, "input", "not_comparable")
    assert (answer["compared"], answer["first"], answer["not_comparable"]) == (0, None, {})
    assert answer["coverage"]["fingerprints"] == sum(each["fingerprints"] for each in answer["workers"])
    ended = brickd("diff", "api", "--step", "77", "--json")
    assert [f"brickd: {reason}\n" for reason in answer["reasons"]] == [ended.stderr]
    assert brickd("diff", "api", "--step", "77", "-o", "jsonl").stdout == ""
    with running():
        assert document("diff", "api", "--step", "77", code=6) == {**answer, "source": "daemon"}


def test_a_useless_tolerance_gives_a_note(worker: Start) -> None:
    for number in range(2):
        plain(worker, number)
    reported = brickd("diff", "api", "--rtol", "0.01")
    assert (reported.returncode, reported.stderr) == (
        0,
        "brickd: --rtol 0.01 has no effect: this comparison is by input, expected --by run\n",
    )
    assert brickd("diff", "api", "--rtol", "0.01", "--by", "run").stderr == ""


@pytest.mark.usefixtures("daemon")
def test_a_daemon_gives_the_same_answer_and_the_same_exit_code(worker: Start) -> None:
    for number, bad in enumerate((0.0, 0.5)):
        plain(worker, number, bad)
    answer = document("diff", "api/0", "api/1", "--step", "2", code=1)
    assert (answer["source"], answer["compared"], place(answer)) == ("daemon", 1, ("mlp", 2, 2, 0, "culprit"))
    alone = brickd("diff", "api/1")
    assert (alone.returncode, alone.stdout) == (6, "")
    assert "the names match only api/1, " in alone.stderr


def test_the_columns_of_times_have_the_names_of_the_workers(worker: Start) -> None:
    for number, bad in enumerate((0, 0.5)):
        plain(worker, number, bad)
    assert re.search(r"^BRICK +api/0 +api/1  DIFFERENCE$", brickd("diff", "api").stdout, re.MULTILINE)
    plain(worker, 2)
    assert re.search(r"^BRICK +api/0 and 1 more +api/1  DIFFERENCE$", brickd("diff", "api").stdout, re.MULTILINE)


@pytest.mark.ci
def test_without_operands_it_shows_the_services_to_choose_from(worker: Start) -> None:
    nothing = brickd("diff")
    assert (nothing.returncode, nothing.stderr) == (6, f"brickd: {NO_WORKERS}\n")
    plain(worker, 0)
    assert "there is only api/0, expected two workers or more " in brickd("diff").stderr
    for service, number in (("beta", 0), ("beta", 1), ("gamma", 0), ("alpha", 0)):
        process = plain(worker, number, BRICKD_SERVICE=service)
    process.kill()
    refused = brickd("diff")
    names = "beta (2 workers), api (1 worker), gamma (1 worker), alpha (1 worker)"
    assert (refused.returncode, refused.stderr) == (
        2,
        f"brickd: there are 4 services, expected one; name a service: {names}\n",
    )


@pytest.mark.parametrize("arguments", [(), ("api",)])
def test_workers_that_ended_without_fingerprints_are_named(worker: Start, arguments: tuple[str, ...]) -> None:
    for number in range(2):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=f"{number}").kill()
    refused = brickd("diff", *arguments)
    assert (refused.returncode, refused.stdout) == (6, "")
    assert refused.stderr.startswith("brickd: no fingerprints of api/0 and api/1 are recorded, expected ")


@pytest.mark.parametrize(("by", "call"), [("input", "checksum"), ("row", "instrument"), ("history", "rows")])
def test_workers_without_fingerprints_get_the_call_that_records_this_evidence(
    worker: Start, by: str, call: str
) -> None:
    for number in range(2):
        started(worker, BRICKD_SERVICE="api", BRICKD_WORKER=f"{number}").kill()
    assert brickd("diff", "--by", by).stderr.endswith(f"(call brick.{call} in the engine)\n")


@pytest.mark.ci
def test_at_most_eight_services_are_listed_to_choose_from(worker: Start) -> None:
    for number in range(9):
        started(worker, BRICKD_SERVICE=f"s{number}")
    refused = brickd("diff").stderr
    assert refused.endswith(f"name a service: {', '.join(f's{number} (1 worker)' for number in range(8))} and 1 more\n")


def test_a_hostile_name_is_escaped(worker: Start) -> None:
    for number, bad in enumerate((0, 0.5)):
        plain(worker, number, bad, HOSTILE, BRICKD_SERVICE="=cmd()")
    ended = brickd("diff", "=cmd()")
    assert ended.returncode == 1
    assert all(line.isprintable() for line in ended.stdout.splitlines())
    assert document("diff", "=cmd()", code=1)["first"]["kernel"] == HOSTILE
    assert all(not row["kernel"].startswith("=") for row in sheet("diff", "=cmd()"))
    assert json.loads(brickd("diff", "=cmd()", "-o", "jsonl").stdout.splitlines()[0])["kernel"] == HOSTILE


def test_a_term_names_a_recording_a_worker_or_both(tmp_path: Path) -> None:
    assert term("api/0") == Term("", "api/0")
    assert term("run.brick") == Term("run.brick", "")
    assert term("a:b.brick:api/0:1") == Term("a:b.brick", "api/0:1")
    assert term("run.brick:") == Term("", "run.brick:")
    unmarked = tmp_path / "run"
    unmarked.write_bytes(b"brickrec")
    assert term(f"{unmarked}:api") == Term(str(unmarked), "api")


# ---- from Python


@pytest.mark.ci
def test_a_program_gets_the_first_divergent_kernel_with_expected_and_actual(worker: Start, tmp_path: Path) -> None:
    base, new = (f"{file}:api/0" for file in before_and_after(worker, tmp_path))
    reported = brickd_package.diff(base, new)
    assert (reported.matched, reported.verdict, reported.kernel, reported.blame) == (
        False,
        "diverged",
        "mlp",
        "culprit",
    )
    assert reported.expected is not None
    assert reported.actual is not None
    assert (reported.expected.worker, reported.actual.worker) == (base, new)
    assert (reported.actual.kernel, reported.actual.layer, reported.actual.position, reported.actual.step) == (
        "mlp",
        2,
        0,
        2,
    )
    assert reported.compared == 5
    assert (
        f"expected {reported.expected.checksum} ({base}), actual {reported.actual.checksum} ({new})"
        in reported.diagnosis
    )
    turned = brickd_package.diff(new, base)
    assert (len(set(reported.runs)), turned.runs) == (2, reported.runs[::-1])
    assert turned.expected is not None
    assert (turned.expected.worker, turned.expected.checksum) == (new, reported.actual.checksum)
    assert brickd_package.diff(base, new, step=1).matched
    assert brickd_package.diff(base, new, step=1).expected is None
    with pytest.raises(NothingComparable):
        brickd_package.diff(base, new, step=77)
