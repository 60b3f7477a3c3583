"""The result of comparing workers, for programs: `brickd.diff`.

Owns: the Python classes of the result. Must not know: how workers are compared, screens. Invariants: The result
contains only what the document of `brickd diff` contains. The expected values are those of the majority, or of the
worker that was named first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from brickd.query.queries import DiffQuery, step_digits
from brickd.results.schema import SITES
from brickd.results.table import Table
from brickd.views import diff_operands, fetch_answer

if TYPE_CHECKING:
    import numpy
    import numpy.typing
    import pandas
    import pyarrow


@dataclass(frozen=True, slots=True)
class KernelTrace:
    """The values of one worker at one site.

    Attributes:
        worker: the name of the worker.
        kernel: the name of the kernel; in a comparison by weights, the name of the tensor.
        layer: the layer; None outside of the layers.
        position: the position within the step.
        step: the number that the host gave the step, or the digest of the step's text; None without a step.
        checksum: the checksum of the complete output.
        fnv1a: the FNV-1a checksum of the first 64 values of the output, as in older profilers; it is never compared.
        statistics: all known values of the output.
    """

    worker: str
    kernel: str
    layer: int | None
    position: int | None
    step: int | None
    checksum: str
    fnv1a: str | None
    statistics: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True, repr=False)
class Divergence:
    """The result of a comparison.

    Attributes:
        document: the whole result, as `brickd diff --json` prints it.
        words: the messages of `brickd diff`.
    """

    document: Mapping[str, Any]
    words: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Divergence(verdict={self.verdict!r}, evidence={self.evidence!r}, diagnosis={self.diagnosis!r})"

    @property
    def verdict(self) -> str:
        """The verdict: identical, within, diverged, routing or incomplete."""
        return str(self.document["verdict"])

    @property
    def evidence(self) -> str:
        """The class of evidence: weights, input or run."""
        return str(self.document["evidence"])

    @property
    def matched(self) -> bool:
        """Whether all compared values are equal or within tolerance; False if records were lost."""
        return self.verdict in ("identical", "within")

    @property
    def compared(self) -> int:
        """The number of comparisons."""
        return int(self.document["compared"])

    @property
    def runs(self) -> tuple[str, ...]:
        """The ids of the compared recordings, in the order of the arguments."""
        one: Mapping[str, Any] | None = self.document.get("recording")
        return tuple(each["id"] for each in ([one] if one is not None else self.document.get("recordings", ())))

    @property
    def kernel(self) -> str | None:
        """The first kernel that differs."""
        return None if self.actual is None else self.actual.kernel

    @property
    def blame(self) -> str | None:
        """Where the first difference arose: culprit, propagated, here_or_cache or unknown."""
        first = self.document["first"]
        return None if first is None else first["blame"]

    @property
    def outlier(self) -> str | None:
        """The worker that differs from a majority, if there is one."""
        outlier: str | None = self.document["outlier"]
        return outlier

    @property
    def expected(self) -> KernelTrace | None:
        """The expected values at the first difference."""
        return self._side("a")

    @property
    def actual(self) -> KernelTrace | None:
        """The actual values at the first difference."""
        return self._side("b")

    @property
    def diagnosis(self) -> str:
        """The whole result in one line."""
        return str(self.document["diagnosis"] or self.document["headlines"][0])

    @property
    def sites(self) -> Table:
        """The compared sites, in the order of execution; empty if weights are the evidence."""
        return Table(SITES, self.document, (*self.document["headlines"], *self.words))

    def to_numpy(self) -> numpy.typing.NDArray[numpy.void]:
        """Return the sites as a structured array."""
        return self.sites.to_numpy()

    def to_pandas(self) -> pandas.DataFrame:
        """Return the sites as a data frame."""
        return self.sites.to_pandas()

    def to_arrow(self) -> pyarrow.Table:
        """Return the sites as an Arrow table."""
        return self.sites.to_arrow()

    def _repr_html_(self) -> str:
        return self.sites._repr_html_()

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
    names: Sequence[str],
    *,
    by: Any,
    step: int | str | None,
    since: float | None,
    rtol: float | None,
    recordings: Sequence[str] = (),
) -> Divergence:
    """Compare the workers with these names (in the recordings, if any); raise the exceptions of `brickd.diff`."""
    query = DiffQuery(tuple(names), by, step_digits(step), since, rtol)
    answer = fetch_answer.find("diff", query, recordings=recordings) if recordings else diff_operands.find(query)
    diff_operands.require_comparable(answer.document)
    return Divergence(answer.document, answer.words)
