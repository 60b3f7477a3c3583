"""What a comparison of workers came to, for programs: `brickd.diff`.

Owns: its form in Python. Must not know: how workers are compared, screens. Invariants: it says nothing that the
document of `brickd diff` does not; what is expected is what was named first, or the majority's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from brickd.query.queries import DiffQuery
from brickd.views import diff_operands


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """What one worker computed at one place.

    Attributes:
        worker: whose it is.
        kernel: its name; by weights the name of a tensor.
        layer: None outside of the layers.
        position: within the step.
        step: as its host said it; a text, by what stands for it; None: it said none.
        checksum: of the output, exact.
        fnv1a: of its first 64 numbers, as the profiler had it that brickd grew out of; shown, and decides nothing.
        statistics: all that is known of the output.
    """

    worker: str
    kernel: str
    layer: int | None
    position: int | None
    step: int | None
    checksum: str
    fnv1a: str | None
    statistics: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Divergence:
    """The answer.

    Attributes:
        document: all of it, as `brickd diff --json` prints it.
        words: what is to be said beside it.
    """

    document: Mapping[str, Any] = field(repr=False)
    words: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        """identical, within, diverged, routing or incomplete."""
        return str(self.document["verdict"])

    @property
    def evidence(self) -> str:
        """By which they were compared: weights, input or run."""
        return str(self.document["evidence"])

    @property
    def matched(self) -> bool:
        """Whether all that was compared is equal, or within tolerance; not where records were lost."""
        return self.verdict in ("identical", "within")

    @property
    def compared(self) -> int:
        """How many comparisons there were."""
        return int(self.document["compared"])

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the recordings that were compared, in the order in which they were named first."""
        one: Mapping[str, Any] | None = self.document.get("recording")
        return tuple(each["id"] for each in ([one] if one is not None else self.document.get("recordings", ())))

    @property
    def kernel(self) -> str | None:
        """The first that differs."""
        return None if self.actual is None else self.actual.kernel

    @property
    def blame(self) -> str | None:
        """culprit, propagated, here_or_cache or unknown, of the first that differs."""
        first = self.document["first"]
        return None if first is None else first["blame"]

    @property
    def outlier(self) -> str | None:
        """Who differs from a majority."""
        outlier: str | None = self.document["outlier"]
        return outlier

    @property
    def expected(self) -> KernelTrace | None:
        """What the first that differs should have been."""
        return self._side("a")

    @property
    def actual(self) -> KernelTrace | None:
        """What it was."""
        return self._side("b")

    @property
    def diagnosis(self) -> str:
        """All of it in a line."""
        return str(self.document["diagnosis"] or self.document["headlines"][0])

    def _side(self, side: str) -> KernelTrace | None:
        first = self.document["first"]
        if first is None:
            return None
        evidence = first[side]
        step = evidence.get("step")
        return KernelTrace(
            evidence["worker"],
            first["kernel"],
            first["layer"],
            evidence.get("position", first["position"]),
            None if step is None else int(step, 16),
            evidence["checksum"],
            evidence.get("fnv1a"),
            evidence,
        )


def found(
    names: Sequence[str], *, by: Any, step: int | str | None, since: float | None, rtol: float | None
) -> Divergence:
    """Compare the workers of these names; raises as `brickd.diff` does."""
    # A number of sixteen digits is no hexadecimal one.
    asked = step if step is None or isinstance(step, str) else f"{step & (1 << 64) - 1:016x}"
    answer = diff_operands.find(DiffQuery(tuple(names), by, asked, since, rtol))
    diff_operands.require_comparable(answer.document)
    return Divergence(answer.document, answer.words)
