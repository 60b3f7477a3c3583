"""Other tools for the same work, measured in the same rounds as brickd; each tool (peer) has a module.

A module has `BY` (the name of the tool), `HOW` (its cases, and how each is measured) and `cases(folder)`. The timed
process calls `cases`, which raises `AbsentError` if this machine lacks the peer. Importing a module is cheap: only
`cases` imports, compiles and starts heavy parts. The hooks of a peer are in the process only while its batches run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.method import Case
from benchmarks.peers import lttng, opentelemetry, prometheus, pure_python_ring, seed, torch, viztracer, writer
from benchmarks.peers.needs import AbsentError


class Peer(Protocol):
    """The interface of each module."""

    @property
    def BY(self) -> str: ...  # noqa: N802
    @property
    def HOW(self) -> Mapping[str, str]: ...  # noqa: N802

    def cases(self, folder: Path) -> list[Case]:
        """Return the cases, ready to run; they may use the folder."""


PEERS: tuple[Peer, ...] = (
    writer,
    seed,
    lttng,
    pure_python_ring,
    prometheus,
    viztracer,
    torch,
    opentelemetry,
)


def present(folder: Path, peers: Sequence[Peer] = PEERS) -> tuple[list[Case], dict[str, str]]:
    """Return the cases of installed peers, and the reasons why other peers are missing."""
    found: list[Case] = []
    absent: dict[str, str] = {}
    for peer in peers:
        try:
            found += peer.cases(folder)
        except AbsentError as reason:
            absent |= dict.fromkeys(peer.HOW, str(reason))
    return found, absent
