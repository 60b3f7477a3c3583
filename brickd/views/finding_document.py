"""The JSON of a site where workers differ.

Owns: the keys of a finding and of its evidence. Must not know: terminals, how a finding is reached.
"""

from __future__ import annotations

from typing import Any

from brickd.analysis.numerics import blame
from brickd.analysis.numerics.announce import command
from brickd.analysis.numerics.announce import judged as of_case
from brickd.analysis.numerics.online_state import Case, DivergentSite, KeptEvidence
from brickd.base.timestamps import rfc3339
from brickd.base.units import or_none
from brickd.model.step_texts import StepTexts
from brickd.model.worker_names import KnownNames
from brickd.shm import records


def finding(of: DivergentSite, called: KnownNames, texts: StepTexts | None = None) -> dict[str, Any]:
    """Return a finding as JSON. With the texts of steps, it includes the evidence."""
    found = of_case(of.place, of.category, of.shown)
    judgement = None if found is None else found.judgement
    cases = {"first": of.first, "newest": of.newest}
    return {
        "service": of.place.service,
        "kernel": of.place.kernel,
        "layer": or_none(of.place.layer),
        "category": of.category,
        "evidence": of.place.tier.evidence,
        "since": rfc3339(of.first.at_ns),
        "latest": rfc3339(of.newest.at_ns),
        "cases": of.cases,
        "workers": [called.name(of.workers, uuid) for uuid in of.named],
        "outliers": {called.name(of.workers, uuid): times for uuid, times in of.outliers.items()},
        "contradict_themselves": sorted(called.name(of.workers, uuid) for uuid in of.contradict),
        "blame": None if judgement is None else judgement.blame,
        "not_finite": None if judgement is None else judgement.not_finite,
        "relative_error": None if judgement is None else judgement.error,
        "command": command(of, called),
        **({} if texts is None else {key: _case(of, case, called, texts) for key, case in cases.items()}),
    }


def _case(of: DivergentSite, case: Case, called: KnownNames, texts: StepTexts) -> dict[str, Any] | None:
    found = of_case(of.place, of.category, case)
    if found is None:
        return None
    return {
        "at": rfc3339(case.at_ns),
        "against": _evidence(of, case.against, found.against, called, texts),
        "other": _evidence(of, case.other, found.other, called, texts),
    }


def _evidence(
    of: DivergentSite,
    kept: KeptEvidence,
    fingerprint: blame.DecodedFingerprint,
    called: KnownNames,
    texts: StepTexts,
) -> dict[str, Any]:
    return {
        "worker": called.name(of.workers, kept.worker),
        "uuid": kept.worker,
        **fingerprint.document(texts),
        "backend": kept.backend or None,
        "inputs": [records.tensor_document(tensor) for tensor in fingerprint.inputs],
    }
