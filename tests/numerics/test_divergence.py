"""The result of a comparison in Python: each attribute, and its source in the document."""

from __future__ import annotations

from typing import Any

import pytest
from sided import MLP, chain, compared

from brickd.divergence import Divergence, KernelTrace


def divergence(**more: Any) -> Divergence:
    """The comparison of three workers, the last of which has another mlp."""
    return Divergence(compared(chain(), chain(), chain(MLP)) | more)


def test_the_first_that_differs_is_told_with_what_was_expected_and_what_there_is() -> None:
    found = divergence()
    first = found.document["first"]
    assert (found.verdict, found.evidence, found.matched) == ("diverged", "input", False)
    assert (found.kernel, found.blame, found.outlier) == ("mlp", "culprit", "api/2")
    assert found.compared == found.document["compared"] > 0
    assert found.diagnosis == found.document["diagnosis"]
    assert found.expected == KernelTrace("api/0", "mlp", 0, 0, 1, f"{1040:016x}", f"{1:016x}", first["a"])
    assert found.actual == KernelTrace("api/2", "mlp", 0, 0, 1, f"{1041:016x}", f"{1:016x}", first["b"])


def test_where_nothing_differs_there_is_nothing_expected() -> None:
    found = Divergence(compared(chain(), chain()))
    assert (found.verdict, found.matched, found.outlier) == ("identical", True, None)
    assert (found.kernel, found.blame, found.expected, found.actual) == (None, None, None, None)
    assert found.diagnosis == found.document["headlines"][0] != ""


@pytest.mark.parametrize(
    ("verdict", "matched"),
    [("identical", True), ("within", True), ("diverged", False), ("routing", False), ("incomplete", False)],
)
def test_what_is_equal_or_within_tolerance_is_matched_and_nothing_else(verdict: str, *, matched: bool) -> None:
    assert divergence(verdict=verdict).matched is matched


@pytest.mark.parametrize(
    ("document", "runs"),
    [
        ({}, ()),
        ({"recording": {"id": "a"}}, ("a",)),
        ({"recording": None, "recordings": [{"id": "b"}, {"id": "a"}]}, ("b", "a")),
        ({"recording": {"id": "a"}, "recordings": [{"id": "b"}]}, ("a",)),
    ],
)
def test_the_recordings_that_were_compared_stand_in_the_order_in_which_they_were_named(
    document: dict[str, Any], runs: tuple[str, ...]
) -> None:
    assert divergence(**document).runs == runs


def test_a_side_has_its_own_place_and_of_what_it_does_not_say_that_of_the_first() -> None:
    first = divergence().document["first"]
    bare = {key: value for key, value in first["a"].items() if key not in ("step", "position", "fnv1a")}
    late = first["b"] | {"position": 7, "step": "ffffffffffffffff"}
    found = divergence(first=first | {"a": bare, "b": late, "position": 3})
    assert found.expected is not None
    assert found.actual is not None
    assert (found.expected.position, found.expected.step, found.expected.fnv1a) == (3, None, None)
    assert (found.actual.position, found.actual.step) == (7, 2**64 - 1)
    nowhere = divergence(first=first | {"a": first["a"] | {"step": None}}).expected
    assert nowhere is not None
    assert nowhere.step is None
