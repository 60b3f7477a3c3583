"""The texts by which workers name steps.

Owns: which texts are kept, and how a step is shown. Must not know: where texts come from, screens. Invariants: A text
is kept under its own hash, which is the key of the step that it names. So no worker can change the text of another
worker's step. The number of texts is bounded. A text that a query would read as a number is not kept. Texts are not
escaped.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from typing import TypedDict

from brickd.query.queries import step_name, step_text
from brickd.shm import _reader

TEXTS_MAX = 4_096  # of one service
SERVICES_MAX = 16


class StepMembers(TypedDict):
    """A step in a document: the sixteen hexadecimal digits of its key, and its text; None if there is none."""

    step: str | None
    step_text: str | None


class StepTexts:
    """The newest texts of each service. One thread adds texts; any thread may copy the object."""

    def __init__(self) -> None:
        self._texts: dict[str, dict[int, str]] = {}

    def take(self, service: str, texts: Iterable[bytes]) -> None:
        """Keep texts that workers of a service sent; drop the oldest ones if there are too many."""
        if service in self._texts or len(self._texts) < SERVICES_MAX:
            for raw in texts:
                self.add(service, raw)

    def add(self, service: str, raw: bytes) -> None:
        """Keep a text, even if there are too many services."""
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            return
        if step_text(text):
            kept, step = self._texts.setdefault(service, {}), _reader.source_hash(raw)
            kept.pop(step, None)
            kept[step] = text
            if len(kept) > TEXTS_MAX:
                del kept[next(iter(kept))]

    def text(self, step: int) -> str | None:
        """Return the text of the step with this key; None if it is unknown."""
        return next((kept[step] for kept in self._texts.values() if step in kept), None)

    def name(self, step: int) -> str:
        """Name a step by its text or its number. A digest without a known text is shown in hexadecimal.

        >>> texts = StepTexts()
        >>> texts.take("api", [b"req-1"])
        >>> texts.name(17), texts.name(0xFEDCBA9876543210), texts.name(0xFDDBEEF2B6CE4891)
        ('17', 'fedcba9876543210', 'req-1')
        """
        return self.text(step) or step_name(step)

    def argument(self, step: int) -> str:
        """Return a step as a value of `--step`.

        If a terminal cannot show its text, this is the hexadecimal number of the step.
        """
        text = self.text(step)
        return shlex.quote(text) if text and text.isprintable() else step_name(step)

    def members(self, step: int | None) -> StepMembers:
        """Return the members of a document that show a step; None: no step."""
        if step is None:
            return {"step": None, "step_text": None}
        return {"step": f"{step:016x}", "step_text": self.text(step)}

    def copy(self) -> StepTexts:
        """Return a copy."""
        other = StepTexts()
        other._texts = {service: kept.copy() for service, kept in self._texts.copy().items()}
        return other

    def keep(self, services: Collection[str]) -> None:
        """Drop the texts of all other services."""
        self._texts = {service: kept for service, kept in self._texts.items() if service in services}

    def document(self) -> dict[str, list[str]]:
        """Return all texts as JSON, by service."""
        return {service: [*kept.values()] for service, kept in self._texts.copy().items()}
