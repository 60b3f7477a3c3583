"""The document of a round of canaries.

Owns: the keys of the document, the verdict on a round. Must not know: orders, segments. Invariant: a round is equal
only if each canary was compared in each worker.
"""

from __future__ import annotations

from typing import Any

from brickd.analysis.numerics.canary_results import DIFFERS, DISAGREES, EQUAL, NOT_COMPARED, CanaryVerdict, compare
from brickd.daemon.canary_rounds import CanaryRound, CanaryTurn

_WAITS = CanaryVerdict(NOT_COMPARED, "it has not run yet")


def round_document(made: CanaryRound, ignored: int) -> dict[str, Any]:
    """Return the document of a round; `ignored` counts invalid answers since the daemon started."""
    groups: dict[tuple[str, str], list[CanaryTurn]] = {}
    for turn in made.turns:
        groups.setdefault((turn.service, turn.canary.name), []).append(turn)
    results = [each for turns in groups.values() for each in _results(turns)]
    verdicts = {each["verdict"] for each in results}
    verdict = "differ" if verdicts & {DIFFERS, DISAGREES} else "equal" if verdicts == {EQUAL} else "unproven"
    return {
        "round": made.number,
        "over": made.is_over,
        "verdict": verdict,
        "ignored": ignored,
        "results": results,
    }


def _results(turns: list[CanaryTurn]) -> list[dict[str, Any]]:
    answered = [(turn, turn.answer) for turn in turns if turn.answer is not None]
    verdicts = compare([answer for _, answer in answered])
    of = {id(turn): verdict for (turn, _), verdict in zip(answered, verdicts, strict=True)}
    return [_result(turn, of.get(id(turn), _WAITS)) for turn in turns]


def _result(turn: CanaryTurn, verdict: CanaryVerdict) -> dict[str, Any]:
    answer, first = turn.answer, verdict.first
    state = "over" if turn.is_over else "running" if answer is not None else "ordered" if turn.order else "waiting"
    return {
        "worker": turn.worker,
        "service": turn.service,
        "canary": turn.canary.name,
        "state": state,
        "end": None if answer is None else answer.end,
        "verdict": verdict.verdict,
        "why": verdict.why,
        "first": None if first is None else dict(zip(("kernel", "layer", "part"), first, strict=True)),
        "sites": 0 if answer is None else len(answer.sites),
        "slices": 0 if answer is None else answer.slices,
        "spent_s": 0.0 if answer is None else answer.spent_s,
        "longest_s": 0.0 if answer is None else answer.longest_s,
    }
