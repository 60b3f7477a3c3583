"""The names of workers in sentences about findings.

Owns: the names of workers known now, and of those known at the time of the finding. Must not know: the sentences.
Invariant: no worker is called by a name that now belongs to another worker.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from brickd.analysis.numerics.online_state import DivergentSite


class Called(NamedTuple):
    """The names of workers in sentences.

    Attributes:
        names: the names of the known workers, by uuid; unique now, but perhaps not at the time of a finding.
        ended: the uuids of workers that are not alive.
    """

    names: Mapping[str, str]
    ended: Collection[str] = ()

    def name(self, finding: DivergentSite, uuid: str) -> str:
        """Return the current name, or the earlier one with a mark that makes it unique."""
        if now := self.names.get(uuid):
            return now
        then, mark = finding.workers.get(uuid), f"~{uuid[:6]}"
        return f"{then.removesuffix(mark)}{mark}" if then else uuid[:8]

    def mention(self, finding: DivergentSite, uuid: str) -> str:
        """Return the name for a sentence, with a note if the worker has ended."""
        return f"{self.name(finding, uuid)}{' (ended)' if uuid in self.ended else ''}"
