"""Texts about peaks, shared by `calibrate`, `roofline` and the picture.

Owns: the words for a lower bound, for its reason, and for other work during a measurement. Must not know: how a peak is
measured. Invariants: Strings are not escaped, so the caller escapes them. A lower bound is always marked, and its
reason names the next command.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from brickd.analysis.roofline.peaks import UNDISTURBED_MIN
from brickd.base import units

_WHY = {
    "waited": "waited for a processor",
    "throttled": "were throttled by a limit of a control group",
    "stolen": "lost time to the hypervisor",
    "shared": "ran next to other work that shares a core, cache or memory",
    "virtual": "cannot be checked, because other virtual machines may share the hardware",
    "unseen": "cannot be checked, because other work on a GPU is not visible",
}
_AGAIN = "to measure lower bounds again, with less other work: brickd calibrate"
_GIVE = "to use the peaks of a data sheet: brickd calibrate --device NAME --peak-flops N --bandwidth N"


def at_least(text: str, bounded: bool) -> str:
    """Return the text, with a mark if the value is a lower bound."""
    return f"≥ {text}" if bounded else text


def at_most(text: str, bounded: bool) -> str:
    """Return the text, with a mark if the value is an upper bound."""
    return f"≤ {text}" if bounded else text


def machine(of: Mapping[str, Any]) -> str:
    """Describe the processors of a machine: their model, and how many cores were available."""
    return f"{of['cpu_model']}, {units.plural(of['cpus'], 'core')}"


def processors(number: float) -> str:
    """Format an average number of processors.

    >>> processors(6.44)
    '6.4 processors'
    """
    return f"{number:,.1f} processors"


def load(device: Mapping[str, Any], of: Collection[str] | None = None) -> str:
    """Return a suffix about other work during the measurement. "" if there was no other work, or no measurement."""
    evidence = [each for what, each in device["evidence"].items() if of is None or what in of]
    if any(each["under_load"] for each in evidence):
        others = max(each["others_processors"] for each in evidence if each["under_load"])
        return f", under load: other work took {processors(others)}"
    return ", load unknown" if any(each["others_processors"] is None for each in evidence) else ""


def bounds(device: Mapping[str, Any], of: Collection[str] | None = None) -> Sequence[str]:
    """Say why peaks are only lower bounds, and which command to run next; [] if all peaks are confirmed."""
    evidence = [(what, each) for what, each in device["evidence"].items() if of is None or what in of]
    lower = [(what, each) for what, each in evidence if each["lower_bound"]]
    lines = [f"{device['name']}, {what}: a lower bound: {_why(each)}" for what, each in lower]
    again = _GIVE if all(each["disturbed_by"].keys() & {"unseen", "virtual"} for _, each in lower) else _AGAIN
    return [*lines, again] if lines else []


def _why(evidence: Mapping[str, Any]) -> str:
    if not evidence["rounds"]:
        return "an earlier version of brickd, which did not check for other work, measured it"
    disturbed = [(count, _WHY.get(what, what)) for what, count in evidence["disturbed_by"].items()]
    reasons = ", ".join(f"{units.count(count)} {why}" for count, why in sorted(disturbed, reverse=True))
    rounds, undisturbed = units.many(evidence["rounds"], "round"), evidence["undisturbed_rounds"]
    if undisturbed >= UNDISTURBED_MIN:
        return f"the best of {rounds} was disturbed: {reasons}"
    few = f"none of {rounds} was"
    if undisturbed:
        few = f"only {undisturbed} of {rounds} {units.noun(undisturbed, 'was', 'were')}"
    return f"{few} undisturbed{f': {reasons}' if reasons else ''}"
