"""The comparison of workers: the first difference, its evidence, and what stays unknown."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from checked_record import CheckedRecord, Tensor
from comparable_workers import (
    EMBED,
    INT64,
    MLP,
    NAMES,
    NORM,
    NOW,
    ROUTER,
    SCORES,
    SECOND,
    STRANGE,
    answered,
    chain,
    compared,
    off,
)
from hypothesis import example, given
from hypothesis import strategies as st
from made_up_workers import HOSTILE

from brickd.analysis.numerics.match import Class
from brickd.errors import NoSuchWorker, NothingComparable, WrongQuestion
from brickd.model.step_texts import StepTexts
from brickd.query.queries import REASONS
from brickd.shm import _reader

GOOD = chain()
COUNTS = ("compared", "identical", "within", "diverged", "incomplete")
STEP = _reader.CHECKED_STEP


def counts(document: Any) -> dict[str, int]:
    return {key: document[key] for key in COUNTS if document[key]}


def where(document: Any) -> tuple[Any, ...]:
    first = document["first"]
    return first["kernel"], first["layer"], int(first["step"], 16), first["position"], first["blame"]


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (2**40 - 1, "1099511627775"), (2**40, "0000010000000000"), (2**64 - 1, "ffffffffffffffff")],
)
def test_a_step_that_is_not_a_counter_is_shown_as_a_key(number: int, text: str) -> None:
    assert StepTexts().name(number) == text


# ---- differences


def test_equal_workers_are_identical_and_the_comparisons_are_counted() -> None:
    reported = compared(GOOD, GOOD)
    assert (reported["verdict"], reported["evidence"], reported["first"], reported["outlier"]) == (
        "identical",
        "input",
        None,
        None,
    )
    assert counts(reported) == {"compared": 12, "identical": 12}
    assert reported["headlines"] == ["by input: identical, api/0 and api/1: 12 comparisons at 4 sites"]


@pytest.mark.parametrize("by", ["input", "run"])
def test_the_first_difference_is_the_headline_with_its_blame(by: str) -> None:
    reported = compared(GOOD, chain(MLP), by=by)
    assert (reported["verdict"], reported["evidence"], reported["outlier"]) == ("diverged", by, None)
    assert where(reported) == ("mlp", 0, 1, 0, "culprit")
    assert reported["first"]["relative_error"] == pytest.approx(0.5)
    assert (
        reported["headlines"][0]
        == f"by {by}: diverged: api/0 and api/1 disagree, first at mlp, layer 0, step 1, position 0"
    )


@pytest.mark.parametrize(
    ("by", "blame", "text"),
    [
        (1e-6, "culprit", "the difference began there: the inputs differ by only <1e-6"),
        (1e-3, "propagated", "the difference began earlier: the inputs already differ (1e-3)"),
    ],
)
def test_the_distance_of_the_inputs_is_reported(by: float, blame: str, text: str) -> None:
    inputs = {each.ticks: (off(each.inputs[0].checksum + 500, by),) for each in GOOD if each.site == MLP}
    reported = compared(
        GOOD, [replace(each, inputs=inputs.get(each.ticks, each.inputs)) for each in chain(MLP)], by="run"
    )
    assert (where(reported)[0], where(reported)[-1]) == ("mlp", blame)
    assert reported["headlines"][2] == f"relative error 0.5; {text}"


def test_attention_may_propagate_from_its_cache_and_consequences_are_counted() -> None:
    reported = compared(GOOD, chain(SCORES), by="run")
    assert where(reported) == ("scores", 0, 1, 0, "here_or_cache")
    assert reported["follow"] == 1
    assert [(site["kernel"], site["blame"]) for site in reported["sites"]] == [
        ("embed", None), ("norm", None), ("scores", "here_or_cache"), ("mlp", "propagated"),
    ]  # fmt: skip


def test_a_cache_filled_by_damaged_work_is_not_a_second_birth() -> None:
    """The scores of the second step read values that the damaged norm of the first step wrote into the cache."""
    good, bad = chain(), chain(NORM)
    cached = [at for at, each in enumerate(bad) if each.site == SCORES and each.step > 1]
    read = [replace(each, inputs=good[at].inputs) if at in cached else each for at, each in enumerate(bad)]
    reported = compared(good, read, by="run")
    assert where(reported) == ("norm", 0, 1, 0, "culprit")
    assert {site["kernel"]: site["blame"] for site in reported["sites"]}["scores"] == "propagated"
    assert reported["headlines"][3] == "2 later sites also differ"


def healed(bad: Sequence[CheckedRecord], site: int) -> list[CheckedRecord]:
    """Return the bad records with the correct inputs of one site, so that its difference begins there."""
    return [replace(each, inputs=GOOD[at].inputs) if each.site == site else each for at, each in enumerate(bad)]


def test_a_birth_at_another_site_is_counted_separately() -> None:
    reported = compared(GOOD, healed(chain(NORM), MLP), by="run")
    assert reported["headlines"][3] == "1 later site also differs; a difference also began at 1 other site"
    # The first difference may come from a cache. A second difference that may come from a cache may be a consequence of
    # the first.
    reported = compared(GOOD, healed(chain(SCORES), MLP), by="run")
    assert (where(reported)[-1], reported["headlines"][3]) == (
        "here_or_cache", "a difference also began at 1 other site",
    )  # fmt: skip
    reported = compared(GOOD, healed(chain(NORM), SCORES), by="run")
    assert {site["kernel"]: site["blame"] for site in reported["sites"]}["scores"] == "here_or_cache"
    assert reported["headlines"][3] == "2 later sites also differ"


def test_consequences_are_counted_by_run_only() -> None:
    assert compared(GOOD, chain(NORM), by="run")["follow"] == 2
    assert compared(GOOD, chain(NORM))["follow"] is None


@pytest.mark.ci
def test_three_workers_have_an_outlier_and_two_disagree() -> None:
    for order in ((0, 0, 1), (0, 1, 0), (1, 0, 0)):
        reported = compared(*(chain(MLP) if wrong else GOOD for wrong in order))
        assert reported["outlier"] == f"api/{order.index(1)}"
        assert reported["first"]["b"]["worker"] == reported["outlier"]
        assert reported["first"]["a"]["worker"] != reported["outlier"]
    assert compared(GOOD, chain(MLP))["outlier"] is None
    halves = compared(GOOD, GOOD, chain(MLP), chain(MLP))
    assert (halves["verdict"], halves["outlier"]) == ("diverged", None)
    assert halves["headlines"][0].startswith(
        "by input: diverged: api/0, api/1, api/2 and 1 more disagree, first at mlp"
    )
    most = compared(GOOD, GOOD, GOOD, chain(MLP), chain(MLP))
    assert most["outlier"] is None
    assert most["headlines"][0].startswith("by input: diverged: api/3 and api/4 differ from 3 that agree, first at mlp")
    one_else = compared(GOOD, chain(MLP), [])["headlines"][0]
    assert one_else.startswith("by input: diverged: api/0 and api/1 disagree, first at mlp")
    other = [replace(e, output=off(e.output.checksum + 7, 0.9)) if e.site == MLP else e for e in GOOD]
    assert "diverged: api/0, api/1 and api/2 disagree, first" in compared(GOOD, chain(MLP), other)["headlines"][0]


def test_differences_within_rounding_raise_no_alarm() -> None:
    reported = compared(GOOD, chain(NORM, by=1e-8), by="run")
    assert (reported["verdict"], reported["first"]) == ("within", None)
    assert counts(reported) == {"compared": 12, "identical": 3, "within": 9}
    assert {(site["verdict"], site["blame"]) for site in reported["sites"]} == {(None, None), ("within", None)}
    assert compared(GOOD, chain(NORM, by=1e-3), by="run", rtol=1e-2)["verdict"] == "within"
    assert compared(GOOD, chain(NORM, by=1e-3), by="run", rtol=1e-5)["verdict"] == "diverged"


def test_different_experts_are_reported_as_such() -> None:
    def routed(wrong: bool) -> list[CheckedRecord]:
        ids = off(2 if wrong else 1, 1.0 * wrong, dtype=INT64)
        return [CheckedRecord(ids, (off(7),), site=ROUTER, step=1, ticks=1, flags=STEP)]

    reported = compared(routed(False), routed(True))
    assert (reported["verdict"], reported["first"]["verdict"], reported["first"]["blame"]) == (
        "routing",
        "routing",
        "culprit",
    )
    assert reported["headlines"][0].startswith("by input: routing: api/0 and api/1 disagree, first at router")
    assert reported["headlines"][1:] == [
        "nothing was compared before this difference",
        "other experts were chosen; the difference began there: the inputs were equal",
    ]


def test_nan_is_reported_as_born_or_propagated() -> None:
    def nan(site: int) -> list[CheckedRecord]:
        return [
            replace(each, output=replace(each.output, nan=3)) if each.site == site else each for each in chain(site)
        ]

    reported = compared(GOOD, nan(MLP))
    assert (reported["first"]["not_finite"], reported["first"]["relative_error"], reported["first"]["b"]["nan"]) == (
        "born",
        None,
        3,
    )
    assert reported["headlines"][2].endswith("NaN or infinities began there")


def test_tensors_of_only_nan_and_empty_ones_are_compared() -> None:
    for tensor in (Tensor(5, l2=float("nan"), nan=64), Tensor(5, l2=0.0, elements=0)):
        records = [CheckedRecord(tensor, (off(7),), site=MLP, step=1, ticks=1, flags=STEP, extents=(tensor.elements,))]
        document = compared(records, records)
        assert document["verdict"] == "identical"
        json.dumps(document, allow_nan=False)
        other = [replace(records[0], output=replace(tensor, checksum=6))]
        document = compared(records, other)
        assert document["verdict"] == "diverged"
        json.dumps(document, allow_nan=False)


# ---- the evidence that the answer begins with


def bare(records: list[CheckedRecord], *sites: int) -> list[CheckedRecord]:
    """Return the records without inputs at these sites."""
    return [replace(each, inputs=()) if each.site in sites else each for each in records]


ASKED = r"\(if the workers did the same work: --by run\)"


@pytest.mark.ci
@pytest.mark.parametrize("flags", [STEP, pytest.param(0, marks=pytest.mark.ci)])
def test_steps_are_paired_only_with_evidence_by_run(flags: int) -> None:
    stateful = [[replace(e, flags=flags) for e in chain(born, sites=(SCORES, MLP))] for born in (None, SCORES)]
    no_inputs = [
        [replace(e, flags=flags) for e in bare(reported, EMBED, NORM, SCORES, MLP)] for reported in (GOOD, chain(MLP))
    ]
    for sides, reason in ((stateful, "3 of stateful kernels .*"), (no_inputs, "24 without inputs")):
        with pytest.raises(NothingComparable, match=f"{reason} {ASKED}$"):
            compared(*sides)
        assert compared(*sides, by="run")["verdict"] == "diverged"
    assert where(compared(*stateful, by="run")) == ("scores", 0, 1, 0, "here_or_cache")
    assert where(compared(*no_inputs, by="run"))[-1] == "unknown"


def test_differences_by_run_do_not_affect_evidence_by_input() -> None:
    sides = chain(), chain(SCORES, sites=(EMBED, NORM, SCORES))
    reported = compared(*sides)
    assert (reported["evidence"], reported["verdict"], reported["first"], reported["others"]) == (
        "input",
        "identical",
        None,
        [],
    )
    assert reported["headlines"] == ["by input: identical, api/0 and api/1: 6 comparisons at 2 sites"]
    assert compared(*sides, by="run")["verdict"] == "diverged"


def test_a_step_with_other_first_inputs_is_other_work() -> None:
    other = [replace(each, inputs=(off(5000 + each.step, 0.7),), output=off(9, 0.3)) for each in GOOD]
    with pytest.raises(NothingComparable, match="12 of another step's work"):
        compared(GOOD, other, by="run")


def other_prompt(step: int, born: int = SCORES) -> list[CheckedRecord]:
    """Return the records of a worker that got another prompt in this step; later steps read the result from a cache."""
    first = [replace(e, inputs=(off(5000, 0.7),), output=off(e.output.checksum + 9, 0.3)) for e in chain(steps=step)]
    return chain(steps=step - 1) + first[4 * (step - 1) :] + chain(born)[4 * step :]


def test_a_step_whose_cache_was_filled_by_other_work_is_not_paired() -> None:
    reported = compared(GOOD, other_prompt(2), by="run")
    assert (reported["verdict"], counts(reported)) == ("identical", {"compared": 4, "identical": 4})
    assert reported["not_comparable"] == {"work": 8}
    assert reported["coverage"]["steps"] == {"shared": 3, "lone": 0, "other": 2}
    with pytest.raises(NothingComparable, match="12 of another step's work"):
        compared(GOOD, other_prompt(1), by="run")


def test_a_step_without_a_cache_is_paired_after_any_work() -> None:
    stateless = [[e for e in reported if e.site != SCORES] for reported in (GOOD, other_prompt(1, MLP))]
    reported = compared(*stateless, by="run")
    assert (reported["diverged"], reported["not_comparable"]) == (2, {"work": 3})
    assert where(reported) == ("mlp", 0, 2, 0, "culprit")


def test_workers_with_the_same_other_work_are_paired() -> None:
    reported = compared(GOOD, GOOD, GOOD, other_prompt(1), other_prompt(1), by="run")
    assert (reported["verdict"], reported["diverged"], reported["identical"]) == ("identical", 0, 2 * 12 + 12)
    damaged = compared(GOOD, GOOD, GOOD, other_prompt(1), other_prompt(1, NORM), by="run")
    assert (damaged["verdict"], where(damaged)[:3]) == ("diverged", ("norm", 0, 2))


def given_else(records: list[CheckedRecord], step: int) -> list[CheckedRecord]:
    """Return the records with other inputs from this step on."""
    return [replace(e, inputs=(off(7000 + e.step, 0.5),)) if e.site == EMBED and e.step >= step else e for e in records]


def without(records: list[CheckedRecord], site: int, step: int) -> list[CheckedRecord]:
    return [e for e in records if (e.site, e.step) != (site, step)]


def test_later_steps_of_a_damaged_worker_stay_paired() -> None:
    """The later inputs differ because of the damage."""
    wrong = given_else(chain(NORM), 2)
    reported = compared(GOOD, wrong, by="run")
    assert (reported["verdict"], where(reported)[:3]) == ("diverged", ("norm", 0, 1))
    assert "work" not in reported["not_comparable"]
    with_other_work = compared(GOOD, GOOD, GOOD, other_prompt(1), given_else(chain(SCORES), 2), by="run")
    assert (where(with_other_work)[:3], with_other_work["not_comparable"]) == (("scores", 0, 1), {"work": 12})


def test_a_difference_from_a_cache_of_other_work_hides_no_later_other_work() -> None:
    """In the last step, no site reads a cache, so only the inputs show that this is different work."""
    sides = [without(reported, SCORES, 3) for reported in (GOOD, given_else(other_prompt(1), 3))]
    with pytest.raises(NothingComparable, match="11 of another step's work"):
        compared(*sides, by="run")


def test_a_difference_without_a_cache_is_not_from_other_work() -> None:
    """If a step without a cache differs, that difference may be the reason why later steps have other inputs."""
    sides = [[e for e in reported if e.site != SCORES] for reported in (GOOD, given_else(other_prompt(1, MLP), 3))]
    reported = compared(*sides, by="run")
    assert (where(reported)[:3], reported["not_comparable"]) == (("mlp", 0, 2), {"work": 3})


def test_a_comparison_can_be_limited_to_a_step_or_recent_seconds() -> None:
    assert counts(compared(GOOD, chain(MLP), step="2")) == {"compared": 4, "identical": 3, "diverged": 1}
    assert where(compared(GOOD, chain(MLP), step="0000000000000003"))[2] == 3
    since = (NOW - 8.5 * SECOND) / SECOND  # each step has four sites, and this time is after the third site
    assert counts(compared(GOOD, chain(MLP), since=since)) == {"compared": 4, "identical": 3, "diverged": 1}


# ---- records that cannot be compared


def test_no_overlap_is_never_equal() -> None:
    with pytest.raises(NothingComparable, match="0 of 24 fingerprints have a counterpart"):
        compared(GOOD, [replace(each, step=each.step + 50, inputs=(Tensor(1),), position=9) for each in GOOD])
    with pytest.raises(NothingComparable, match="no fingerprints of api/1 are recorded"):
        compared(GOOD, [])
    with pytest.raises(NothingComparable, match="no fingerprints of api/0 and api/1 are recorded"):
        compared([], [], by="run")


ABSENT = "step 99 has no fingerprints of api/0 and api/1; "
NOT_SHARED = "no step was recorded in two workers (leave out --step)"


@pytest.mark.parametrize("by", [None, "input", "run"])
@pytest.mark.parametrize(
    ("sides", "step", "said"),
    [
        ((3, 3), "99", ABSENT + "api/0 and api/1 have steps 1 to 3 (--step 3, or leave out --step)"),
        ((3, 2), "99", ABSENT + "api/0 has steps 1 to 3; api/1 has steps 1 to 2 (--step 2, or leave out --step)"),
        (
            (3, 2),
            "3",
            "step 3 has no fingerprints of api/1; api/0 has steps 1 to 3; api/1 has steps 1 to 2"
            " (--step 2, or leave out --step)",
        ),
        (
            (3, 0),
            "99",
            f"{ABSENT}api/0 has steps 1 to 3; api/1 has no fingerprints; {NOT_SHARED}",
        ),
        (
            (1, 1),
            "req-7",
            ABSENT.replace("99", "req-7") + "api/0 and api/1 have step 1 (--step 1, or leave out --step)",
        ),
    ],
)
def test_a_step_without_fingerprints_is_named_with_the_recorded_ones(
    by: str | None, sides: tuple[int, int], step: str, said: str
) -> None:
    with pytest.raises(NothingComparable) as caught:
        compared(*(chain(steps=steps) for steps in sides), step=step, by=by)
    assert str(caught.value) == said


def test_only_the_recent_steps_that_are_asked_for_are_recorded_ones() -> None:
    since = (NOW - 8.5 * SECOND) / SECOND
    document = answered(GOOD, GOOD, step="1", since=since)
    said = "step 1 has no fingerprints of api/0 and api/1; api/0 and api/1 have step 3"
    assert document["reasons"] == [f"{said} (--step 3, or leave out --step)"]
    (outputs,) = [each for each in document["evidence_classes"] if each["evidence"] == "input"]
    assert outputs["why"] == "no fingerprints of step 1"


def test_steps_that_are_digests_have_no_range() -> None:
    digests = [replace(each, step=each.step << 60) for each in GOOD]
    with pytest.raises(NothingComparable, match="api/0 and api/1 have 3 steps, such as 1000000000000000 "):
        compared(digests, digests, step="7")
    with pytest.raises(NothingComparable, match=r"\(--step 1000000000000000, or leave out --step\)"):
        compared(digests, digests, step="7")
    assert counts(compared(digests, digests, step="1000000000000000")) == {"compared": 4, "identical": 4}


def test_a_fingerprint_without_a_step_is_of_no_step() -> None:
    outside = [replace(each, step=0, flags=0) for each in GOOD]
    with pytest.raises(NothingComparable) as caught:
        compared(outside, GOOD, step="7")
    recorded = f"api/0 has fingerprints without a step; api/1 has steps 1 to 3; {NOT_SHARED}"
    assert str(caught.value) == ABSENT.replace("99", "7") + recorded
    with pytest.raises(NothingComparable, match=r"^no fingerprints of api/0 and api/1 are recorded"):
        compared([], [], step="7")


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"shape": 9}, "shape"), ({"dtype": INT64}, "dtype")],
)
def test_sites_with_another_form_are_not_comparable_for_that_reason(change: dict[str, int], reason: str) -> None:
    formed = [replace(e, output=replace(e.output, **change)) if e.site == MLP else e for e in GOOD]  # type: ignore[arg-type]
    reported = compared(GOOD, formed, by="run")
    assert (reported["verdict"], reported["not_comparable"]) == ("identical", {reason: 3})
    with pytest.raises(NothingComparable, match=f"3 of another {reason}"):
        compared([e for e in GOOD if e.site == MLP], [e for e in formed if e.site == MLP], by="run")


def test_another_name_for_a_kernel_does_not_block_comparisons_of_others() -> None:
    called = [None if row is None else (row[0], 7) if row[0] == "mlp" else row for row in NAMES]
    reported = compared(GOOD, GOOD, chain(MLP), by="input", called={0: called})
    assert (reported["verdict"], where(reported)) == ("diverged", ("mlp", 0, 1, 0, "culprit"))
    assert [reported["first"][side]["worker"] for side in "ab"] == ["api/1", "api/2"]
    assert reported["not_comparable"] == {"stateful": 3}


def test_by_input_stateful_sites_never_diverge_and_are_reported_as_left_out() -> None:
    reported = compared(GOOD, chain(SCORES), by="input")
    assert (reported["verdict"], reported["not_comparable"]) == ("identical", {"stateful": 3})
    with pytest.raises(NothingComparable, match="3 of stateful kernels"):
        compared([e for e in GOOD if e.site == SCORES], [e for e in chain(SCORES) if e.site == SCORES], by="input")


def test_every_reason_for_not_comparable_has_a_text() -> None:
    assert set(REASONS) == {class_.name.lower() for class_ in Class if not class_.comparable}


def test_missing_and_extra_sites_are_reported_for_both() -> None:
    lacks = [each for each in GOOD if not (each.site == NORM and each.step == 2)]
    extra = sorted([*lacks, *(replace(each, site=STRANGE) for each in GOOD if each.step == 2)], key=lambda e: e.ticks)
    reported = compared(GOOD, extra, by="run")
    assert (reported["verdict"], reported["missing"]) == ("identical", {"a": 1, "b": 1})
    assert {site["kernel"]: site["missing"] for site in reported["sites"] if site["missing"]} == {"norm": 1, HOSTILE: 1}


def test_a_worker_that_starts_in_the_middle_lacks_nothing() -> None:
    reported = compared(GOOD, GOOD[6:], by="run")
    assert (reported["verdict"], reported["missing"]) == ("identical", {"a": 0, "b": 0})
    assert reported["coverage"]["steps"] == {"shared": 2, "lone": 1, "other": 0}
    assert reported["coverage"]["uncertain"] == 2


def test_checksums_of_different_keys_are_never_compared() -> None:
    with pytest.raises(NothingComparable, match="api/0 and api/1 are made with different keys"):
        compared(GOOD, GOOD, process={1: {"key": 8}})
    reported = answered(GOOD, GOOD, process={1: {"key": 8}})
    assert (reported["verdict"], reported["not_comparable"], reported["sites"]) == ("not_comparable", {"key": 24}, [])
    assert counts(reported) == {}


def test_a_document_without_comparisons_has_the_reasons_with_counts() -> None:
    formed = [replace(e, output=replace(e.output, dtype=INT64)) for e in GOOD]
    reported = answered(GOOD, formed, by="run")
    assert {*compared(GOOD, GOOD, by="run"), "reasons"} == {*reported}
    assert (reported["evidence"], reported["verdict"], reported["not_comparable"]) == (
        "run",
        "not_comparable",
        {"dtype": 12},
    )
    assert (reported["coverage"]["fingerprints"], reported["coverage"]["sites_compared"], reported["first"]) == (
        24,
        0,
        None,
    )
    assert reported["reasons"] == reported["headlines"]
    assert {site["kernel"]: site["not_comparable"] for site in reported["sites"]} == {
        kernel: {"dtype": 3} for kernel in ("embed", "norm", "scores", "mlp")
    }
    tried = answered(GOOD, [replace(each, step=each.step + 50, inputs=(Tensor(1),), position=9) for each in GOOD])
    assert (tried["evidence"], tried["coverage"]["lone"], tried["others"]) == ("input", 24, [])
    assert tried["outputs"] == {"evidence": "input", "fingerprints": 24, "compared": 0}
    for names, fingerprints in ((["api/0"], 12), ([], 0)):
        alone = answered(*[GOOD] * len(names), names=names)
        assert (alone["verdict"], alone["coverage"]["fingerprints"]) == ("not_comparable", fingerprints)


def test_unequal_numbers_of_repeats_are_not_comparable() -> None:
    twice = [replace(each, step=1) for each in GOOD]
    assert counts(compared(twice, twice, by="run")) == {"compared": 12, "identical": 12}
    reported = compared(twice, twice[:-1], by="run")
    assert reported["not_comparable"] == {"repeats": 1}


def test_a_comparison_needs_at_least_two_workers() -> None:
    with pytest.raises(NothingComparable, match="the names match only api/0, expected two workers or more"):
        compared(GOOD, GOOD, names=["api/0"])
    with pytest.raises(NoSuchWorker):
        compared(GOOD, GOOD, names=["api/7", "api/0"])
    with pytest.raises(WrongQuestion, match="2 services"):
        compared(GOOD, GOOD, names=[], services={1: "batch"})


@pytest.mark.ci
def test_services_patterns_and_names_select_workers_in_the_given_order() -> None:
    three = (GOOD, GOOD, GOOD)

    def named(*names: str) -> list[str]:
        return [each["worker"] for each in compared(*three, names=names)["workers"]]

    assert named("api") == ["api/0", "api/1", "api/2"]
    assert named("api/2", "api/0", "api/2") == ["api/2", "api/0"]
    assert named("api/[12]") == ["api/1", "api/2"]
    assert named("api/2", "api/*") == ["api/2", "api/0", "api/1"]
    assert named() == ["api/0", "api/1", "api/2"]


def test_dead_workers_without_fingerprints_are_left_out_unless_named() -> None:
    reported = compared(GOOD, [], GOOD, dead=(1,))
    assert [each["worker"] for each in reported["workers"]] == ["api/0", "api/2"]
    assert reported["timing"]["b"] == ["api/2"]
    assert len(compared(GOOD, GOOD, GOOD, dead=(1,))["workers"]) == 3
    with pytest.raises(NothingComparable, match="no fingerprints of api/1"):
        compared(GOOD, [], GOOD, dead=(1,), names=["api/0", "api/1"])


# ---- lost records


@pytest.mark.ci
def test_a_lost_record_makes_the_verdict_incomplete_and_never_diverged() -> None:
    lacks = [each for each in GOOD if not (each.site == MLP and each.step == 2)]
    for by in ("run", None):
        reported = compared(GOOD, lacks, by=by, lost={1: 1})
        assert (reported["verdict"], reported["incomplete"], reported["missing"]) == ("incomplete", 1, {"a": 0, "b": 0})
        assert reported["first"] is None
        assert reported["headlines"][0].endswith("incomplete, 1 record was lost; equal: 11 comparisons at 4 sites")
    # One of several fingerprints of a step is lost, and brickd cannot know which one.
    many = [CheckedRecord(off(n, 0.1 * n), site=MLP, step=1, ticks=n + 1, flags=STEP) for n in range(4)]
    for gone in range(4):
        rest = many[:gone] + many[gone + 1 :]
        other = many[:3] if gone == 3 else many[: 3 - gone] + many[4 - gone :]
        reported = compared(GOOD + rest, GOOD + other, by="run", lost={0: 1, 1: 1})
        assert (reported["verdict"], reported["diverged"], reported["first"]) == ("incomplete", 0, None), gone


def test_a_birth_with_equal_inputs_is_certain_despite_lost_records() -> None:
    reported = compared(GOOD, chain(MLP)[2:], by="run", lost={1: 2})
    assert (reported["verdict"], where(reported)) == ("diverged", ("mlp", 0, 1, 0, "culprit"))
    assert reported["incomplete"] == 2


def test_losses_of_a_third_worker_do_not_affect_the_other_two() -> None:
    sides = [bare(reported, EMBED, NORM, SCORES, MLP) for reported in (GOOD, chain(MLP), [])]
    assert compared(*sides, by="run", lost={2: 5})["verdict"] == "diverged"


def computed(runs: list[tuple[int, int, int, int]]) -> list[CheckedRecord]:
    """Return the records of one worker.

    Each run of an operator is given as its site, input, step and position. Runs with equal inputs have equal outputs.
    """
    return [
        CheckedRecord(
            off(100 * site + given_ + 1, 0.1 * given_),
            (off(given_, 0.1 * given_),),
            site=site,
            step=step,
            position=position,
            ticks=at + 1,
            flags=STEP,
        )
        for at, (site, given_, step, position) in enumerate(runs)
    ]


anybodys_runs = st.lists(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(0, 1)), min_size=1, max_size=14
)


@pytest.mark.ci
@given(anybodys_runs, st.sets(st.integers(0, 13)), st.sets(st.integers(0, 13)), st.sampled_from(["input", "run", None]))
def test_equal_workers_never_diverge_whatever_they_lose(
    runs: list[tuple[int, int, int, int]], one: set[int], other: set[int], by: str | None
) -> None:
    reported = computed(runs)
    left = [[each for at, each in enumerate(reported) if at not in gone] for gone in (one, other)]
    lost = {number: len(reported) - len(each) for number, each in enumerate(left)}
    try:
        found = compared(*left, by=by, lost=lost)
    except NothingComparable:
        assert not all(left) or any(lost.values()) or by != "input"
    else:
        assert found["diverged"] == 0
        assert found["verdict"] == ("incomplete" if any(lost.values()) else "identical")


# One worker did different work before the step that both share, and the other worker did different work after it.
@pytest.mark.ci
@example([(3, 3, 2, 0), (2, 2, 1, 0)], [(2, 1, 1, 0), (3, 3, 2, 0)])
# The step reads state, but only one worker has the fingerprint that shows this.
@example([(1, 1, 1, 0), (1, 1, 2, 0)], [(1, 1, 2, 0), (1, 2, 1, 0), (3, 1, 2, 0)])
@given(anybodys_runs, anybodys_runs)
def test_swapping_the_sides_swaps_only_their_labels(
    one: list[tuple[int, int, int, int]], other: list[tuple[int, int, int, int]]
) -> None:
    for by in ("input", "run"):
        try:
            found = compared(computed(one), computed(other), by=by)
        except NothingComparable:
            with pytest.raises(NothingComparable):
                compared(computed(one), computed(other), by=by, names=["api/1", "api/0"])
            continue
        turned = compared(computed(one), computed(other), by=by, names=["api/1", "api/0"])
        assert {key: found[key] for key in (*COUNTS, "verdict", "not_comparable")} == {
            key: turned[key] for key in (*COUNTS, "verdict", "not_comparable")
        }
        assert found["missing"] == {"a": turned["missing"]["b"], "b": turned["missing"]["a"]}


# ---- notes


def test_the_document_has_the_documented_keys() -> None:
    reported = compared(GOOD, chain(MLP))
    assert {
        "schema_version", "evidence", "verdict", "compared", "identical", "within", "diverged", "not_comparable",
        "incomplete", "missing", "first", "outlier", "coverage", "sites",
    } <= reported.keys()  # fmt: skip
    assert reported["schema_version"] == 1
    assert {"kernel", "layer", "position", "step", "blame", "relative_error", "a", "b"} <= reported["first"].keys()
    assert {"checksum", "fnv1a", "mean", "l2", "min", "max", "nan", "shape", "dtype"} <= reported["first"]["a"].keys()


def test_the_diagnosis_labels_the_sides_correctly() -> None:
    reported = compared(GOOD, chain(MLP))
    first = reported["first"]
    assert (first["a"]["worker"], first["b"]["worker"]) == ("api/0", "api/1")
    expected, actual = (f"{1000 + 10 * MLP + wrong:016x}" for wrong in (0, 1))
    assert f"expected {expected} (api/0), actual {actual} (api/1)" in reported["diagnosis"]
    turned = compared(GOOD, chain(MLP), names=["api/1", "api/0"])
    assert f"expected {actual} (api/1), actual {expected} (api/0)" in turned["diagnosis"]


def test_coverage_reports_uncompared_sites() -> None:
    sides = [*GOOD, CheckedRecord(off(1), site=NORM, step=9, ticks=50 * SECOND)], GOOD
    seen = compared(*sides)["coverage"]
    assert (seen["fingerprints"], seen["sites"], seen["sites_compared"]) == (25, 4, 4)
    assert (seen["bare"], seen["lost"], seen["evicted"]) == (1, 0, 0)
    assert (seen["off_sites"], seen["off"]) == (1, [{"kernel": "embed", "layer": 5}])


def test_a_wrong_and_slow_worker_is_reported_as_both() -> None:
    reported = compared(GOOD, GOOD, chain(MLP), spans={2: 2_000_000})
    assert (reported["outlier"], reported["timing"]["a"], reported["timing"]["b"]) == (
        "api/2",
        ["api/0", "api/1"],
        ["api/2"],
    )
    assert reported["headlines"][-1].startswith("api/2 takes longer, too: gemm +")
    same = compared(GOOD, GOOD, chain(MLP))
    assert not any(brick["significant"] for brick in same["timing"]["bricks"])
    assert "longer" not in same["headlines"][-1]
    assert compared(GOOD, GOOD, GOOD)["timing"] is None


# ---- other workers


def other_work(records: list[CheckedRecord]) -> list[CheckedRecord]:
    """Return the same number of steps with other tokens."""
    return [
        replace(
            each,
            output=replace(each.output, checksum=each.output.checksum + 500_000, sketch=(9.0,) * 16),
            inputs=tuple(
                replace(given, checksum=given.checksum + 500_000, sketch=(7.0,) * 16) for given in each.inputs
            ),
        )
        for each in records
    ]


def rounded(records: list[CheckedRecord], by: float) -> list[CheckedRecord]:
    """Return the records with another order of summation."""
    return [
        replace(each, output=off(each.output.checksum + 250_000 + (by > 1e-6), by))
        if at % 4 == 3
        else each  # the last output of a step is not an input of a site
        for at, each in enumerate(records)
    ]


BYSTANDERS = {
    "does all": GOOD,
    "does the end of it": [each for each in GOOD if each.site in (SCORES, MLP)],
    "does the beginning of it": [each for each in GOOD if each.site in (EMBED, NORM)],
    "came later": GOOD[4:],
    "is rounding apart": rounded(GOOD, 1e-8),
    "does other work": other_work(GOOD),
    "no records": [],
}


@pytest.mark.ci
@given(
    st.sampled_from([EMBED, NORM, SCORES, MLP]),
    st.lists(st.tuples(st.sampled_from(sorted(BYSTANDERS)), st.booleans()), max_size=4),
    st.permutations(range(6)),
)
def test_other_workers_do_not_change_where_two_differ(
    born: int, others: list[tuple[str, bool]], order: list[int]
) -> None:
    sides = [GOOD, chain(born), *(BYSTANDERS[each] for each, _ in others)]
    lost = {at: 1 for at, (_, loses) in enumerate(others, start=2) if loses}
    named = [f"api/{at}" for at in order if at < len(sides)]
    reported = compared(*sides, by="run", lost=lost, names=named)
    assert where(reported)[:4] == where(compared(GOOD, chain(born), by="run"))[:4]
    assert {reported["first"][side]["worker"] for side in "ab"} >= {"api/1"}
    assert reported["outlier"] in (None, "api/1")


@pytest.mark.ci
@given(
    st.sampled_from([EMBED, NORM, SCORES, MLP]),
    st.lists(st.sampled_from(sorted(BYSTANDERS)), max_size=3),
    st.permutations(range(5)),
    st.lists(st.integers(0, 1000), min_size=5, max_size=5),
)
def test_clocks_do_not_change_whether_two_differ(
    born: int, others: list[str], order: list[int], starts: list[int]
) -> None:
    sides = [
        [replace(each, ticks=each.ticks + start * SECOND) for each in reported]
        for reported, start in zip([GOOD, chain(born), *(BYSTANDERS[each] for each in others)], starts, strict=False)
    ]
    reported = compared(*sides, by="run", names=[f"api/{at}" for at in order if at < len(sides)])
    assert (reported["verdict"], reported["outlier"]) in (("diverged", None), ("diverged", "api/1"))


def test_different_first_inputs_mean_other_work_whatever_the_outputs() -> None:
    def begins(given: Tensor, out: Tensor) -> list[CheckedRecord]:
        first = CheckedRecord(out, (given,), site=EMBED, step=1, ticks=SECOND, flags=STEP)
        last = CheckedRecord(
            off(given.checksum + 50, 0.5 * given.checksum), (), site=MLP, step=1, ticks=2 * SECOND, flags=STEP
        )
        return [first, last]

    own = begins(Tensor(1), Tensor(7))
    longer = Tensor(2, elements=128, shape=2)
    for other in (begins(longer, longer), begins(longer, Tensor(8)), begins(off(2, 0.5), Tensor(7))):
        try:
            reported = compared(own, other, by="run")
        except NothingComparable:
            continue
        assert (reported["diverged"], reported["not_comparable"]["work"]) == (0, 1)
    near = compared(begins(Tensor(1), Tensor(3, dtype=INT64)), begins(off(2, 1e-8), Tensor(4, dtype=INT64)), by="run")
    assert near["verdict"] == "diverged", "inputs that differ only by rounding are the same work"


def test_a_stage_with_wrong_inputs_does_not_make_the_previous_stage_other_work() -> None:
    first, second = (EMBED, NORM), (SCORES, MLP)
    stages = [[each for each in chain(born) if each.site in of] for born in (None, NORM) for of in (first, second)]
    reported = compared(*stages, by="run")
    assert (reported["verdict"], *where(reported)[:3]) == ("diverged", "norm", 0, 1)
    assert reported["not_comparable"] == {"work": 6}


@pytest.mark.ci
def test_the_outlier_is_the_distant_one_in_any_order_of_names() -> None:
    sides = [GOOD, rounded(GOOD, 1e-8), rounded(chain(), 0.5)]
    for order in itertools.permutations(range(3)):
        reported = compared(*(sides[at] for at in order), by="run")
        assert reported["outlier"] == f"api/{order.index(2)}"
        assert counts(reported) == {"compared": 24, "identical": 18, "within": 3, "diverged": 3}


def test_losses_of_a_third_worker_do_not_excuse_the_other_two() -> None:
    sides = [bare(reported, EMBED, NORM, SCORES, MLP) for reported in (GOOD, chain(MLP), GOOD[1:])]
    reported = compared(*sides, by="run", lost={2: 1})
    assert (reported["verdict"], reported["diverged"], reported["outlier"]) == ("diverged", 3, "api/1")
    both = compared(*sides, by="run", lost={1: 1, 2: 1})
    assert (both["verdict"], both["diverged"], both["incomplete"]) == ("incomplete", 0, 5)
    assert {site["kernel"]: (site["diverged"], site["verdict"]) for site in both["sites"]}["mlp"] == (0, "incomplete")


@pytest.mark.parametrize(("by", "rounding"), [(1e-7, True), (1e-2, False)])
def test_by_input_rounding_is_no_excuse_but_is_mentioned(by: float, rounding: bool) -> None:
    reported = compared(GOOD, chain(MLP, by=by))
    assert (reported["verdict"], reported["first"]["rounding"]) == ("diverged", rounding)
    assert ("backend=" in reported["headlines"][2]) == rounding


def test_beyond_the_range_of_a_sketch_only_evidence_by_input_diverges() -> None:
    """The mask has the lowest float32 values, so the sum of sixteen of them overflows."""
    masked = [replace(each, output=replace(each.output, sketch=(float("-inf"),) * 16)) for each in rounded(GOOD, 0.0)]
    unmasked = [replace(each, output=replace(each.output, sketch=(float("-inf"),) * 16)) for each in GOOD]
    with_inputs = compared(unmasked, masked, by="input")
    assert (with_inputs["verdict"], with_inputs["first"]["relative_error"]) == ("diverged", None)
    sides = [bare(reported, EMBED, NORM, SCORES, MLP) for reported in (unmasked, masked)]
    reported = compared(*sides, by="run")
    assert (reported["verdict"], reported["not_comparable"]) == ("identical", {"range": 3})


def test_repeats_begun_before_the_requested_time_are_not_paired_by_count() -> None:
    again = [replace(GOOD[3], output=off(7_000 + n), inputs=(), ticks=(4 + n) * SECOND) for n in range(4)]
    sides = [GOOD[:3] + again, GOOD[:3] + again[:3]]
    with pytest.raises(NothingComparable, match="that ran a different number of times in the workers"):
        compared(*sides, by="run", since=(NOW - 4.5 * SECOND) / SECOND)
