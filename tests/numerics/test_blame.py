"""The judgement of a row: from inputs and outputs, it decides where a difference began."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor, add

from brickd.analysis.numerics import blame
from brickd.analysis.numerics.blame import Blame, Judgement, NotFinite, Verdict
from brickd.analysis.numerics.match import match
from brickd.model.step_texts import StepTexts
from brickd.shm import _reader
from brickd.shm.sites import Site

MLP, ATTENTION = Site("mlp", 3, "ffn"), Site("scores", 3, "Attention")
INT64 = 5


def off(checksum: int, by: float = 0.0, **values: int) -> Tensor:
    return Tensor(checksum, 1.0, (by, *(0.0,) * 15), **values)


def judged(
    one: CheckedRecord, other: CheckedRecord, site: Site = MLP, *, by_input: bool = False, **row_is: Any
) -> Judgement:
    """Judge the second record against the first; `row_is` changes values of the row."""
    fingerprints = _reader.Fingerprints(1 << 20)
    for number, reported in enumerate((one, other)):
        add(fingerprints, number, [CheckedRecord(GOOD, SAME, site=2), replace(reported, ticks=1)])
    (row,) = match(fingerprints, [0, 1], [0, 0], by_input=by_input).rows
    against, worst = (blame.read(fingerprints, member.number) for member in row.members)
    assert against is not None
    assert worst is not None
    return blame.judged(row._replace(**row_is), site, against, worst)


GOOD, WRONG = off(1), off(2, 0.5)
SAME, NEARLY, OTHERS = (off(7),), (off(8, 1e-8),), (off(9, 0.5),)


@pytest.mark.parametrize("by_input", [False, True])
def test_a_worker_with_equal_inputs_is_the_culprit(by_input: bool) -> None:
    records = judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME), by_input=by_input)
    assert (records.verdict, records.blame, records.error, records.inputs_error) == (
        Verdict.DIVERGED,
        Blame.CULPRIT,
        0.5,
        0.0,
    )


def test_a_worker_with_different_inputs_propagates_the_difference() -> None:
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, OTHERS)).blame == Blame.PROPAGATED
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, (Tensor(9, nan=1),))).blame == Blame.PROPAGATED
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, (off(9, shape=4),))).blame == Blame.PROPAGATED
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME * 2)).blame == Blame.PROPAGATED


def test_without_readable_inputs_the_blame_is_unknown() -> None:
    for inputs in ((), (off(7, dtype=0),)):
        assert judged(CheckedRecord(GOOD, inputs), CheckedRecord(WRONG, inputs)).blame == Blame.UNKNOWN
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG)).blame == Blame.UNKNOWN


@pytest.mark.parametrize(
    "site",
    [
        ATTENTION,
        Site("attn.scores", -1, "other"),
        Site("kv_update", 0, "other"),
        Site("paged_cache", 0, "ffn"),
        *(
            Site(name, 0, "other")
            for name in ("mla_decode", "sdpa", "gqa", "flashinfer_decode", "mamba", "ssm_scan", "lstm")
        ),
    ],
)
def test_attention_may_propagate_a_difference_from_its_cache(site: Site) -> None:
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME), site).blame == Blame.HERE_OR_CACHE
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, OTHERS), site).blame == Blame.PROPAGATED


@pytest.mark.parametrize(("one", "other", "born"), [
    (_reader.CHECKED_STATELESS, _reader.CHECKED_STATELESS, Blame.CULPRIT),
    (_reader.CHECKED_STATELESS, 0, Blame.HERE_OR_CACHE),
    (0, _reader.CHECKED_STATELESS, Blame.HERE_OR_CACHE),
    (_reader.CHECKED_STATELESS, _reader.CHECKED_STATEFUL, Blame.HERE_OR_CACHE),
])  # fmt: skip
def test_a_stateless_attention_is_the_culprit(one: int, other: int, born: Blame) -> None:
    assert (
        judged(CheckedRecord(GOOD, SAME, flags=one), CheckedRecord(WRONG, SAME, flags=other), ATTENTION).blame == born
    )


@pytest.mark.parametrize(
    "kernel",
    [
        "attn.qkv",
        "layers.*.self_attn.q_proj",
        "attn.norm",
        "attn.rotary",
        "attn.out",
        "attn_qkv",
        "attention.output.dense",
    ],
)
def test_an_attention_part_without_a_cache_is_the_culprit(kernel: str) -> None:
    assert (
        judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME), Site(kernel, 3, "attention")).blame
        == Blame.CULPRIT
    )


@pytest.mark.parametrize("kernel", ["formula", "downsample", "small", "gamma"])
def test_a_name_that_only_resembles_a_stateful_one_is_stateless(kernel: str) -> None:
    assert (
        judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME), Site(kernel, 3, "other")).blame == Blame.CULPRIT
    )


def test_inputs_within_rounding_explain_only_similar_differences() -> None:
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, NEARLY)).blame == Blame.CULPRIT
    within = (off(8, 5e-7),)
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(off(2, 6e-6), within)).blame == Blame.CULPRIT
    close = judged(
        CheckedRecord(GOOD, (off(7, elements=1 << 20),)), CheckedRecord(off(2, 5e-4), (off(8, 1e-4, elements=1 << 20),))
    )
    assert close.blame == Blame.UNKNOWN
    # A difference smaller than rounding may change the choice of a token or an expert.
    assert (
        judged(CheckedRecord(off(1, dtype=INT64), SAME), CheckedRecord(off(2, 1.0, dtype=INT64), NEARLY)).blame
        != Blame.CULPRIT
    )


def test_an_operator_may_multiply_the_error_of_its_inputs_by_eight() -> None:
    def blamed(**row_is: Any) -> Blame | None:
        return judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, NEARLY), **row_is).blame

    assert blamed(error=0.5, inputs_error=0.0625, tolerance=0.0625) == Blame.UNKNOWN
    assert blamed(error=0.5000001, inputs_error=0.0625, tolerance=0.0625) == Blame.CULPRIT
    assert blamed(error=None, inputs_error=0.0625, tolerance=0.0625) == Blame.CULPRIT
    # If inputs differ by more than rounding, they can explain any difference of the outputs.
    assert blamed(error=0.9, inputs_error=0.0625, tolerance=0.0624) == Blame.PROPAGATED
    assert blamed(error=0.9, inputs_error=0.0625, tolerance=None) == Blame.PROPAGATED
    assert blamed(error=0.9, inputs_error=None, tolerance=0.0625) == Blame.PROPAGATED


def test_a_difference_up_to_the_rounding_error_may_be_rounding() -> None:
    def rounding(error: float | None, rounding: float | None) -> bool:
        return judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME), error=error, rounding=rounding).rounding

    assert [rounding(each, 0.25) for each in (0.24, 0.25, 0.26, None)] == [True, True, False, False]
    assert not rounding(0.0, 0.0), "rounding cannot explain a difference of integers"
    assert not rounding(0.25, None)
    assert not judged(CheckedRecord(GOOD, SAME), CheckedRecord(off(2, 1e-9), SAME), error=0.1, rounding=0.2).rounding, (
        "nothing differs"
    )
    assert not judged(CheckedRecord(GOOD, SAME), CheckedRecord(off(2, shape=9), SAME)).rounding


def test_inputs_beyond_the_record_are_known_equal_but_not_how_different() -> None:
    def more(answer: CheckedRecord) -> CheckedRecord:
        return replace(answer, flags=_reader.CHECKED_MORE)

    assert judged(more(CheckedRecord(GOOD, SAME)), more(CheckedRecord(WRONG, SAME))).blame == Blame.CULPRIT
    assert judged(more(CheckedRecord(GOOD, SAME)), more(CheckedRecord(WRONG, NEARLY))).blame == Blame.UNKNOWN


def test_nan_is_born_if_no_input_has_any_and_propagated_otherwise() -> None:
    nan, nan_in = off(2, nan=3), (off(9, nan=1),)
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(nan, SAME)).not_finite == NotFinite.BORN
    assert judged(CheckedRecord(nan, SAME), CheckedRecord(GOOD, SAME)).not_finite == NotFinite.BORN
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(nan, nan_in)).not_finite == NotFinite.PASSED_ON
    assert judged(CheckedRecord(GOOD), CheckedRecord(nan)).not_finite == NotFinite.UNKNOWN
    assert judged(CheckedRecord(off(1, nan=3), SAME), CheckedRecord(off(2, 0.5, nan=3), SAME)).not_finite is None
    # The origin is unknown if the inputs of one worker were not read. It is also unknown if there were more inputs than
    # a record has room for.
    unread = (off(7, dtype=0),)
    for one, other in ((SAME, unread), (unread, SAME), (SAME, SAME * 2)):
        assert judged(CheckedRecord(GOOD, one), CheckedRecord(nan, other)).not_finite == NotFinite.UNKNOWN
    more = CheckedRecord(nan, SAME, flags=_reader.CHECKED_MORE)
    assert judged(CheckedRecord(GOOD, SAME), more).not_finite == NotFinite.UNKNOWN
    assert judged(more, CheckedRecord(GOOD, SAME)).not_finite == NotFinite.UNKNOWN
    assert judged(CheckedRecord(GOOD, SAME), replace(more, inputs=nan_in)).not_finite == NotFinite.PASSED_ON


def test_different_experts_have_a_verdict_of_their_own() -> None:
    ids, others = off(1, dtype=INT64), off(2, 1.0, dtype=INT64)
    router = Site("moe.router_ids", 2, "other")
    assert judged(CheckedRecord(ids, SAME), CheckedRecord(others, SAME), router).verdict == Verdict.ROUTING
    assert judged(CheckedRecord(ids, SAME), CheckedRecord(others, SAME), MLP).verdict == Verdict.DIVERGED
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(WRONG, SAME), router).verdict == Verdict.DIVERGED
    assert (
        judged(CheckedRecord(ids, SAME), CheckedRecord(others, SAME), Site("routine", 2, "other")).verdict
        == Verdict.DIVERGED
    )


def test_an_incomparable_row_has_no_blame_and_neither_has_one_within() -> None:
    shape = judged(CheckedRecord(GOOD, SAME), CheckedRecord(off(2, shape=9), SAME))
    assert (shape.verdict, shape.blame) == (Verdict.NOT_COMPARABLE, None)
    assert judged(CheckedRecord(GOOD, SAME), CheckedRecord(off(2, 1e-9), SAME)).verdict == Verdict.WITHIN


def test_a_fingerprint_has_a_step_only_if_given_even_if_zero() -> None:
    fingerprints = _reader.Fingerprints(1 << 20)
    steps = ((0, 0), (0, _reader.CHECKED_STEP), (5, 0), (5, _reader.CHECKED_STEP))
    add(fingerprints, 0, [CheckedRecord(GOOD, step=step, flags=flags) for step, flags in steps])
    found = [blame.read(fingerprints, number) for number in range(4)]
    assert [each and each.document(StepTexts())["step"] for each in found] == [
        None,
        f"{0:016x}",
        f"{5:016x}",
        f"{5:016x}",
    ]


def test_a_shown_fingerprint_has_no_number_that_json_lacks() -> None:
    fingerprints = _reader.Fingerprints(1 << 20)
    add(fingerprints, 0, [CheckedRecord(replace(GOOD, l2=float("nan"), nan=64), step=17, position=2, extents=(8, 8))])
    reported = blame.read(fingerprints, 0)
    assert reported is not None
    shown = reported.document(StepTexts())
    assert shown["l2"] is None
    assert (shown["nan"], shown["shape"], shown["step"], shown["position"]) == (64, [8, 8], f"{17:016x}", 2)
    assert (shown["checksum"], shown["dtype"]) == (f"{1:016x}", "float32")
    assert blame.read(fingerprints, 1) is None
