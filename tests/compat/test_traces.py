"""KernelTrace and TraceRun: the content of a trace, the content of a run, and wrong calls by a host."""

from __future__ import annotations

import json
from array import array
from typing import Any

import brick_agent as brick
import numpy as np
import pytest
from brick_agent._compat.kernel_trace import run as trace_run
from brick_agent._compat.kernel_trace.trace import INPUTS_MAX, TEXT_MAX
from faults import Start, exact
from hypothesis import given
from hypothesis import strategies as st
from recorded import record
from traced import T, print_of, run_of, trace_of


def report_of(worker: Start, program: str, **environment: str) -> tuple[Any, str]:
    """Return the last report of a program, and its stderr."""
    process = worker("from array import array\n" + program, **environment)
    reported = process.next_report()
    assert process.end() == 0, process.stderr
    return reported, process.stderr


# ---- a trace ---------------------------------------------------------------------------------------------------------


def test_a_trace_has_the_fields_and_builders_of_cbtop(worker: Start) -> None:
    found, _ = report_of(
        worker,
        """
t = brick.KernelTrace("rope_neox", 3, 17, "cuda")
same = t.with_input_checksum(array("f", [1])).with_output_checksum(array("f", [1, 2, 3])).with_params('{"dim": 64}') \\
    .with_time_us(12.5)
report([t is same, t.kernel_name, t.layer_idx, t.position, t.backend, t.input_checksum, t.output_checksum, t.params,
        t.time_us, t.kernel, t.layer, t.time_ns])
""",
    )
    checksums = [brick.fingerprint(array("f", numbers)).checksum for numbers in ([1], [1, 2, 3])]
    assert found == [True, "rope_neox", 3, 17, "cuda", *checksums, '{"dim":64}', 12.5, "rope_neox", 3, 12_500]


def test_a_value_not_given_to_a_trace_is_none() -> None:
    trace = brick.KernelTrace("k")
    assert (trace.params, trace.time_us, trace.input_checksum, trace.output_checksum) == (None, None, None, None)


def test_the_seeds_checksum_is_shown_next_to_ours() -> None:
    trace = trace_of(T(output=[1, 2, 3]))
    assert (trace.fnv1a, trace.output_checksum) == ("1de40d89811fe258", "78bae40d05ce2a1b")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (np.ones(100, "f"), np.concatenate([np.ones(99, "f"), np.zeros(1, "f")])),
        (np.ones(64, "f"), np.ones(65, "f")),
        (np.arange(8, dtype="f"), np.arange(8, dtype="i4")),
        (np.arange(100, dtype="i8"), np.arange(99, -1, -1, dtype="i8")),
        (np.zeros(0, "f"), np.zeros(0, "d")),
    ],
)
def test_a_checksum_covers_every_element_the_length_and_the_dtype(one: Any, other: Any) -> None:
    a, b = (trace_of(T(output=brick_input)) for brick_input in (one, other))
    assert a.output_checksum != b.output_checksum


def test_each_of_several_inputs_is_kept() -> None:
    trace = trace_of(T(inputs=([1], [2, 3])))
    assert [each.elements for each in trace.inputs] == [1, 2]
    assert trace.input_checksum == "+".join(print_of(each).checksum for each in ([1], [2, 3]))
    assert trace_of(T()).input_checksum is None


def test_params_are_compared_without_order_and_text_is_parsed_as_json() -> None:
    texts = {trace_of(T(params=each)).params for each in ('{"b": [1, null], "a": 2}', {"a": 2, "b": (1, None)})}
    assert texts == {'{"a":2,"b":[1,null]}'}
    assert brick.KernelTrace("k").with_params(None).params is brick.KernelTrace("k").with_params("null").params is None


def test_a_tensor_is_read_at_once_and_not_kept(worker: Start) -> None:
    found, _ = report_of(
        worker,
        """
import sys
x = array("f", [1, 2, 3])
before = sys.getrefcount(x)
t = brick.KernelTrace("scale").with_input_checksum(x)
x[0] = 7
t.with_output_checksum(x)
report([t.input_checksum, t.output_checksum, sys.getrefcount(x) - before])
""",
    )
    assert found == [print_of([1, 2, 3]).checksum, print_of([7, 2, 3]).checksum, 0]


@pytest.mark.ci
def test_rows_beyond_valid_are_in_no_fingerprint(worker: Start) -> None:
    found, _ = report_of(
        worker,
        """
import numpy as np
x, w = np.ones((3, 2), "f"), np.ones((4, 2), "f")
x[2] = np.nan
t = brick.KernelTrace("k").with_input_checksum([x, w, x], valid=2).with_output_checksum(x, valid=2)
report([t.output.nan, t.output.elements, t.shape, t.valid, [each.elements for each in t.inputs]])
""",
    )
    assert found == [0, 4, [3, 2], 2, [4, 8, 4]]


def test_a_trace_shows_that_its_key_differs_without_revealing_it() -> None:
    secret = 0x1234_5678_9ABC_DEF0
    trace = brick.KernelTrace("k", key=secret)
    assert trace.key != brick.KernelTrace("k").key
    assert f"{secret:x}" not in trace.key + repr(trace)


def test_tensors_of_a_trace_are_fingerprinted_with_its_key(worker: Start) -> None:
    program = "report(brick.KernelTrace('k', key=7).with_output_checksum(b'abc').output_checksum)"
    assert report_of(worker, program)[0] == brick.fingerprint(b"abc", key=7).checksum


# ---- mistakes --------------------------------------------------------------------------------------------------------

# Mistakes of a host, and the name by which each is reported.
MISTAKES = {
    "brick.KernelTrace(5)": "kernel",
    "brick.KernelTrace('k' * 5000)": "kernel",
    "brick.KernelTrace('k', -1)": "layer",
    "brick.KernelTrace('k', '3')": "layer",
    "brick.KernelTrace('k', 10 ** 5000)": "layer",
    "brick.KernelTrace('k', 0, 1.5)": "position",
    "brick.KernelTrace('k', 0, -10 ** 40)": "position",
    "brick.KernelTrace('k', 0, 0, b'cpu')": "backend",
    "brick.KernelTrace('k', key=-1)": "key",
    "brick.KernelTrace('k', key=1 << 128)": "key",
    "brick.KernelTrace('k', key=Odd())": "key",
    "brick.KernelTrace('k').with_output_checksum('text')": "output",
    "brick.KernelTrace('k').with_output_checksum([1.0, 2.0])": "output",
    "brick.KernelTrace('k').with_output_checksum(Odd())": "output",
    "brick.KernelTrace('k\\n').with_output_checksum(Hostile())": "output",
    "brick.KernelTrace('k').with_output_checksum(b'abc', valid=4)": "output",
    "brick.KernelTrace('k').with_input_checksum([b'abc', None])": "inputs",
    "brick.KernelTrace('k').with_input_checksum([b''] * 65)": "inputs",
    "brick.KernelTrace('k').with_params('no JSON')": "params",
    "brick.KernelTrace('k').with_params('NaN')": "params",
    "brick.KernelTrace('k').with_params(Odd())": "params",
    "brick.KernelTrace('k').with_params('[' * 100000)": "params",
    "brick.KernelTrace('k').with_params('\"' + 'x' * 5000 + '\"')": "params",
    "brick.KernelTrace('k').with_time_us('soon')": "time",
    "brick.KernelTrace('k').with_time_us(-1)": "time",
    "brick.KernelTrace('k').with_time_us(float('nan'))": "time",
    "brick.KernelTrace('k').with_time_us(1e300)": "time",
    "brick.KernelTrace('k').with_time_us(Odd())": "time",
}
ODD = """
class Odd:
    def __getattr__(self, name): raise RuntimeError("odd")
    def __repr__(self): raise RuntimeError("odd")
    def __index__(self): raise RuntimeError("odd")
    def __float__(self): raise RuntimeError("odd")
    def __dlpack__(self, **_): raise RuntimeError("odd")
    __dlpack_device__ = __dlpack__
class Error(Exception):
    def __str__(self): raise RuntimeError("odd")
class Hostile:
    def __dlpack__(self, **_): raise Error
    __dlpack_device__ = __dlpack__
"""


def test_a_mistake_is_left_out_and_reported_and_never_raised(worker: Start, prefix: str) -> None:
    found, stderr = report_of(
        worker,
        ODD
        + f"""
run, found = brick.TraceRun("r"), []
for mistake in {list(MISTAKES)!r}:
    trace = eval(mistake)
    run.add_trace(trace)
    found.append(list(trace.refused))
report([found, brick.TraceRun.from_json(run.to_json()).to_json() == run.to_json()])
""",
    )
    assert found == [[[what] for what in MISTAKES.values()], True]
    assert len([line for line in stderr.splitlines() if line.startswith("brickd: ")]) == len(set(MISTAKES.values()))


def test_a_refused_value_can_be_replaced_by_a_valid_one() -> None:
    trace = brick.KernelTrace("k").with_params("no").with_time_us(-1).with_output_checksum(5).with_input_checksum(5)
    assert set(trace.refused) == {"params", "time", "output", "inputs"}
    trace.with_params("{}").with_time_us(1).with_output_checksum(print_of([1])).with_input_checksum(print_of([1]))
    assert trace.refused == {}


@pytest.mark.parametrize("mistake", [*MISTAKES, "brick.TraceRun('r').add_trace(None)", "brick.TraceRun(None)"])
def test_strict_mode_raises_mistakes(worker: Start, prefix: str, mistake: str) -> None:
    found, _ = report_of(
        worker,
        ODD
        + f"""
try:
    {mistake}
    report(None)
except ValueError as error:
    report(str(error))
""",
        BRICKD_STRICT="1",
    )
    assert "BRICKD_STRICT=1" in found


def test_a_run_counts_its_refused_values(worker: Start) -> None:
    found, stderr = report_of(
        worker,
        """
run = brick.TraceRun("r")
for _ in range(3): run.add_trace("trace")
other = brick.TraceRun(5)
report([run.mistakes, len(run.traces), other.mistakes, other.run_id, json.loads(run.to_json())["mistakes"]])
""".replace("run =", "import json\nrun =", 1),
    )
    assert found == [{"traces": 3}, 0, {"ids": 1}, "", {"traces": 3}]
    assert stderr.count("add_trace takes a KernelTrace, not a str") == 1


def test_the_size_of_a_trace_is_bounded() -> None:
    assert brick.KernelTrace("k" * TEXT_MAX).kernel == "k" * TEXT_MAX
    assert len(trace_of(T(inputs=[[1]] * INPUTS_MAX)).inputs) == INPUTS_MAX
    assert trace_of(T(inputs=[[1]] * (INPUTS_MAX + 1))).inputs == ()


@given(st.one_of(st.none(), st.integers(), st.text(), st.floats(), st.lists(st.integers(), max_size=3)))
def test_no_argument_raises_an_exception_or_breaks_the_json(anything: Any) -> None:
    run = brick.TraceRun(anything)
    trace = brick.KernelTrace(anything, anything, anything, anything)
    run.add_trace(trace.with_params(anything).with_time_us(anything))
    assert brick.TraceRun.from_json(run.to_json()).to_json() == run.to_json()


# ---- a run -----------------------------------------------------------------------------------------------------------


def test_traces_are_found_by_kernel_and_by_layer() -> None:
    run = run_of("r", [T("a", 0), T("b", 0), T("a", 1), T("a", None)])
    assert [(each.kernel, each.layer) for each in run.traces] == [("a", 0), ("b", 0), ("a", 1), ("a", None)]
    assert [each.layer for each in run.traces_for_kernel("a")] == [0, 1, None]
    assert [each.kernel for each in run.traces_for_layer(0)] == ["a", "b"]
    assert [each.kernel for each in run.traces_for_layer(None)] == ["a"]
    assert run.traces_for_kernel("c") == run.traces_for_layer(7) == []


def test_the_time_of_a_run_is_the_sum_of_its_traces() -> None:
    run = brick.TraceRun("r")
    for us in (1, 2.5, None):
        trace = brick.KernelTrace("k")
        run.add_trace(trace if us is None else trace.with_time_us(us))
    assert run.total_time_us == 3.5


def test_a_trace_changed_after_it_was_added_leaves_the_run_unchanged() -> None:
    run, trace = brick.TraceRun("r"), trace_of(T(output=[1]))
    run.add_trace(trace)
    trace.with_output_checksum(print_of([2])).with_time_us(5)
    assert (run.traces[0].output, run.traces[0].time_ns) == (print_of([1]), None)


def test_traces_above_the_limit_are_counted_and_prevent_equality(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_run, "TRACES_MAX", 5)
    run, trace = brick.TraceRun("r"), trace_of(T(output=[1]))
    for position in range(5 + 2):
        trace.position = position
        run.add_trace(trace)
    assert (len(run.traces), run.traces_dropped) == (5, 2)
    report = run.compare(run)
    assert (report.verdict, report.matched, report.dropped) == ("incomplete", False, 4)
    assert "4 traces dropped, because the run was full" in report.diagnosis
    again = brick.TraceRun.from_json(run.to_json())
    assert (len(again.traces), again.traces_dropped) == (5, 2)


def test_clear_removes_everything_but_the_id() -> None:
    base, run = run_of("base", [T(output=[1])]), run_of("new", [T(output=[2])])
    run.add_trace("trace")  # type: ignore[arg-type]
    run.compare_and_mark(base)
    run.traces_dropped = 3
    run.clear()
    assert run.to_json() == brick.TraceRun("new").to_json()


@pytest.mark.ci
def test_concurrent_threads_lose_no_trace(worker: Start) -> None:
    found, _ = report_of(
        worker,
        """
import threading
sys.setswitchinterval(1e-5)
run, x = brick.TraceRun("r"), array("f", [1])
def work(n):
    for i in range(200): run.add_trace(brick.KernelTrace(f"k{n}", i).with_output_checksum(x))
threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
for each in threads: each.start()
for each in threads: each.join()
report([len(run.traces), [len(run.traces_for_kernel(f"k{n}")) for n in range(4)]])
""",
    )
    assert found == [800, [200] * 4]


def test_a_forked_child_adds_to_its_own_run(worker: Start) -> None:
    found, _ = report_of(
        worker,
        """
run = brick.TraceRun("r")
run.add_trace(brick.KernelTrace("k").with_output_checksum(b"x"))
run._local.lock.acquire()
read, write = os.pipe()
if os.fork() == 0:
    run.add_trace(brick.KernelTrace("k").with_output_checksum(b"y"))
    os.write(write, str(len(run.traces)).encode())
    os._exit(0)
os.wait()
report([os.read(read, 9).decode(), len(run.traces)])
""",
    )
    assert found == ["2", 1]


@pytest.mark.ci
def test_importing_the_agent_does_not_load_traces(worker: Start, prefix: str) -> None:
    found, _ = report_of(
        worker,
        """
import subprocess
code = "import sys, brick_agent; early = set(sys.modules); brick_agent.TraceRun, brick_agent.KernelTrace; "
code += "late = 'brick_agent._compat.kernel_trace.trace'; "
code += "print(late in early, late in sys.modules, 'typing' in sys.modules)"
report(subprocess.run([sys.executable, "-I", "-S", "-c", "import sys; sys.path[:] = %r; " % sys.path + code],
                      capture_output=True, text=True).stdout.split())
""",
    )
    assert found == ["False", "True", "False"]


def test_traces_leave_the_ledger_exact(worker: Start, prefix: str) -> None:
    program = """
run = brick.TraceRun("r")
for n in range(20):
    with brick.step(n): run.add_trace(brick.KernelTrace("k", n).with_input_checksum(b"x").with_output_checksum(b"y"))
"""
    assert exact(record(worker, prefix, program))["begun"] == 20


def test_documents_of_traces_have_units_and_hexadecimal_checksums() -> None:
    document = json.loads(run_of("r", [T(output=[1, 2], inputs=([3],), params={"a": 1})]).to_json())
    assert (document["schema_version"], document["source"], document["run_id"]) == (1, "process", "r")
    (trace,) = document["traces"]
    assert trace["output"]["checksum"] == print_of([1, 2]).checksum
    assert trace["inputs"][0]["checksum"] == print_of([3]).checksum
    assert {"total_time_ns", "traces_dropped"} <= set(document)
    assert "time_ns" in trace
