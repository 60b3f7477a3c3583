"""The protocol between a daemon and its clients: the root of paths, the header with the prefix, how errors are written.

Owns: the names in the protocol. Must not know: sockets, clients, daemons. Invariant: an error has the same message and
exit code with and without a daemon.
"""

from __future__ import annotations

import os
from typing import Any

from brickd.errors import BrickdError, NoSuchProblem, NoSuchSource, NoSuchWorker, NotPermitted, WrongQuestion

ROOT = "/v1"
# A header of a request: the quoted prefix of the client's segments. Without this header, the daemon's prefix applies.
PREFIX = "brickd-prefix"

# A header with which a client gives up the right to control the daemon for this request, because others gave it the
# request. Any value has this effect.
ROLE = "brickd-role"

# The Host of a client. A daemon refuses it with a port, which a browser adds to a name.
HOST = "brickd"

# Errors that do not depend on the request: the daemon refuses this client, for now or always.
OTHER_PREFIX, STRANGER, BUSY = "other_prefix", "stranger", "busy"

# The client asked for a path that this daemon does not have.
NO_PATH = "no_such_path"

# The path of a daemon's fingerprints, which a client compares with other fingerprints.
FINGERPRINTS = "fingerprints"

_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/")
_ERRORS = {error.kind: error for error in (NoSuchProblem, NoSuchSource, NoSuchWorker, NotPermitted, WrongQuestion)}


def quoted(text: str) -> str:
    """Quote text for a URL or a header. urllib is not used, because it takes as long to load as the whole client.

    >>> quoted("api/0"), quoted("a b&"), quoted("ä")
    ('api/0', 'a%20b%26', '%C3%A4')
    """
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in os.fsencode(text))


def error_document(kind: str, message: str) -> dict[str, Any]:
    """Return the document of an error."""
    return {"error": {"kind": kind, "message": message}}


def error_in(document: Any) -> tuple[str, str] | None:
    """Return the kind and the message of the error in a document; None if the document has no error."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        return None
    return str(error.get("kind")), str(error.get("message"))


def exception(kind: str, message: str) -> BrickdError:
    """Return the exception for a kind of error; for an unknown kind, a BrickdError."""
    return _ERRORS.get(kind, BrickdError)(message)
