"""Results of canaries: what is accepted from a worker, and how results of workers compare."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.numerics.canary_results import CanaryAnswer, CanaryVerdict, SiteDigest, compare, decoded

VALID: dict[str, Any] = {
    **{"order": 3, "name": "greeting", "end": "done", "reason": None, "input": "i", "model": "m", "context": "c"},
    **{"sites": [["embed", None, "a", "b"], ["mlp", 1, "c", "d"]], "slices": 4, "spent_s": 0.5, "longest_s": 0.25},
}


def changed(**values: Any) -> bytes:
    return json.dumps(VALID | values).encode()


def answer(mlp: str = "c", forced: str = "d", embed: str = "b", **values: Any) -> CanaryAnswer:
    sites = (SiteDigest("embed", None, "a", embed), SiteDigest("mlp", 1, mlp, forced))
    return decoded(changed(sites=sites, **values))


def verdicts(*found: CanaryAnswer) -> list[str]:
    return [each.verdict for each in compare(found)]


def test_a_valid_result_is_decoded() -> None:
    found = decoded(changed())
    assert found == answer()
    assert (found.order, found.end, found.sites[1].layer, found.spent_s) == (3, "done", 1, 0.5)


@pytest.mark.parametrize(
    "values",
    [
        {"order": 0},
        {"order": 2**32},
        {"order": True},
        {"order": "3"},
        {"end": "fine"},
        {"end": ["done"]},
        {"end": "refused"},  # with sites
        {"name": "n" * 129},
        {"name": None},
        {"name": "\ud800"},
        {"reason": "r" * 401},
        {"input": 5},
        {"model": "m" * 129},
        {"context": "c" * 2001},
        {"sites": {}},
        {"sites": [["mlp", 1, "a"]]},
        {"sites": [["mlp", 1, "a", "b", "c"]]},
        {"sites": [["mlp", -1, "a", "b"]]},
        {"sites": [["mlp", 1, "a" * 129, "b"]]},
        {"sites": [[None, 1, "a", "b"]]},
        {"slices": -1},
        {"spent_s": "1"},
        {"longest_s": None},
        {"more": 1},
    ],
)
def test_an_invalid_result_is_refused(values: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected|invalid"):
        decoded(changed(**values))


def test_a_result_that_lacks_a_key_is_too_long_or_is_not_json_is_refused() -> None:
    lacks = {key: value for key, value in VALID.items() if key != "context"}
    for content in (json.dumps(lacks).encode(), changed() + b" " * (1 << 16), b"[1]", b"{", b"[" * 60_000, b"NaN"):
        with pytest.raises(ValueError, match=r".+"):
            decoded(content)
    assert decoded(changed() + b" " * ((1 << 16) - len(changed()))) == answer()


@given(st.recursive(st.none() | st.integers() | st.text() | st.floats(), st.lists, max_leaves=8))
def test_any_value_is_accepted_or_refused_with_a_value_error(value: Any) -> None:
    for key in VALID:
        try:
            decoded(changed(**{key: value}))
        except ValueError:
            continue


def test_equal_results_of_two_workers_are_equal() -> None:
    assert verdicts(answer(), answer(order=9, spent_s=7.0)) == ["equal", "equal"]


def test_of_three_workers_the_one_that_computes_something_else_differs() -> None:
    found = compare([answer(), answer(mlp="x"), answer()])
    assert found == [
        CanaryVerdict("equal"),
        CanaryVerdict("differs", None, ("mlp", 1, "prompt")),
        CanaryVerdict("equal"),
    ]


def test_two_workers_that_differ_disagree() -> None:
    assert verdicts(answer(), answer(mlp="x")) == ["disagrees", "disagrees"]


def test_half_of_the_workers_is_not_a_majority() -> None:
    assert verdicts(answer(), answer(), answer(mlp="x"), answer(mlp="x")) == ["disagrees"] * 4
    assert verdicts(answer(), answer(), answer(mlp="x"), answer(mlp="y")) == ["disagrees"] * 4
    assert verdicts(answer(), answer(), answer(), answer(mlp="x"), answer(mlp="y")) == [
        *["equal"] * 3,
        *["differs"] * 2,
    ]


def test_the_prompt_of_the_last_site_is_computed_before_the_forced_tokens_of_the_first() -> None:
    first = compare([answer(), answer(embed="x", mlp="x"), answer()])[1].first
    assert first == ("mlp", 1, "prompt")
    first = compare([answer(), answer(embed="x", forced="x"), answer()])[1].first
    assert first == ("embed", None, "forced")


@pytest.mark.parametrize("key", ["input", "model", "context"])
def test_results_with_another_input_model_or_context_are_not_compared(key: str) -> None:
    found = compare([answer(), answer(mlp="x", **{key: "other"})])
    assert found == [CanaryVerdict("not compared", f"another {key} than other workers")] * 2


def test_results_of_other_sites_are_not_compared() -> None:
    one = answer()
    found = compare([one, one._replace(sites=one.sites[:1]), one])
    assert found[1] == CanaryVerdict("not compared", "another list of sites than other workers")
    assert [each.verdict for each in found] == ["equal", "not compared", "equal"]


def test_a_lone_result_and_a_result_without_sites_are_not_compared() -> None:
    assert compare([answer()]) == [CanaryVerdict("not compared", "no other worker has a result")]
    empty = answer()._replace(sites=())
    assert compare([empty, empty]) == [CanaryVerdict("not compared", "it has no site")] * 2


def test_a_canary_that_did_not_end_is_not_compared_and_says_why() -> None:
    refused = decoded(changed(end="refused", reason="training: the model is in training mode", sites=[]))
    found = compare([answer(), refused, answer()])
    assert found[1] == CanaryVerdict("not compared", "refused: training: the model is in training mode")
    assert [each.verdict for each in found] == ["equal", "not compared", "equal"]
