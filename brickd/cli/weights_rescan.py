"""Workers are asked to read their weights once more, and waited for.

Owns: how long, and who is waited for. Must not know: what is made of it. Invariant: a worker has read them where all
that is known of its tensors is younger than the order.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from brickd.base import units
from brickd.cli.ask import told
from brickd.cli.output import say
from brickd.cli.progress import tell
from brickd.query.orders import Rescanning
from brickd.query.queries import WeightsQuery

if TYPE_CHECKING:
    from brickd.views.common import Document

_AGAIN_SECONDS = 0.2


def rescanned(question: WeightsQuery, seconds: float) -> tuple[Document, bool]:
    """What is known afterwards; whether all have read all.

    Raises:
        NoAnswer: there is no daemon.
    """
    began_ns = time.monotonic_ns()
    before = {worker["worker"]: worker["scans"] for worker in told("weights", question)["workers"]}
    asked = set(told("weights/rescan", Rescanning(question.names), post=True)["workers"])
    while True:
        now_ns = time.monotonic_ns()
        document = told("weights", question)
        here = [worker for worker in document["workers"] if worker["worker"] in asked]
        late = [worker for worker in here if not _has_read(worker, before, now_ns - began_ns)]
        if not late or now_ns - began_ns >= seconds * 1e9:
            break
        tell(f"{units.many(len(here) - len(late), 'worker')} of {len(here)} have read their weights once more")
        time.sleep(_AGAIN_SECONDS)
    tell("")
    for worker in late[:8]:
        have = f"{worker['tensors']} of {worker['tensors_watched']} tensors are known"
        why = "they are read at the ends of steps"
        say(f"{worker['worker']} has not read all of its weights in {seconds:g} s, {have}: {why}")
    if len(late) > 8:
        say(f"nor have {len(late) - 8} more")
    for name in sorted(asked - {worker["worker"] for worker in here}):
        say(f"{name} ended meanwhile")
    return document, not late


def _has_read(worker: dict[str, Any], before: dict[str, int], elapsed_ns: int) -> bool:
    whole = worker["tensors"] >= worker["tensors_watched"] or worker["scans"] > before.get(worker["worker"], 0)
    return whole and worker["age_ns"] is not None and worker["age_ns"] <= elapsed_ns
