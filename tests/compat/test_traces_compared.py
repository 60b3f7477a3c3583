"""The comparison of two runs of traces, without the flaws of the older profiler's comparison."""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import Any

import brick_agent as brick
import numpy as np
import pytest
from brick_agent._compat.kernel_trace.pair import relative_error
from conftest import Worker
from faults import Start
from hypothesis import given
from hypothesis import strategies as st
from traced import T, print_of, run_of, trace_of

SOME = [T("norm", 0, 0, [1, 2]), T("mlp", 0, 0, [3, 4]), T("mlp", 1, 0, [5, 6])]


def compared(new: list[T], base: list[T], rtol: float = 0.0) -> brick.TraceReport:
    return run_of("new", new).compare(run_of("base", base), rtol=rtol)


def reasons(report: brick.TraceReport) -> list[str | None]:
    return [each.reason for each in report.not_comparable]


# ---- equal runs ---------------------------------------------------------------------------------------------------


def test_two_equal_runs_are_identical() -> None:
    report = compared(SOME, SOME)
    assert (report.verdict, report.matched, report.kernels_compared) == ("identical", True, 3)
    assert (report.first_divergent_kernel, report.expected_trace, report.actual_trace) == (None, None, None)
    assert report.diagnosis == "identical: 3 kernels of new and base"


@pytest.mark.parametrize(("new", "base"), [([], []), ([], SOME), (SOME, []), (SOME[:1], SOME[1:])])
def test_runs_without_a_common_trace_never_match(new: list[T], base: list[T]) -> None:
    report = compared(new, base)
    assert (report.verdict, report.matched, report.kernels_compared) == ("not_comparable", False, 0)
    assert (len(report.missing), len(report.extra)) == (len(base), len(new))
    assert report.diagnosis.startswith("nothing is comparable in new and base: ")


def test_traces_of_only_one_run_are_listed_and_prevent_a_match() -> None:
    report = compared([*SOME[:2], T("gate", 1, 9, [7])], SOME)
    assert (report.verdict, report.matched, report.kernels_compared) == ("incomplete", False, 2)
    assert [(each.kernel, each.layer) for each in report.missing] == [("mlp", 1)]
    assert [(each.kernel, each.position) for each in report.extra] == [("gate", 9)]
    assert report.diagnosis == (
        "incomplete: 2 kernels of new and base are equal; 1 kernel of base missing in new (mlp, layer 1, position 0); "
        "1 kernel of new missing in base (gate, layer 1, position 9)"
    )


@pytest.mark.parametrize(("new", "base"), [(None, None), ([1], None), (None, [1])])
def test_traces_without_an_output_checksum_are_never_equal(new: Any, base: Any) -> None:
    report = compared([T(output=new)], [T(output=base)])
    assert (report.verdict, report.kernels_compared, reasons(report)) == ("not_comparable", 0, ["unchecked"])
    report = compared([*SOME, T(output=new)], [*SOME, T(output=base)])
    assert (report.verdict, report.matched) == ("incomplete", False)
    assert "without an output checksum" in report.diagnosis


def test_empty_tensors_and_nan_equal_only_themselves() -> None:
    nan, other = np.array([np.nan], "f"), np.array([0xFFC00001], "u4").view("f")
    assert compared([T(output=[])], [T(output=[])]).matched
    assert compared([T(output=nan)], [T(output=nan)]).matched
    assert compared([T(output=nan)], [T(output=other)]).verdict == "diverged"
    assert reasons(compared([T(output=[])], [T(output=[0])])) == ["shape"]


# ---- different runs
# ----------------------------------------------------------------------------------------------------


def test_a_difference_after_the_first_64_elements_is_found() -> None:
    a, b = np.ones(4096, "f"), np.ones(4096, "f")
    b[-1] += 1
    report = compared([T(output=b)], [T(output=a)])
    assert report.verdict == "diverged"
    (pair,) = report.divergences
    assert pair.expected.fnv1a == pair.actual.fnv1a, "the comparison of the older profiler does not find the difference"
    assert pair.relative_error == pytest.approx(1 / 64, rel=0.5)


def test_ones_of_another_length_differ() -> None:
    report = compared([T(output=[1] * 65)], [T(output=[1] * 64)])
    assert (report.verdict, reasons(report)) == ("not_comparable", ["shape"])
    assert "(k, layer 0, position 0: 64 elements in base, 65 elements in new)" in report.diagnosis


def test_expected_is_the_references_value_and_actual_ours() -> None:
    report = compared([T("rope", 3, 17, [2, 4, 6.5])], [T("rope", 3, 17, [2, 4, 6])])
    wanted, found = print_of([2, 4, 6]).checksum, print_of([2, 4, 6.5]).checksum
    assert report.expected_trace is not None
    assert report.actual_trace is not None
    assert (report.expected_trace.output_checksum, report.actual_trace.output_checksum) == (wanted, found)
    assert report.first_divergent_kernel == "rope"
    assert f"first at rope, layer 3, position 17: expected {wanted} (base), actual {found} (new)" in report.diagnosis


def test_a_divergence_is_born_with_equal_inputs_and_propagated_otherwise() -> None:
    base = [T("a", 0, 0, [1], ([9],)), T("b", 0, 0, [2], ([1],)), T("c", 0, 0, [3], ([2], [9])), T("d", 0, 0, [4])]
    new = [T("a", 0, 0, [1], ([9],)), T("b", 0, 0, [7], ([1],)), T("c", 0, 0, [8], ([7], [9])), T("d", 0, 0, [5])]
    b, c, d = compared(new, base).divergences
    assert [(each.actual.kernel, each.blame) for each in (b, c, d)] == [
        ("b", "culprit"),
        ("c", "propagated"),
        ("d", "unknown"),
    ]
    assert c.born is b
    assert b.born is d.born is None
    report = compared(new[2:], base[2:])
    assert report.divergences[0].born is None
    assert "the inputs already differ, but no trace shows where the difference began" in report.diagnosis
    assert (
        "the difference began there, or in state that is not an input: the inputs were equal"
        in compared(new, base).diagnosis
    )


def test_propagated_divergences_name_the_first_birth() -> None:
    base = [T("k", n, 0, [1], ([1],)) for n in range(4)]
    new = [T("k", n, 0, [2], ([1 + n % 2],)) for n in range(4)]
    pairs = compared(new, base).divergences
    assert [each.blame for each in pairs] == ["culprit", "propagated"] * 2
    assert [each.born for each in pairs] == [None, pairs[0]] * 2


def test_inputs_within_the_tolerance_prove_nothing() -> None:
    base, new = [T(output=[1.0], inputs=([1.0],))], [T(output=[2.0], inputs=([1.001],))]
    report = compared(new, base, rtol=0.01)
    assert report.divergences[0].blame == "unknown"
    assert "the inputs also differ, within the tolerance" in report.diagnosis
    assert compared(new, base, rtol=1e-6).divergences[0].blame == "propagated"
    zeros = [T(output=[2.0], inputs=([-0.0],))], [T(output=[1.0], inputs=([0.0],))]
    assert compared(*zeros).divergences[0].blame == "propagated", "no sketch shows the difference"


def test_a_different_number_of_inputs_explains_nothing() -> None:
    (pair,) = compared([T(output=[1], inputs=([1],))], [T(output=[2], inputs=([1], [2]))]).divergences
    assert pair.blame == "unknown"


def test_every_occurrence_of_a_kernel_layer_and_position_is_compared() -> None:
    report = compared([T(output=[9]), T(output=[2]), T(output=[3])], [T(output=[1]), T(output=[2]), T(output=[3])])
    assert (report.kernels_compared, [each.occurrence for each in report.divergences]) == (3, [0])
    report = compared([T(output=[1]), T(output=[9])], [T(output=[1]), T(output=[2])])
    assert "position 0, occurrence 1: expected" in report.diagnosis


def test_additional_occurrences_are_not_divergences() -> None:
    base = [T(output=[n]) for n in range(4)]
    report = compared([base[0], *base[2:]], base)
    assert (report.verdict, report.kernels_compared, len(report.missing)) == ("incomplete", 1, 1)
    assert reasons(report) == ["repeats", "repeats"]


def test_divergences_are_listed_in_execution_order() -> None:
    base = [T("k", n, 0, [n]) for n in range(20)]
    new = [T("k", n, 0, [n + n % 2]) for n in range(20)]
    report = compared(new, base)
    assert [each.actual.layer for each in report.divergences] == list(range(1, 20, 2))
    assert report.diagnosis.startswith("diverged: new differs from base in 10 of 20 kernels, first at k, layer 1")
    assert [each.actual.layer for each in compared(new[::-1], base).divergences] == list(range(19, 0, -2))


PROGRAM = """
from array import array
runs = []
for run_id, by in (("base", 1), ("new", 2)):
    run = brick.TraceRun(run_id)
    for name in ("q", "k", "v", "o", "gate", "up"):
        for layer in (1, 0, None):
            trace = brick.KernelTrace(name, layer, name)
            run.add_trace(trace.with_output_checksum(brick.fingerprint(array("f", [by if layer else 1]))))
    runs.append(run)
report_ = runs[1].compare(runs[0])
report([report_.diagnosis, [repr(each) for each in report_.divergences], runs[1].to_json()])
"""


@pytest.mark.ci
@pytest.mark.interpreter
def test_the_report_does_not_depend_on_the_hash_seed(worker: Start) -> None:
    def run_with_seed(seed: str) -> Any:
        process: Worker = worker(PROGRAM, PYTHONHASHSEED=seed)
        reported = process.next_report()
        assert process.end() == 0, process.stderr
        return reported

    assert run_with_seed("1") == run_with_seed("2") == run_with_seed("3")


# ---- the size of a difference
# ---------------------------------------------------------------------------------------------------------


def test_nearly_equal_outputs_are_within_the_requested_tolerance() -> None:
    base, new = [T(output=[1.0, 2.0])], [T(output=[1.0, 2.001])]
    assert compared(new, base).verdict == "diverged"
    report = compared(new, base, rtol=1e-2)
    assert (report.verdict, report.matched, report.within, report.divergences) == ("within", True, 1, ())
    assert report.diagnosis == "within the tolerance: 1 of 1 kernel of new and base; the others are equal"
    assert compared(new, base, rtol=1e-6).verdict == "diverged"


def test_integers_have_no_tolerance() -> None:
    base, new = [T(output=np.array([1000]))], [T(output=np.array([1001]))]
    assert compared(new, base, rtol=0.5).verdict == "diverged"


def test_other_float_types_are_compared_with_a_note_and_other_types_are_not() -> None:
    wide, narrow, whole = (np.array([1.0, 2.0], dtype) for dtype in ("d", "f", "i4"))
    report = compared([T(output=narrow)], [T(output=wide)])
    assert report.verdict == "diverged"
    assert "(base, in float64)" in report.diagnosis
    assert compared([T(output=narrow)], [T(output=wide)], rtol=1e-6).matched
    report = compared([T(output=whole)], [T(output=wide)], rtol=0.5)
    assert reasons(report) == ["dtype"]
    assert "float64 in base, int32 in new" in report.diagnosis


def test_other_backends_are_compared_with_a_note() -> None:
    assert compared([T(output=[1], backend="cuda")], [T(output=[1], backend="cpu")]).matched
    diagnosis = compared([T(output=[2], backend="cuda")], [T(output=[1])]).diagnosis
    assert "(base, on an unknown backend)" in diagnosis
    assert "(new, on cuda)" in diagnosis


def test_other_params_are_not_compared() -> None:
    report = compared([T(output=[1], params={"by": 2})], [T(output=[1])])
    assert reasons(report) == ["params"]
    assert 'none in base, {"by":2} in new' in report.diagnosis
    assert compared([T(output=[1], params='{"a":1, "b":2}')], [T(output=[1], params={"b": 2, "a": 1})]).matched


def test_other_shapes_or_valid_rows_are_not_compared() -> None:
    runs = [run_of(name, [T(output=[1] * 6)]) for name in ("base", "new")]
    for run, shape in zip(runs, ((2, 3), (3, 2)), strict=True):
        run.traces[0].shape = shape
    report = runs[1].compare(runs[0])
    assert reasons(report) == ["shape"]
    assert "2×3 in base, 3×2 in new" in report.diagnosis
    runs[1].traces[0].shape, runs[1].traces[0].valid = (2, 3), 2
    report = runs[1].compare(runs[0])
    assert reasons(report) == ["valid"]
    assert "all in base, 2 in new" in report.diagnosis


def test_fingerprints_of_another_key_are_not_compared() -> None:
    runs = [brick.TraceRun(name) for name in ("base", "new")]
    for run, key in zip(runs, (0, 7), strict=True):
        trace = brick.KernelTrace("k", key=key)
        run.add_trace(trace.with_output_checksum(brick.fingerprint(array("f", [1]), key=key)))
    assert reasons(runs[1].compare(runs[0])) == ["key"]


def test_nan_is_born_where_the_inputs_have_none_and_propagated_otherwise() -> None:
    base, new = [T("a", 0, 0, [1], ([1],)), T("b", 0, 0, [1], ([1],)), T("c", 0, 0, [1])], list[T]()
    nan = [math.nan]
    new = [T("a", 0, 0, nan, ([1],)), T("b", 0, 0, nan, (nan,)), T("c", 0, 0, nan)]
    report = compared(new, base, rtol=0.5)
    assert [each.not_finite for each in report.divergences] == ["born", "passed_on", "unknown"]
    assert [each.relative_error for each in report.divergences] == [None] * 3
    assert "relative error not known" in report.diagnosis
    assert "NaN or infinities began there" in report.diagnosis


def test_numbers_too_large_for_a_sketch_are_within_no_tolerance() -> None:
    base, new = [T(output=np.array([1e308, 1e308]))], [T(output=np.array([1e308, 1.1e308]))]
    assert reasons(compared(new, base, rtol=0.5)) == ["range"]
    assert compared(new, base).verdict == "diverged"


@given(st.integers(1, 400), st.floats(1e-4, 1), st.integers(0, 99))
def test_the_error_is_estimated_from_the_sketches(elements: int, by: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    a = random.normal(size=elements)
    b = a + by * random.normal(size=elements)
    true = float(np.linalg.norm(b - a) / np.linalg.norm(a))
    estimated = relative_error(brick.fingerprint(a), brick.fingerprint(b))
    assert estimated is not None
    assert true / 4 < estimated < true * 3
    if elements <= 16:  # a sketch has 16 elements
        assert estimated == pytest.approx(true, rel=0.01)


# ---- marking, refusals -----------------------------------------------------------------------------------------------


def test_a_run_is_marked_with_its_divergence() -> None:
    base, new = run_of("base", [T(output=[1])]), run_of("new", [T(output=[2])])
    report = new.compare_and_mark(base)
    assert (new.diverged, new.divergence_diagnosis) == (True, report.diagnosis)
    assert (base.diverged, base.divergence_diagnosis) == (False, None)
    new.compare_and_mark(new)
    assert (new.diverged, new.divergence_diagnosis) == (False, None)
    report = new.compare_and_mark(brick.TraceRun("empty"))
    assert (new.diverged, new.divergence_diagnosis) == (False, report.diagnosis), (
        "nothing could be compared, and the diagnosis says so"
    )
    new.compare(base)
    assert not new.diverged


def test_runs_of_the_same_name_are_distinguished() -> None:
    diagnosis = run_of("r", [T(output=[2])]).compare(run_of("r", [T(output=[1])])).diagnosis
    assert "r (this run) differs from r (the reference)" in diagnosis
    assert (
        "this run differs from the reference"
        in run_of("", [T(output=[2])]).compare(run_of("", [T(output=[1])])).diagnosis
    )


def test_a_diagnosis_is_one_line_whatever_the_names_contain() -> None:
    hostile = "\x1b[31m\n\u202e\ud800"
    base = run_of("base" + hostile, [T(hostile, 0, hostile, [1], backend=hostile), T("p", output=[1])])
    base.traces[1].params = hostile  # set params that `from_json` would accept
    report = run_of(hostile, [T(hostile, 0, hostile, [2]), T("p", output=[1]), T(hostile * 2)]).compare(base)
    assert report.diagnosis.isprintable()
    assert (report.verdict, reasons(report), len(report.extra)) == ("diverged", ["params"], 1)


@pytest.mark.parametrize("rtol", [-1e-9, math.nan, math.inf])
def test_an_invalid_tolerance_is_refused(rtol: float) -> None:
    with pytest.raises(ValueError, match="expected a number of 0 or more"):
        brick.TraceRun().compare(brick.TraceRun(), rtol=rtol)


def test_a_reference_that_is_not_a_run_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a TraceRun, not a str"):
        brick.TraceRun().compare("base")  # type: ignore[arg-type]


# ---- a second implementation of the comparison
# -------------------------------------------------------------------------------------------------------

TRACES = st.lists(
    st.builds(
        T,
        kernel=st.sampled_from(["a", "b"]),
        layer=st.sampled_from([None, 0, 1]),
        position=st.sampled_from([0, "0"]),
        output=st.sampled_from([None, [0], [1], [1, 2]]),
        inputs=st.sampled_from([None, ([0],), ([1],), ([0], [1])]),
        backend=st.none(),
        params=st.none(),
    ),
    max_size=8,
)


def place(of: T) -> tuple[Any, ...]:
    return of[:3]


def oracle(new: list[T], base: list[T]) -> tuple[list[tuple[Any, ...]], int, int, Counter[str], int, str]:
    """Return the expected divergences, the verdict, and the counts of equal, compared and other traces."""
    differ, equal, apart, alone = [], 0, Counter[str](), 0
    for key in {place(each) for each in new + base}:
        a = [each for each in base if place(each) == key]
        b = [each for each in new if place(each) == key]
        alone += abs(len(a) - len(b))
        for n in range(min(len(a), len(b))):
            wanted, found = a[n].output, b[n].output
            if wanted is None or found is None:
                apart["unchecked"] += 1
            elif len(wanted) != len(found):
                apart["shape"] += 1
            elif wanted == found:
                equal += 1
            elif len(a) != len(b):
                apart["repeats"] += 1
            else:
                blame = "unknown"
                if a[n].inputs and b[n].inputs and len(a[n].inputs) == len(b[n].inputs):
                    blame = "culprit" if a[n].inputs == b[n].inputs else "propagated"
                differ.append((*key, n, blame))
    total = equal + len(differ)
    verdict = (
        "not_comparable" if not total else "diverged" if differ else "incomplete" if apart or alone else "identical"
    )
    return differ, equal, total, apart, alone, verdict


@given(TRACES, TRACES)
def test_random_runs_get_the_verdict_of_the_oracle(new: list[T], base: list[T]) -> None:
    differ, _, total, apart, alone, verdict = oracle(new, base)
    report = compared(new, base)
    found = [(each.actual.kernel, each.actual.layer, each.actual.position, each.occurrence, each.blame)
             for each in report.divergences]  # fmt: skip
    assert Counter(found) == Counter(differ)
    assert (report.kernels_compared, report.verdict) == (total, verdict)
    assert Counter(reasons(report)) == apart
    assert len(report.missing) + len(report.extra) == alone
    assert report.diagnosis.isprintable()
    culprits = [each for each in report.divergences if each.blame == "culprit"]
    for n, each in enumerate(report.divergences):
        if each.blame == "propagated":
            assert each.born is (culprits[0] if culprits and culprits[0] in report.divergences[:n] else None)


@given(TRACES, TRACES)
def test_the_two_sides_are_never_swapped(new: list[T], base: list[T]) -> None:
    there, back = compared(new, base), run_of("base", base).compare(run_of("new", new))
    assert (there.verdict, there.kernels_compared) == (back.verdict, back.kernels_compared)
    assert Counter(map(repr, there.missing)) == Counter(map(repr, back.extra))
    swapped = Counter((repr(each.actual), repr(each.expected)) for each in back.divergences)
    assert Counter((repr(each.expected), repr(each.actual)) for each in there.divergences) == swapped


@given(TRACES)
def test_a_run_never_differs_from_itself(traces: list[T]) -> None:
    report = compared(traces, traces)
    assert (report.divergences, report.missing, report.extra) == ((), (), ())
    assert report.matched == (bool(traces) and all(each.output is not None for each in traces))


def test_the_made_up_trace_has_the_given_values() -> None:
    trace = trace_of(T("k", 1, "p", [1], ([2], [3]), "cpu", {"a": 1}))
    assert (trace.kernel, trace.layer, trace.position, trace.backend, trace.params) == ("k", 1, "p", "cpu", '{"a":1}')
    assert (trace.output, trace.inputs) == (print_of([1]), (print_of([2]), print_of([3])))
