"""What a daemon and its clients say to each other, beside documents: where, for which segments, how errors travel.

Owns: those words. Must not know: sockets, who asks or answers. Invariant: an error that is told ends the client with
the message and the exit code that it would have had without a daemon.
"""

from __future__ import annotations

from typing import Any

from brickd.errors import (
    BrickdError,
    NoSuchWorker,
    NothingComparable,
    NotPermitted,
    WrongQuestion,
)

ROOT = "/v1"
# In a request: what the names of the segments begin with that the client means. Else those of the daemon are meant.
PREFIX = "brickd-prefix"

OTHER_PREFIX = "other_prefix"
_ERRORS = {error.kind: error for error in (NoSuchWorker, NotPermitted, NothingComparable, WrongQuestion)}


def error_document(kind: str, message: str) -> dict[str, Any]:
    """How an error is told."""
    return {"error": {"kind": kind, "message": message}}


def error_in(document: Any) -> tuple[str, str] | None:
    """The kind and the message of the error that a document tells; None where it tells none."""
    told = document.get("error") if isinstance(document, dict) else None
    if not isinstance(told, dict):
        return None
    return str(told.get("kind")), str(told.get("message"))


def told(kind: str, message: str) -> BrickdError:
    """The error that was told; of a kind that is not known here it is trouble."""
    return _ERRORS.get(kind, BrickdError)(message)
