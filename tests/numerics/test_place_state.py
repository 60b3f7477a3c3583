"""The state of a site, which follows from the workers that differ and the workers that contradict themselves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from brickd.analysis.numerics.online_state import Case, Doubt, KeptEvidence
from brickd.analysis.numerics.place_state import Fate, fate

KEPT = Case(1, KeptEvidence("a", b"1", "", ""), KeptEvidence("a", b"2", "", ""))
WORKERS = st.frozensets(st.sampled_from("abcdef"))


@given(WORKERS, WORKERS, WORKERS, st.sampled_from([None, KEPT]), st.booleans(), st.booleans())
def test_a_doubt_may_be_the_kernel_and_a_finding_is_a_worker(
    workers: frozenset[str],
    contradict: frozenset[str],
    present: frozenset[str],
    case: Case | None,
    differs: bool,
    repeats: bool,
) -> None:
    others = present if repeats else frozenset()  # workers that have no case and repeat their results
    contradict &= workers
    if len(contradict) > len(workers | others) / 2:
        wanted = Fate.DOUBTED
    elif differs:
        wanted = Fate.FOUND
    elif not contradict:
        wanted = Fate.COMPARABLE
    elif not repeats:
        wanted = Fate.DOUBTED
    else:
        wanted = Fate.COMPARABLE if case is None else Fate.FOUND
    assert fate(Doubt(workers, contradict, case), present, differs=differs, repeats=repeats) is wanted


@pytest.mark.parametrize(
    ("workers", "contradict", "case", "differs", "repeats", "wanted"),
    [
        ("abc", "", None, False, False, Fate.COMPARABLE),
        ("abc", "", None, True, False, Fate.FOUND),
        ("abc", "a", None, False, False, Fate.DOUBTED),
        ("abc", "a", KEPT, False, False, Fate.DOUBTED),
        ("abc", "a", KEPT, True, False, Fate.FOUND),
        ("abc", "a", KEPT, False, True, Fate.FOUND),
        ("abc", "a", None, False, True, Fate.COMPARABLE),
        ("abcd", "ab", KEPT, True, False, Fate.FOUND),
        ("abc", "ab", KEPT, True, False, Fate.DOUBTED),
        ("abc", "ab", KEPT, True, True, Fate.FOUND),
    ],
)
def test_if_more_than_half_contradict_themselves_no_outlier_is_named(
    workers: str, contradict: str, case: Case | None, differs: bool, repeats: bool, wanted: Fate
) -> None:
    doubt = Doubt(frozenset(workers), frozenset(contradict), case)
    assert fate(doubt, "abcd", differs=differs, repeats=repeats) is wanted
