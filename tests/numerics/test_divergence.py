"""The result of `brickd.diff` in Python: each attribute has the value of the right key in the document."""

from __future__ import annotations

from typing import Any

import pytest
from comparable_workers import MLP, chain, compared

from brickd.divergence import Divergence, KernelTrace


def divergence(**more: Any) -> Divergence:
    """Return the comparison of three workers; the MLP of the last one gives other outputs."""
    return Divergence(compared(chain(), chain(), chain(MLP)) | more)


def test_the_first_divergence_has_expected_and_actual() -> None:
    found = divergence()
    first = found.document["first"]
    assert (found.verdict, found.evidence, found.matched) == ("diverged", "input", False)
    assert (found.kernel, found.blame, found.outlier) == ("mlp", "culprit", "api/2")
    assert found.compared == found.document["compared"] > 0
    assert found.diagnosis == found.document["diagnosis"]
    assert found.expected == KernelTrace("api/0", "mlp", 0, 0, 1, f"{1040:016x}", f"{1:016x}", first["a"])
    assert found.actual == KernelTrace("api/2", "mlp", 0, 0, 1, f"{1041:016x}", f"{1:016x}", first["b"])


def test_its_repr_shows_the_verdict() -> None:
    found = divergence()
    assert repr(found) == f"Divergence(verdict='diverged', evidence='input', diagnosis={found.diagnosis!r})"
    assert "mlp" in found.diagnosis


def test_without_a_difference_there_is_no_expected_value() -> None:
    found = Divergence(compared(chain(), chain()))
    assert (found.verdict, found.matched, found.outlier) == ("identical", True, None)
    assert (found.kernel, found.blame, found.expected, found.actual) == (None, None, None, None)
    assert found.diagnosis == found.document["headlines"][0] != ""


@pytest.mark.parametrize(
    ("verdict", "matched"),
    [("identical", True), ("within", True), ("diverged", False), ("routing", False), ("incomplete", False)],
)
def test_only_identical_and_within_are_matched(verdict: str, *, matched: bool) -> None:
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
def test_compared_recordings_are_listed_in_the_given_order(document: dict[str, Any], runs: tuple[str, ...]) -> None:
    assert divergence(**document).runs == runs


def test_a_side_has_its_own_position_and_the_firsts_for_missing_values() -> None:
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
