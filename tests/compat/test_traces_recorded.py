"""The runs of real workers: `brickd.diff` gives the same result as a comparison inside the process."""

from __future__ import annotations

from pathlib import Path

import brick_agent as brick
import pytest
from checksums import recorded
from conftest import ROOT, Worker
from faults import Start
from pages import blocks
from test_diff import STILL
from test_diff import recorded as while_recorded
from traced import print_of

import brickd

STEPS = """
from array import array
run = brick.TraceRun(run_id)
brick.init()
pause()
for step in range(3):
    x = array("f", [step, 1, 2, 3])
    with brick.step(step + 1):
        for layer in range(3):
            trace = brick.KernelTrace("mlp", layer, 5, backend).with_input_checksum(x).with_params('{"by": 2}')
            x = array("f", [2 * each + (bad if (step, layer) == (1, 1) else 0) for each in x])
            run.add_trace(trace.with_output_checksum(x))
pause()
report(run.to_json())
pause()
"""


def started_worker(worker: Start, number: int, bad: float = 0, backend: str = "cpu", **environment: str) -> Worker:
    program = f"run_id, bad, backend = {f'{backend} {number}'!r}, {bad}, {backend!r}\n{STEPS}"
    process = worker(program, BRICKD_WORKER=str(number), **(STILL | environment))
    process.paused()
    return process


def run_of(process: Worker) -> brick.TraceRun:
    """Return the run that a worker reports after its work."""
    process.go()
    text = process.next_report()
    process.paused()
    return brick.TraceRun.from_json(text)


def done(worker: Start, number: int, bad: float = 0) -> brick.TraceRun:
    process = started_worker(worker, number, bad)
    process.go()
    process.paused()
    return run_of(process)


@pytest.mark.ci
def test_brickd_diff_finds_the_divergence_that_the_runs_find(worker: Start) -> None:
    base, new = (done(worker, number, 0.5 * number) for number in range(2))
    report = new.compare(base)
    reported = brickd.diff("api/0", "api/1")
    first = report.divergences[0]
    assert reported.expected is not None
    assert reported.actual is not None
    assert report.expected_trace is not None
    assert (reported.kernel, reported.expected.layer, reported.expected.position) == (
        report.first_divergent_kernel,
        report.expected_trace.layer,
        report.expected_trace.position,
    )
    assert (report.first_divergent_kernel, first.actual.layer, first.occurrence) == ("mlp", 1, 1)
    assert (reported.verdict, reported.blame, reported.actual.step) == (report.verdict, first.blame, 2)
    assert (reported.expected.fnv1a, reported.actual.fnv1a) == (first.expected.fnv1a, first.actual.fnv1a)
    assert (reported.expected.worker, reported.actual.worker) == ("api/0", "api/1")
    assert "actual" in reported.diagnosis
    by_run = brickd.diff("api/0", "api/1", by="run", rtol=0.0)
    assert by_run.compared == report.kernels_compared == 9
    assert by_run.document["diverged"] == len(report.divergences) == 2
    assert report.divergences[1].born is first


@pytest.mark.ci
def test_the_majority_of_three_workers_names_the_outlier(worker: Start) -> None:
    runs = [done(worker, number, 0.5 * (number == 1)) for number in range(3)]
    assert brickd.diff("api").outlier == "api/1"
    assert [run.compare(runs[0]).verdict for run in runs] == ["identical", "diverged", "identical"]


@pytest.mark.ci
def test_recordings_of_different_backends_and_clocks_are_compared_as_runs_are(worker: Start, tmp_path: Path) -> None:
    names, runs = [], []
    for number, (backend, clock) in enumerate((("cpu", "monotonic"), ("cuda", "auto"))):
        file = tmp_path / f"{backend}.brick"
        process = started_worker(worker, 0, 0.5 * number, backend, BRICKD_CLOCK=clock)
        while_recorded(str(file), process, arguments=["--values"])
        runs.append(run_of(process))
        process.go()
        assert process.end() == 0
        (tmp_path / backend).mkdir()
        names.append(f"{file.rename(tmp_path / backend / 'fetched.brick')}:api/0")
    reported, report = brickd.diff(*names, by="run"), runs[1].compare(runs[0])
    assert reported.actual is not None
    assert (reported.verdict, reported.kernel, reported.actual.layer, reported.actual.step) == ("diverged", "mlp", 1, 2)
    assert (reported.compared, reported.blame) == (report.kernels_compared, report.divergences[0].blame)
    assert "(cpu 0, on cpu)" in report.diagnosis
    assert "(cuda 0, on cuda)" in report.diagnosis


@pytest.mark.ci
def test_the_example_of_the_documentation_runs(worker: Start, prefix: str) -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    found = [block.text for page in pages for block in blocks(page.read_text()) if block.text.startswith("trace = ")]
    assert len(set(found)) == 1, "the example is the same on all pages"
    block = found[0]
    source = f"""
layer, position, us, run, say = 3, 17, 12.5, brick.TraceRun("cuda"), report
base = brick.TraceRun("cpu")
trace = brick.KernelTrace("rope", layer, position, "cpu").with_input_checksum(x).with_params({{"scale": 2}})
base.add_trace(trace.with_output_checksum(y + 1))
reference = base.to_json()
{block}
reported, report = [report.first_divergent_kernel, report.divergences[0].blame], say
"""
    assert recorded(worker, prefix, source).reported == ["rope", "culprit"]


def test_a_trace_is_recorded_once_with_its_position_inputs_and_context(worker: Start, prefix: str) -> None:
    source = """
run, other = brick.TraceRun("r"), brick.TraceRun("s")
t = brick.KernelTrace("mlp", 2, 17, "cuda").with_input_checksum([x, x]).with_params('{"by": 2}').with_output_checksum(y)
run.add_trace(t); run.add_trace(t); other.add_trace(t)
brick.checksum("mlp", y, input=[x, x], layer=2, position=17, backend="cuda", params={"by": 2})
with brick.layer(4), brick.step(9):
    run.add_trace(brick.KernelTrace("bare").with_output_checksum(y))
run.add_trace(brick.KernelTrace("named", 1, "tok").with_output_checksum(y))
brick.checksum("named", y, layer=1, position="tok")
reported = len(run.traces)
"""
    left = recorded(worker, prefix, source)
    assert left.reported == 4
    assert [left.sites[each["site"]] for each in left.events] == [
        *[("mlp", 2, False)] * 2,
        ("bare", 4, False),
        *[("named", 1, False)] * 2,
    ]
    assert ("mlp", -1, False) not in left.sites
    same = ("position", "backend", "params", "output", "tensors", "inputs", "flags")
    for a, b in (left.events[:2], left.events[3:]):
        assert [a[name] for name in same] == [b[name] for name in same], "the trace is recorded like a brick.checksum"
    assert left.events[2]["step"] == 9


def test_given_fingerprints_are_compared_in_process_only(worker: Start, prefix: str) -> None:
    source = """
run = brick.TraceRun("r")
run.add_trace(brick.KernelTrace("here").with_output_checksum(brick.fingerprint(y)))
run.add_trace(brick.KernelTrace("there").with_output_checksum(brick.take("there", y)))
mixed = brick.KernelTrace("mixed").with_input_checksum([x, brick.fingerprint(x)]).with_output_checksum(y)
run.add_trace(mixed)
mixed = brick.KernelTrace("mixed", 1).with_input_checksum([x, brick.take("mixed", x, layer=1)]).with_output_checksum(y)
run.add_trace(mixed)
reported = [[each.output_checksum is not None, len(each.inputs)] for each in run.traces]
"""
    left = recorded(worker, prefix, source)
    assert left.reported == [[True, 0], [False, 0], [True, 2], [True, 0]]
    of = [(left.sites[each["site"]], len(each["tensors"]) - 1) for each in left.events]
    assert of == [(("there", -1, False), 0), (("mixed", -1, False), 0), (("mixed", 1, False), 2)]


@pytest.mark.parametrize(
    ("environment", "seen"), [({}, 0), pytest.param({"BRICKD_SENSITIVE": "1"}, 1, marks=pytest.mark.ci)]
)
def test_a_sensitive_kernel_is_in_the_run_and_not_in_the_segment(
    worker: Start, prefix: str, environment: dict[str, str], seen: int
) -> None:
    source = """
run = brick.TraceRun("r")
run.add_trace(brick.KernelTrace("lm_head").with_input_checksum(x).with_output_checksum(y))
reported = run.traces[0].output_checksum
"""
    left = recorded(worker, prefix, source, **environment)
    assert len(left.events) == seen
    assert isinstance(left.reported, str)


@pytest.mark.parametrize("how", ["BRICKD=0", "disable", "shutdown"])
def test_runs_are_compared_even_if_nothing_is_recorded(worker: Start, how: str) -> None:
    process = worker(
        ("" if "=" in how else f"brick.{how}()\n")
        + """
run = brick.TraceRun("r")
run.add_trace(brick.KernelTrace("k").with_output_checksum(b"abc"))
report([run.compare(run).verdict, run.traces[0].output_checksum])
""",
        **({"BRICKD": "0"} if "=" in how else {}),
    )
    assert process.next_report() == ["identical", print_of(b"abc").checksum]
    assert process.end() == 0


@pytest.mark.ci
def test_a_full_ring_does_not_affect_the_run(worker: Start, prefix: str) -> None:
    source = """
run = brick.TraceRun("r")
for n in range(200):
    run.add_trace(brick.KernelTrace("k", 0, n).with_output_checksum(y))
reported = [len(run.traces), all(each.output_checksum for each in run.traces)]
"""
    left = recorded(worker, prefix, source, BRICKD_EVENTS="64")
    assert left.reported == [200, True]
    assert 0 < len(left.events) < 64


@pytest.mark.ci
def test_a_trace_above_the_limit_of_a_run_is_still_recorded(worker: Start, prefix: str) -> None:
    source = """
run = brick.TraceRun("r")
for n in range(16_384): run.add_trace(brick.KernelTrace("k", 0, n))
run.add_trace(brick.KernelTrace("late").with_output_checksum(y))
reported = [len(run.traces), run.traces_dropped]
"""
    left = recorded(worker, prefix, source)
    assert left.reported == [16_384, 1]
    assert [left.sites[each["site"]] for each in left.events] == [("late", -1, False)]


def test_a_name_that_no_segment_accepts_loses_only_its_record(worker: Start, prefix: str) -> None:
    source = """
run = brick.TraceRun("r")
for name in ("\\ud800", "", "k" * 4096):
    run.add_trace(brick.KernelTrace(name, 2 ** 40, 2 ** 64 - 1, name).with_output_checksum(y))
reported = run.compare(brick.TraceRun.from_json(run.to_json())).verdict
"""
    assert recorded(worker, prefix, source).reported == "identical"
