"""Where a request comes from: a client of brickd, a page of this server, or another web page.

Owns: which Host, Origin and Sec-Fetch headers a request may have. Must not know: sockets, paths, roles, tokens.
Invariants: A web page of another origin gets no data, not even if its name resolves to this machine. No web page can
change anything. Only the head of a request is read.

A browser reaches a port of this machine, and also the API's socket if `ssh -L` forwards to it. A page cannot remove or
change these headers. Every browser sends Origin with a POST. Some browsers send no Sec-Fetch headers to a loopback
address: there, a page can send a GET, but cannot read the answer.
"""

from __future__ import annotations

from http import HTTPStatus

from starlette.datastructures import Headers
from starlette.types import Scope

from brickd.api.error_responses import error_body
from brickd.api.responses import Reply

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})

_READING = frozenset({"GET", "HEAD"})
_OWN_SITES = frozenset({"same-origin", "none"})  # none: the user entered the address
_SHOWN = 60


def refusal(scope: Scope, names: frozenset[str], client_host: str | None = None) -> Reply | None:
    """Return the refusal of a request that another web page may have sent; None for any other request.

    Args:
        scope: the ASGI scope of the request.
        names: the hosts of this server, each with any port or without one.
        client_host: the Host of clients that are not browsers. It has no port.
    """
    headers = Headers(scope=scope)
    host = _value(headers, "host")
    is_client = host is not None and host == client_host
    if not is_client and _name(host or "") not in names:
        expected = [*([client_host] if client_host else []), *sorted(names)]
        text = f"Host is {_shown(host)}, expected one of {', '.join(expected)} (with any port)"
        return Reply(error_body("other_host", text), HTTPStatus.MISDIRECTED_REQUEST)
    others = _from_other_site if scope["method"] in _READING else _from_browser
    wrong = _from_other_origin(headers, None if is_client else f"http://{host}") or others(headers)
    return None if wrong is None else Reply(error_body("web_page", wrong), HTTPStatus.FORBIDDEN)


def _from_other_origin(headers: Headers, own: str | None) -> str | None:
    origin = _value(headers, "origin")
    if origin is None or origin == own:
        return None
    return f"Origin is {_shown(origin)}, expected {'no Origin' if own is None else f'{own[:_SHOWN]} or no Origin'}"


def _from_other_site(headers: Headers) -> str | None:
    site = _value(headers, "sec-fetch-site")
    if site is None or site in _OWN_SITES:
        return None
    return (
        f"Sec-Fetch-Site is {_shown(site)}, expected same-origin or none: a page of another server sent this request"
        " (enter the address in the browser)"
    )


def _from_browser(headers: Headers) -> str | None:
    for key in headers:
        if key == "origin" or key.startswith("sec-fetch-"):
            return (
                f"{key[:_SHOWN]} is {_shown(_value(headers, key))}, expected no such header: a browser may only read"
                " (use the command brickd, or curl)"
            )
    return None


def _value(headers: Headers, key: str) -> str | None:
    """Return the value of a header. If it occurs more than once, the joined values are no valid value."""
    found = headers.getlist(key)
    return ", ".join(found) if found else None


def _name(host: str) -> str:
    name, _, port = host.rpartition(":")
    return (name if port.isdecimal() else host).lower()


def _shown(value: str | None) -> str:
    return "missing" if value is None else repr(value[:_SHOWN])
