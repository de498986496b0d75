"""Access control: a bearer token, protection against cross-site requests, a limit on the size of bodies."""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from streamclust_connectors.http.problems import HttpProblem
from streamclust_connectors.settings.sections import HttpSection

HEAD = "streamclust.head"
"""Key in the ASGI scope that marks a HEAD request handled as GET."""
OPEN = {"/", "/livez", "/readyz", "/docs", "/openapi.json"}
"""Paths that need no token: they reveal nothing that was learnt."""


class AccessControl:
    """ASGI middleware that checks requests before the application sees them."""

    def __init__(self, app: ASGIApp, settings: HttpSection) -> None:
        self.app = app
        self.limit = settings.max_bytes
        token = settings.token
        self.token = None if token is None else token.get_secret_value().encode()
        # Without a token the loopback address is the only protection. A page of another site in a local browser must
        # not get around it by a host name that resolves to this machine (DNS rebinding).
        self.local = self.token is None and is_loopback(settings.host)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer with an error, or pass the request on."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        if scope["method"] == "HEAD":  # handled as GET without a body: routes only know GET
            scope, send = {**scope, "method": "GET", HEAD: True}, without_body(send)
        try:
            self.check(scope["path"], Headers(scope=scope), scope["method"])
        except HttpProblem as problem:
            await problem.response(scope, receive, send)
            return
        await self.app(scope, limited(receive, self.limit), send)

    def check(self, path: str, headers: Headers, method: str = "GET") -> None:
        """Raise an HttpProblem for a request that is not allowed."""
        host = headers.get("host", "")
        if self.local and not is_loopback(hostname(host)):
            raise HttpProblem(
                403,
                f"without http.token this service accepts local host names only, got {host[:80]!r}",
            )
        origin = headers.get("origin")
        if (origin is not None and origin.partition("://")[2] != host) or from_another_site(method, headers):
            raise HttpProblem(403, "requests from pages of other sites are not allowed")
        if self.token is not None and not (path in OPEN or path.startswith("/static/")):
            self.authenticate(headers.getlist("authorization"))
        length = headers.get("content-length", "")
        if length.isdecimal() and (len(length) > 18 or int(length) > self.limit):
            raise too_large(self.limit)

    def authenticate(self, given: Iterable[str]) -> None:
        """Raise an HttpProblem unless a header holds the token."""
        assert self.token is not None
        for header in given:
            scheme, _, token = header.partition(" ")
            same = hmac.compare_digest(token.strip().encode("latin-1"), self.token)
            if scheme.lower() == "bearer" and same:
                return
        raise HttpProblem(
            401,
            'the header "Authorization: Bearer ..." is missing, or its token is wrong',
            {"WWW-Authenticate": 'Bearer realm="streamclust"'},
        )


def from_another_site(method: str, headers: Headers) -> bool:
    """Whether the browser says that the request comes from another site; following a link is allowed.

    >>> from_another_site("POST", Headers({"Sec-Fetch-Site": "cross-site"}))
    True
    >>> from_another_site("GET", Headers({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}))
    False
    """
    if headers.get("sec-fetch-site", "none").strip().lower() in ("same-origin", "none"):
        return False
    return method != "GET" or headers.get("sec-fetch-mode", "").strip().lower() != "navigate"


def without_body(send: Send) -> Send:
    """Send the headers of a response without its body."""

    async def headers_only(message: Message) -> None:
        await send({**message, "body": b""} if message["type"] == "http.response.body" else message)

    return headers_only


def limited(receive: Receive, limit: int) -> Receive:
    """Receive the body, raising once it exceeds the limit: a chunked body does not announce its length."""
    total = 0

    async def counted() -> Message:
        nonlocal total
        message = await receive()
        total += len(message.get("body", b""))
        if total > limit:
            raise too_large(limit)
        return message

    return counted


def too_large(limit: int) -> HttpProblem:
    """Error response for a body that is too large."""
    return HttpProblem(
        413,
        f"a body may have at most {limit} bytes (http.max_bytes); send several requests",
        {"Connection": "close"},
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
    """Whether a host name or address is the loopback address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
