"""`scripts/bench fingerprint`: all methods compute the same fingerprint, and the goals are those of the design."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from benchmarks import numeric, tensors
from fingerprints import CODES, expected, siphash


@pytest.mark.parametrize("elements", [16, 4096, (1 << 17) + 48])
def test_the_numpy_fingerprint_follows_the_definition(elements: int) -> None:
    array = np.random.default_rng(1).standard_normal(elements).astype(np.float32)
    total, sketch, stats = numeric.fingerprint(array)
    want = expected(array, "float32")
    assert siphash(struct.pack("<3Q", total, array.nbytes, CODES["float32"]), 0) == want.checksum
    assert np.allclose(sketch, want.sketch.astype(float), rtol=0, atol=1e-6 * float(want.l2))
    assert (stats["min"], stats["max"]) == (want.min, want.max)
    assert stats["mean"] == pytest.approx(float(want.mean), rel=1e-9)
    assert stats["l2"] == pytest.approx(float(want.l2), rel=1e-5)


def test_the_goals_of_a_fingerprint_match_the_design() -> None:
    goals = {(each.case, each.reference): each.goal.limit for each in tensors.COMPARISONS if each.goal is not None}
    assert goals == {
        (tensors.READ, "fingerprint, avx512"): 0.45,
        (tensors.READ, "fingerprint, avx2"): 0.30,
        (tensors.FNV, tensors.CHOSEN): 10,
        (tensors.NUMPY, tensors.CHOSEN): 3,
    }
