"""The question `fingerprints`."""

from __future__ import annotations

from dataclasses import dataclass

from brickd.questions.parameter import Names
from brickd.questions.question import Question, given


@dataclass(frozen=True)
class FingerprintsQuestion(Question):
    """Of which workers."""

    uuids: tuple[str, ...] = given(Names("workers' uuids", "Only the fingerprints of these workers.", key="uuid"), ())
