"""brickd's verdicts on services whose faults are known.

Owns: which verbs are queried, and where the verdicts are in their answers. Must not know: the faults.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.asking import asked
from benchmarks.workplace import Workplace
from brickd.base.units import called
from brickd.demo.transformer import OperatorCall

_DIFFERS = {"identical": False, "within": False, "diverged": True, "routing": True}


class Verdict(NamedTuple):
    """One verdict on a service.

    Attributes:
        differs: whether the workers differ; None if brickd does not know.
        first: the first place where they differ. This is a run of an operator, or a worker and its tensor.
        error: the estimated difference; None if it was not given.
        comparisons: the number of comparisons.
        text: the original text.
    """

    differs: bool | None
    first: OperatorCall | tuple[str, str] | None = None
    error: float | None = None
    comparisons: int = 0
    text: str = ""


UNKNOWN = Verdict(None)


def absent(verb: str) -> str | None:
    """Return why a verb cannot be queried; None if it can."""
    from brickd.query.verbs import VERBS

    return None if verb in VERBS else f"brickd has no verb {verb}"


def of_kernels(place: Workplace, services: Iterable[str], *how: str) -> list[Verdict]:
    """Get verdicts from `brickd diff` of the two workers of each service."""
    questions = [("diff", f"{service}/0", f"{service}/1", *how) for service in services]
    return [kernels(document) for document in asked(place, questions)]


def kernels(document: Mapping[str, Any]) -> Verdict:
    """Return the verdict in an answer of `diff`."""
    if "error" in document:
        return Verdict(None, text=document["error"])
    first, where = document["first"], None
    if first is not None:
        layer = -1 if first["layer"] is None else first["layer"]
        where = OperatorCall(first["kernel"], layer, _number(first["step"]), _number(first["position"]))
    return Verdict(
        _DIFFERS.get(document["verdict"]),
        where,
        None if first is None else first["relative_error"],
        document["compared"],
        document["verdict"],
    )


def _number(value: str | int) -> int:
    return int(value, 16) if isinstance(value, str) else value


def of_services(place: Workplace, services: Iterable[str], *how: str) -> list[Verdict]:
    """Get verdicts from `brickd diff` of all workers of each service."""
    return [kernels(document) for document in asked(place, [("diff", service, *how) for service in services])]


def of_findings(place: Workplace, services: Iterable[str]) -> list[Verdict]:
    """Get verdicts from the daemon's findings in `brickd coverage`."""
    return [findings(document) for document in asked(place, [("coverage", service) for service in services])]


def findings(document: Mapping[str, Any]) -> Verdict:
    """Return the verdict in the answer of `coverage`. The answer has a random run of the operator as an example."""
    if "error" in document:
        return Verdict(None, text=document["error"])
    found = [each for each in document["findings"] if each["evidence"] == "input"]
    where = None
    if found:
        layer = -1 if found[0]["layer"] is None else found[0]["layer"]
        other = found[0]["first"]["other"]
        where = OperatorCall(found[0]["kernel"], layer, _number(other["step"]), _number(other["position"]))
    compared = sum(each["input"]["compared"] for each in document["services"] if each["input"] is not None)
    error = found[0]["relative_error"] if found else None
    return Verdict(bool(found), where, error, compared, "diverged" if found else "identical")


def of_weights(place: Workplace, services: Sequence[str]) -> list[Verdict]:
    """Get verdicts from `brickd weights` of all workers of each service."""
    return [weights(document) for document in asked(place, [("weights", service) for service in services])]


def weights(document: Mapping[str, Any]) -> Verdict:
    """Return the verdict of an answer of `weights`. It has a place only if exactly one tensor of one worker differs."""
    if "error" in document:
        return Verdict(None, text=document["error"])
    rows, where = document["differing"], None
    if document["differing_count"] == 1 and rows[0]["why"] != "disagree":
        where = rows[0]["worker"], called(rows[0]["tensor"], rows[0]["layer"], rows[0]["expert"])
    return Verdict(
        {"equal": False, "differ": True}.get(document["verdict"]),
        where,
        None if where is None else rows[0]["relative_error"],
        sum(service["compared"] for service in document["services"]),
        document["verdict"],
    )
