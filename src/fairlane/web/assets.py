"""Style sheets and scripts: read once, served under a path that changes with their contents, and cached for ever."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

from starlette.responses import Response

from fairlane.api.fields import Name
from fairlane.api.problems import Problem
from fairlane.api.router import Routes
from fairlane.client.rights import Right

routes = Routes("pages", "/static")

_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FILES = {file.name: file.read_bytes() for file in Path(__file__).with_name("static").iterdir()}
THEME = FILES.pop("theme.js").decode()
"""In each page itself: as a file of its own, pages waited for it before anything was drawn."""
THEME_HASH = base64.b64encode(hashlib.sha256(THEME.encode()).digest()).decode()
VERSION = hashlib.sha256(b"".join(FILES[name] for name in sorted(FILES))).hexdigest()[:12]


@routes.get("/{version}/{name}", Right.OPEN, include_in_schema=False)
async def show_asset(version: Name, name: Name) -> Response:
    """Show a style sheet or a script."""
    if version != VERSION or name not in FILES:
        raise Problem(404, "not_found", "no such file; reload the page")
    headers = {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(FILES[name], media_type=_TYPES[name.rpartition(".")[2]], headers=headers)
