"""The dashboard: a page at / and its files under /static; nothing is loaded from other hosts."""

from __future__ import annotations

import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, HTTPException, Request, Response

from streamclust.plots import PALETTE

HERE = Path(__file__).parent / "static"
TYPES = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
HEADERS = {
    # Plotly needs inline styles: it writes a style sheet and element styles into the page.
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; "
        "object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True)
class Asset:
    """A static file, ready to be sent."""

    content: bytes
    packed: bytes
    """Content compressed by gzip."""
    kind: str
    tag: str
    """ETag, a hash of the content."""


@cache
def assets() -> dict[str, Asset]:
    """All files of the page by name, read and compressed at the first request; the colours are the library's."""
    files = {
        path.name: path.read_bytes() for path in (*HERE.iterdir(), plotly_script()) if path.suffix in TYPES
    }
    files["palette.js"] = f"export const PALETTE = {json.dumps(PALETTE)};\n".encode()
    return {name: packed(content, Path(name).suffix) for name, content in files.items()}


def packed(content: bytes, suffix: str) -> Asset:
    """Compress a file and take its tag."""
    tag = hashlib.sha256(content).hexdigest()[:20]
    small = gzip.compress(content, 6, mtime=0)
    return Asset(content, small, f"{TYPES[suffix]}; charset=utf-8", f'"{tag}"')


def plotly_script() -> Path:
    """Plotly's script, which is part of its Python package."""
    found = find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise ImportError("the dashboard needs plotly: pip install 'streamclust[http]'")
    return Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"


def router() -> APIRouter:
    """Routes of the dashboard; ImportError if plotly is not installed."""
    plotly_script()
    routes = APIRouter(include_in_schema=False)

    @routes.get("/")
    def page(request: Request) -> Response:
        return answer(request, "index.html")

    @routes.get("/static/{name}")
    def file(request: Request, name: str) -> Response:
        return answer(request, name)

    return routes


def answer(request: Request, name: str) -> Response:
    """Response with a file, gzipped if the client accepts that; 304 if the client's copy is current."""
    found = assets().get(name)
    if found is None:
        raise HTTPException(404, f"the dashboard has no file {name!r}")
    headers = HEADERS | {"ETag": found.tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == found.tag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(found.packed, headers=headers | {"Content-Encoding": "gzip"}, media_type=found.kind)
    return Response(found.content, headers=headers, media_type=found.kind)
