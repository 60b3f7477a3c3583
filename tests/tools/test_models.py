"""The models of the protocols between worker and daemon, checked with the model checker spin."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from models.run import Case

RUN = Path(__file__).resolve().parent.parent / "models" / "run.py"
spec = importlib.util.spec_from_file_location("models_run", RUN)
assert spec is not None
assert spec.loader is not None
run = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not run.spin_present(), reason=run.SPIN_MISSING),
]

MUTANTS = [case for case in run.cases() if case.mutant is not None]


def test_the_ring_loses_nothing_uncounted() -> None:
    result = run.check(run.Case("ring", None))
    assert result.found == run.HOLDS, result.output


def test_a_summary_is_accepted_only_as_one_state() -> None:
    result = run.check(run.Case("summary", None))
    assert result.found == run.HOLDS, result.output


def test_the_writer_never_believes_half_a_tail() -> None:
    result = run.check(run.Case("tail", None))
    assert result.found == run.HOLDS, result.output


def test_a_daemon_killed_anywhere_is_succeeded_without_a_loss() -> None:
    result = run.check(run.Case("restart", None))
    assert result.found == run.HOLDS, result.output


def test_a_finalize_closes_earlier_starts_in_every_lane() -> None:
    result = run.check(run.Case("deferred", None))
    assert result.found == run.HOLDS, result.output


def test_a_lane_is_moved_whatever_its_thread_does_during_a_reopen() -> None:
    result = run.check(run.Case("reopen", None))
    assert result.found == run.HOLDS, result.output


def test_a_span_is_shown_or_removed_once_by_any_remover() -> None:
    result = run.check(run.Case("removed", None))
    assert result.found == run.HOLDS, result.output


def test_each_span_of_two_files_with_one_uuid_is_shown_or_removed_once() -> None:
    result = run.check(run.Case("twin", None))
    assert result.found == run.HOLDS, result.output


@pytest.mark.nightly
@pytest.mark.parametrize("case", MUTANTS, ids=[f"{case.model}-{case.mutant}" for case in MUTANTS])
def test_a_mutant_of_the_models_is_caught(case: Case) -> None:
    result = run.check(case)
    assert result.found == run.VIOLATED, result.output
