"""Runs of traces as JSON: decoding returns the run, and an invalid document is refused."""

from __future__ import annotations

import copy
import json
import math
import struct
from typing import Any

import brick_agent as brick
import pytest
from brick_agent._compat.kernel_trace import run as trace_run
from hypothesis import given
from hypothesis import strategies as st
from traced import T, run_of, trace_of

CHECKSUMS = st.integers(0, 2**64 - 1).map("{:016x}".format)
NUMBERS = st.integers(0, 2**64 - 1)
FLOATS = st.floats()
PRINTS = st.builds(
    lambda *fields: brick.Fingerprint(fields),
    CHECKSUMS,
    st.sampled_from(["float32", "bfloat16", "int8"]),
    *[NUMBERS] * 2,
    *[FLOATS] * 4,
    *[NUMBERS] * 3,
    st.tuples(*[FLOATS] * 16),
    CHECKSUMS,
)
TEXTS = st.text(st.characters(), max_size=12)  # all characters, also lone surrogates


@st.composite
def traces(draw: st.DrawFn) -> brick.KernelTrace:
    trace = brick.KernelTrace(
        draw(TEXTS),
        draw(st.none() | NUMBERS),
        draw(st.none() | TEXTS | st.integers(-(2**63), 2**64 - 1)),
        draw(st.none() | TEXTS),
        key=draw(st.sampled_from([0, 5, 2**128 - 1])),
    )
    trace.with_input_checksum(draw(st.lists(PRINTS, max_size=3)))
    if (output := draw(st.none() | PRINTS)) is not None:
        trace.with_output_checksum(output)
    trace.shape = draw(st.none() | st.lists(NUMBERS, max_size=3).map(tuple))
    trace.valid = draw(st.none() | NUMBERS)
    trace.with_params(draw(st.none() | st.dictionaries(TEXTS, st.integers() | TEXTS, max_size=2)))
    trace.with_time_us(draw(st.floats(-1, 1e12)))
    return trace


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal; floats must be equal to the last bit, but any two NaN count as equal."""
    if isinstance(a, float):
        return isinstance(b, float) and (
            struct.pack("d", a) == struct.pack("d", b) or (math.isnan(a) and math.isnan(b))
        )
    if isinstance(a, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return bool(type(a) is type(b) and a == b)


FIELDS = ("kernel", "layer", "position", "backend", "key", "inputs", "output", "shape", "valid", "params", "time_ns",
          "refused", "input_checksum", "output_checksum", "fnv1a", "time_us")  # fmt: skip


@pytest.mark.ci
@given(st.lists(traces(), max_size=4), TEXTS)
def test_a_run_survives_encoding_and_decoding(many: list[brick.KernelTrace], run_id: str) -> None:
    run = brick.TraceRun(run_id)
    for each in many:
        run.add_trace(each)
    text = run.to_json()
    assert text.isascii()
    again = brick.TraceRun.from_json(text)
    assert again.to_json() == brick.TraceRun.from_json(text.encode()).to_json() == text
    for a, b in zip(run.traces, again.traces, strict=True):
        for name in FIELDS:
            assert same(getattr(a, name), getattr(b, name)), name
    assert run.compare(again).diagnosis == run.compare(run).diagnosis


def test_a_mark_and_the_comparison_survive_encoding_and_decoding() -> None:
    base, new = run_of("base", [T(output=[1], inputs=([1],))]), run_of("new", [T(output=[2], inputs=([1],))])
    report = new.compare_and_mark(base)
    again = brick.TraceRun.from_json(new.to_json())
    assert (again.run_id, again.diverged, again.divergence_diagnosis) == ("new", True, report.diagnosis)
    answer = again.compare(brick.TraceRun.from_json(base.to_json()))
    assert (answer.diagnosis, answer.divergences[0].blame) == (report.diagnosis, "culprit")


def document() -> dict[str, Any]:
    trace = trace_of(T("k", 1, "p", [1.0, math.nan], ([3],), "cpu", {"a": 1}))
    run = run_of("r", [])
    run.add_trace(trace.with_time_us(3))
    answer: dict[str, Any] = json.loads(run.to_json())
    return answer


def changed(path: str, value: Any) -> str:
    """Return the document with this value at this path.

    If the value is `...`, the document has nothing at this path.
    """
    answer = document()
    at: Any = answer
    *way, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    for part in way:
        at = at[part]
    if value is ...:
        del at[last]
    else:
        at[last] = value
    return json.dumps(answer)


# Each row has the path of a value, an invalid value, and the message about it.
WRONG = [
    ("schema_version", 2, "schema_version of a run of traces is 2, expected 1"),
    ("schema_version", True, "schema_version of a run of traces is true"),
    ("schema_version", ..., "expected 1"),
    ("run_id", None, "run_id of a run of traces is null, expected a string"),
    ("run_id", "x" * 5000, "expected a string of at most 4096 characters"),
    ("diverged", 1, "diverged of a run of traces is 1, expected true or false"),
    ("divergence_diagnosis", 5, "expected a string"),
    ("traces_dropped", -1, "traces_dropped of a run of traces is -1, expected an integer of 0 or more"),
    ("traces_dropped", ..., "traces_dropped of a run of traces is missing"),
    ("mistakes", {"x": "y"}, "mistakes.x of a run of traces"),
    ("traces", {}, "expected an array"),
    ("traces.0", [], "traces[0] of a run of traces is [], expected an object"),
    ("traces.0.kernel", None, "traces[0].kernel"),
    ("traces.0.layer", -1, "traces[0].layer of a run of traces is -1, expected an integer of 0 or more"),
    ("traces.0.layer", 2**64, "traces[0].layer"),
    ("traces.0.position", True, "traces[0].position of a run of traces is true"),
    ("traces.0.position", 1.5, "traces[0].position"),
    ("traces.0.backend", 5, "traces[0].backend"),
    ("traces.0.params", {"a": 1}, "traces[0].params"),
    ("traces.0.time_ns", 1.5, "traces[0].time_ns"),
    ("traces.0.time_ns", 2**63, "traces[0].time_ns"),
    ("traces.0.key", "none", "traces[0].key"),
    ("traces.0.shape", [-1], "traces[0].shape"),
    ("traces.0.valid", "all", "traces[0].valid"),
    ("traces.0.inputs", [{}] * 65, "traces[0].inputs of a run of traces is 65, expected at most 64"),
    ("traces.0.inputs.0", None, "traces[0].inputs[0] of a run of traces is null, expected an object"),
    ("traces.0.output", ..., "traces[0].output of a run of traces is missing"),
    ("traces.0.output", 7, "traces[0].output of a run of traces is 7"),
    ("traces.0.output.checksum", "5FF4329216FA12EE", "traces[0].output.checksum"),
    ("traces.0.output.checksum", 0, "expected 16 hexadecimal digits"),
    ("traces.0.output.fnv1a", ..., "traces[0].output.fnv1a"),
    ("traces.0.output.nan", True, "traces[0].output.nan"),
    ("traces.0.output.l2", "large", "traces[0].output.l2"),
    ("traces.0.output.l2", 10**400, "traces[0].output.l2"),
    ("traces.0.output.l2", math.nan, "NaN is not a number in JSON"),
    ("traces.0.output.l2", None, "traces[0].output.l2 of a run of traces is null, expected a number"),
    ("traces.0.output.sketch", [0] * 15, "expected an array of 16 numbers"),
    ("traces.0.output.sketch.3", False, "traces[0].output.sketch[3]"),
    ("traces.0.refused", {"x": 1}, "traces[0].refused.x"),
]


@pytest.mark.parametrize(("path", "value", "text"), WRONG)
def test_a_document_with_any_invalid_value_is_refused(path: str, value: Any, text: str) -> None:
    with pytest.raises(ValueError, match=r"^brick_agent: ") as refused:
        brick.TraceRun.from_json(changed(path, value))
    assert text in str(refused.value)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "text",
    ["", "null", "[]", "{", "no JSON", "[" * 100_000, '{"schema_version": NaN}', b"\xff\xfe\x00", "1" * 5000, None, 7],
)
def test_an_invalid_document_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"^brick_agent: "):
        brick.TraceRun.from_json(text)


def test_a_run_with_too_many_traces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_run, "TRACES_MAX", 5)
    answer = document()
    answer["traces"] *= 6
    with pytest.raises(ValueError, match="traces of a run of traces is 6, expected at most 5"):
        brick.TraceRun.from_json(json.dumps(answer))


def test_unknown_keys_of_a_later_version_are_ignored() -> None:
    answer = document()
    plain = brick.TraceRun.from_json(json.dumps(answer)).to_json()
    answer["more"] = answer["traces"][0]["more"] = answer["traces"][0]["output"]["more"] = [1]
    assert brick.TraceRun.from_json(json.dumps(answer)).to_json() == plain


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text(max_size=5), inside, max_size=3),
    max_leaves=5,
)


def paths(of: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside = of.items() if isinstance(of, dict) else enumerate(of) if isinstance(of, list) else ()
    return [each for key, value in inside for each in ((*way, key), *paths(value, (*way, key)))]


@given(st.sampled_from(paths(document())), ANYTHING)
def test_a_changed_document_is_refused_or_read_unambiguously(way: Any, value: Any) -> None:
    reported = copy.deepcopy(document())
    at: Any = reported
    for part in way[:-1]:
        at = at[part]
    at[way[-1]] = value
    try:
        run = brick.TraceRun.from_json(json.dumps(reported))
    except ValueError:
        with pytest.raises(ValueError, match=r"^brick_agent: "):
            brick.TraceRun.from_json(json.dumps(reported))
        return
    text = run.to_json()
    assert brick.TraceRun.from_json(text).to_json() == text
    assert run.compare(run).diagnosis.isprintable()
