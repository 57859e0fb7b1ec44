"""The Lua scripts of the store: `scripts/<noun>.lua` behind what they all share, `scripts/prelude.lua`.

A script is called by its digest. A server that does not know it (it is new, or has failed over) gets its text once.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from importlib import resources
from typing import NamedTuple


class LuaScript(NamedTuple):
    text: str
    digest: str


@cache
def script(name: str) -> LuaScript:
    folder = resources.files("fairlane.stores.redis") / "scripts"
    parts = [(folder / f"{part}.lua").read_text("utf-8") for part in ("prelude", *_PARTS.get(name, ()), name)]
    text = "\n".join(parts)
    return LuaScript(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


_PARTS = {
    "commit": ("waits", "attempts", "nodes"),
    "why": ("waits", "attempts", "claims"),
    "turn": ("waits", "attempts", "nodes", "claims"),
    "leases": ("waits", "attempts", "nodes"),
    "limits": ("waits", "attempts"),
    "signals": ("waits", "attempts"),
    "workflows": ("waits", "attempts", "nodes"),
    "retention": ("wanted_results",),
    "results": ("wanted_results",),
}
"""What else stands between the prelude and a script."""
