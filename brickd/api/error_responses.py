"""The API's responses to errors: their status, kind and message.

Owns: the status of each error, the message to a client about a defect. Must not know: queries, the application.
Invariants: Every error is a JSON document. The traceback of a defect goes to the log and not to the client.
"""

from __future__ import annotations

import contextlib
import sys
import traceback
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from brickd.api.responses import Reply, encoded
from brickd.base import escape
from brickd.client import protocol
from brickd.errors import BrickdError, NoSuchProblem, NoSuchWorker, NotPermitted, SegmentRefused

_STATUS: dict[type[BrickdError], HTTPStatus] = {
    NoSuchProblem: HTTPStatus.NOT_FOUND,
    NoSuchWorker: HTTPStatus.NOT_FOUND,
    NotPermitted: HTTPStatus.FORBIDDEN,
    SegmentRefused: HTTPStatus.CONFLICT,
    BrickdError: HTTPStatus.BAD_REQUEST,
}
_KINDS = {
    HTTPStatus.NOT_FOUND: protocol.NO_PATH,
    HTTPStatus.METHOD_NOT_ALLOWED: "no_such_method",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "too_large",
    HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE: "too_large",
    HTTPStatus.MISDIRECTED_REQUEST: protocol.OTHER_PREFIX,
    HTTPStatus.TOO_MANY_REQUESTS: protocol.BUSY,
}


def error_body(kind: str, message: str) -> bytes:
    """Encode an error."""
    return encoded(protocol.error_document(kind, message))


def failure(error: BrickdError) -> Reply:
    """Return the response to an expected error, which the user can understand."""
    status = next(_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS)
    return Reply(error_body(error.kind, str(error)), status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    message = error.detail
    if status is HTTPStatus.NOT_FOUND:
        message = f"no path {request.scope['path'][:60]} (GET {protocol.ROOT} lists the paths)"
    elif status is HTTPStatus.METHOD_NOT_ALLOWED:
        message = f"method is {request.method}, expected {(error.headers or {}).get('Allow')}"
    return Reply(error_body(_KINDS[status], message), status)


async def _failed(_: Request, error: Exception) -> Response:
    assert isinstance(error, BrickdError)
    return failure(error)


async def _gone(_: Request, error: Exception) -> Response:
    return Reply(b"", HTTPStatus.BAD_REQUEST)  # no client reads it


async def _defect(_: Request, error: Exception) -> Response:
    with contextlib.suppress(OSError):  # if the log cannot be written, the client still gets an answer
        for line in "".join(traceback.format_exception(error)).splitlines():
            print(escape.text(line), file=sys.stderr, flush=True)
    message = "this is a defect of brickd: please report it with the end of the daemon's log"
    return Reply(error_body("defect", message), HTTPStatus.INTERNAL_SERVER_ERROR)


HANDLERS = {HTTPException: _refused, BrickdError: _failed, ClientDisconnect: _gone, Exception: _defect}
