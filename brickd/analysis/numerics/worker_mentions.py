"""The names of workers in sentences about findings.

Owns: the name of a worker that is known now, and of one that was known at the time of the finding. Must not know: what
a sentence says. Invariant: no worker has a name that now belongs to another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from brickd.analysis.numerics.online_state import DivergentSite


class Called(NamedTuple):
    """The names of workers in sentences.

    Attributes:
        names: of the known workers, by uuid; unique now, but perhaps not at the time of a finding.
        ended: the uuids of workers that are not alive.
    """

    names: Mapping[str, str]
    ended: Collection[str] = ()

    def name(self, finding: DivergentSite, uuid: str) -> str:
        """The current name; an unknown worker's earlier name gets a mark that makes it unique."""
        if now := self.names.get(uuid):
            return now
        then, mark = finding.workers.get(uuid), f"~{uuid[:6]}"
        return f"{then.removesuffix(mark)}{mark}" if then else uuid[:8]

    def mention(self, finding: DivergentSite, uuid: str) -> str:
        """The name in a sentence, with a note if the worker has ended."""
        return f"{self.name(finding, uuid)}{' (ended)' if uuid in self.ended else ''}"
