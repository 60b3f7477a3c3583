"""Recordings that nobody has fetched: those that the daemon tells of, or where none answers those that one left.

Owns: which of the two are asked. Must not know: how recordings are fetched, what is said of them. Invariant: what a
daemon is there to tell is asked of it alone, for its files may be another's, or in other mounts.
"""

from __future__ import annotations

from typing import Any

from brickd import client
from brickd.client import NoAnswer
from brickd.recording.shelf import Shelf
from brickd.runtime import runtime

NOBODY = ("none", "stale", "elsewhere")  # why no daemon answers: there is none for us


def unfetched() -> list[dict[str, Any]]:
    """All of them, those that are being written included, the oldest first.

    Raises:
        BrickdError: a daemon is there and does not tell.
    """
    try:
        told: list[dict[str, Any]] = client.ask("record").document()["recordings"]
        return told
    except NoAnswer as error:
        if error.why not in NOBODY:
            raise
        return [each.document() for each in Shelf(runtime().recordings).all()]
