"""What others offer for the same work, measured in the same rounds as ours: a peer a module.

A module has `BY` (whose it is), `HOW` (its cases, and how each is measured) and `cases(folder)`, called in the timed
process, which raises `AbsentError` where this machine lacks the peer. Importing one costs nothing: what is heavy is
imported, compiled and started by `cases` alone. Whatever a peer installs into the process while it records is there
only around its own batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from benchmarks.method import Case
from benchmarks.peers import lttng, opentelemetry, prometheus, pure_python_ring, seed, torch, viztracer, writer
from benchmarks.peers.needs import AbsentError


class Peer(Protocol):
    """What each module is."""

    @property
    def BY(self) -> str: ...  # noqa: N802
    @property
    def HOW(self) -> Mapping[str, str]: ...  # noqa: N802

    def cases(self, folder: Path) -> list[Case]:
        """The cases, ready to be run; the folder is the run's own."""


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
    """The cases of the peers that are here; for the cases of those that are not, why."""
    found: list[Case] = []
    absent: dict[str, str] = {}
    for peer in peers:
        try:
            found += peer.cases(folder)
        except AbsentError as reason:
            absent |= dict.fromkeys(peer.HOW, str(reason))
    return found, absent
