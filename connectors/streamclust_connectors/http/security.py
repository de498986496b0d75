"""Who may ask, and how much: a bearer token, pages of other sites kept out, bodies of a bounded size."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamclust_connectors.http.problems import Problem
from streamclust_connectors.settings.sections import Http

OPEN = {"/", "/livez", "/readyz", "/docs", "/openapi.json"}
"""Asked without a token: they tell nothing of what was learnt."""


class Gate:
    """Stands before the application and lets pass what may."""

    def __init__(self, app: ASGIApp, settings: Http) -> None:
        self.app = app
        self.limit = settings.max_bytes
        token = settings.token
        self.token = None if token is None else token.get_secret_value().encode()
        # Without a token, being reached from this machine alone is all the protection there is. A page of some other
        # site, open in a browser here, must not get round it by a name of its own that leads here.
        self.local = self.token is None and is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or let the application answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self.check(scope["path"], Headers(scope=scope))
        except Problem as problem:
            await problem.response(scope, receive, send)
            return
        await self.app(scope, limited(receive, self.limit), send)

    def check(self, path: str, headers: Headers) -> None:
        """Raise a Problem for what may not pass."""
        host = headers.get("host", "")
        if self.local and not is_loopback(hostname(host)):
            raise Problem(
                403, f"this service answers to names of its own machine alone, not to {host[:80]!r}"
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            raise Problem(403, "pages of other sites may not ask")
        if self.token is not None and not (path in OPEN or path.startswith("/static/")):
            self.authenticate(headers.getlist("authorization"))
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > self.limit):
            raise too_large(self.limit)

    def authenticate(self, given: Iterable[str]) -> None:
        """Raise a Problem unless the token is given."""
        assert self.token is not None
        for header in given:
            scheme, _, token = header.partition(" ")
            same = hmac.compare_digest(token.strip().encode("latin-1"), self.token)
            if scheme.lower() == "bearer" and same:
                return
        raise Problem(
            401,
            'the header "Authorization: Bearer ..." is missing, or its token is wrong',
            {"WWW-Authenticate": 'Bearer realm="streamclust"'},
        )


def limited(receive: Receive, limit: int) -> Receive:
    """The body, as far as it is not too large: one sent in chunks does not say so beforehand."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise too_large(limit)
        return message

    return counted


def too_large(limit: int) -> Problem:
    """The problem of a body that is too large."""
    return Problem(
        413, f"a body has at most {limit} bytes (http.max_bytes); send several", {"Connection": "close"}
    )


def hostname(host: str) -> str:
    """The name in a Host header, without its port.

    >>> hostname("localhost:8080"), hostname("[::1]:8080"), hostname("")
    ('localhost', '::1', '')
    """
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def is_loopback(host: str) -> bool:
    """Whether a name or an address means this machine alone.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
