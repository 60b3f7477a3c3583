"""What follows from the counts of a site. Each limit is tested exactly."""

from __future__ import annotations

import pytest

from brickd.analysis.numerics.online_state import SiteCounts


@pytest.mark.parametrize(
    ("equal", "unlike", "repeats"),
    [(99, 0, False), (100, 0, True), (100, 5, True), (119, 6, False), (120, 6, True), (2_000, 100, True)],
)
def test_a_kernel_repeats_after_100_equal_comparisons_and_20_per_unequal_one(
    equal: int, unlike: int, *, repeats: bool
) -> None:
    assert SiteCounts("mlp", met=equal + unlike, unlike=unlike).repeats == repeats


def test_comparable_fingerprints_without_a_counterpart_are_alone() -> None:
    assert SiteCounts("mlp", fingerprints=100, bare=10, stateful=20, met=30).alone == 40
    assert SiteCounts("mlp", fingerprints=100, bare=10, stateful=20, met=80).alone == 0
