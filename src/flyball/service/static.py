"""The web page as routes: every file of ``page/`` has one; ``index.html`` is ``/``.

The files are read once, when the server starts, and only what was found then has a route: no path that
a client makes up leads anywhere. They tell nothing of the state, and need no token.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated

from litestar import Response, get
from litestar.handlers import HTTPRouteHandler
from litestar.params import HeaderParameter

from flyball.service.auth import OPEN

FOLDER = Path(__file__).parent / "page"
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""Nothing inline, nothing from elsewhere, no HTML made from text: a name is text wherever it is shown."""
_TYPES = {
    ".LICENSE": "text/plain",
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}
"""Other files of the folder are not served."""


def page_routes() -> list[HTTPRouteHandler]:
    """A route for every file."""
    found = sorted(path for path in FOLDER.rglob("*") if path.suffix in _TYPES)
    return [_route(path, path.relative_to(FOLDER).as_posix()) for path in found]


def _route(path: Path, name: str) -> HTTPRouteHandler:
    content, media_type = path.read_bytes(), _TYPES[path.suffix]
    tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
    headers = {"ETag": tag, "Cache-Control": "no-cache", "Content-Security-Policy": POLICY}

    async def get_file(known: Annotated[str, HeaderParameter(name="If-None-Match")] = "") -> Response[bytes]:
        if tag in known:
            return Response(b"", status_code=304, headers=headers)
        return Response(content, media_type=media_type, headers=headers)

    address = "/" if name == "index.html" else f"/{name}"
    return get(address, opt={"scope": OPEN}, include_in_schema=False)(get_file)
