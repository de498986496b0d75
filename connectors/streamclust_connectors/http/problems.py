"""HTTP errors as problem+json (RFC 9457): status, title, and a sentence of detail."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Match

from streamclust_connectors.service.fair_lock import LockTimeout

MEDIA = "application/problem+json"


class HttpProblem(HTTPException):
    """HTTP error response; keyword arguments are further members of the problem."""

    def __init__(
        self, status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object
    ) -> None:
        super().__init__(status, detail, dict(headers or {}))
        self.more = more

    @property
    def response(self) -> Response:
        """The problem as a response."""
        return answer(self.status_code, self.detail, self.headers, **self.more)


def answer(status: int, detail: str, headers: Mapping[str, str] | None = None, **more: object) -> Response:
    """Response with a problem+json body.

    >>> answer(404, "there is no cluster 7").body
    b'{"type":"about:blank","title":"Not Found","status":404,"detail":"there is no cluster 7"}'
    """
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail} | more
    return Response(msgspec.json.encode(content), status, headers, media_type=MEDIA)


def install(app: FastAPI) -> None:
    """Install exception handlers that answer every error with a problem."""

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> Response:
        if isinstance(error, HttpProblem):
            return error.response
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = ", ".join(allowed(request))
        detail = {
            404: f"there is no route {request.url.path}; /docs lists all routes",
            405: f"{request.url.path} does not support {request.method}",
        }.get(error.status_code, str(error.detail))
        return answer(error.status_code, detail, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        # Without the invalid value, which may be of any length.
        errors = [{"where": list(map(str, e["loc"])), "message": e["msg"]} for e in error.errors()]
        detail = "; ".join(f"{'.'.join(e['where'])}: {e['message']}" for e in errors)
        return answer(422, detail, errors=errors)

    @app.exception_handler(ClientDisconnect)
    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return answer(400, "the body is incomplete")  # the client has gone; not worth a log line

    @app.exception_handler(LockTimeout)
    async def busy(request: Request, error: LockTimeout) -> Response:
        return answer(503, str(error), {"Retry-After": "1"})

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return answer(500, "internal error; see the log of the service")


def allowed(request: Request) -> list[str]:
    """The methods that some route takes at the path of a request; HEAD wherever GET is (`security.Gate`)."""
    routes = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    methods = {method for route in routes for method in getattr(route, "methods", None) or ()}
    return sorted(methods | ({"HEAD"} if "GET" in methods else set()))


SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
    },
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """OpenAPI description of the error responses of a route."""
    return {
        status: {"description": HTTPStatus(status).phrase, "content": {MEDIA: {"schema": SCHEMA}}}
        for status in statuses
    }
