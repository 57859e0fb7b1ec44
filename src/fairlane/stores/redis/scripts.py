"""The Lua scripts of the store: `scripts/<noun>.lua` behind what they all share, `scripts/prelude.lua`.

A script is called by its digest. A server that does not know it (it is new, or has failed over) gets its text once.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha1
from pathlib import Path
from typing import NamedTuple


class LuaScript(NamedTuple):
    text: str
    digest: str


@cache
def script(name: str) -> LuaScript:
    parts = () if name in _ALONE else (_read("prelude"), *map(_part, _PARTS.get(name, ())))
    text = "\n".join((*parts, _read(_SAME.get(name, name))))
    return LuaScript(text, sha1(text.encode(), usedforsecurity=False).hexdigest())


def _read(name: str) -> str:
    return (Path(__file__).with_name("scripts") / f"{name}.lua").read_text("utf-8")


def _part(name: str) -> str:
    """A part in a function of its own, which returns what others use of it.

    Every function that a script makes looks for each local it uses among all those in use so far. All parts of a Turn
    side by side took 64 µs before its first line.
    """
    text = _read(name)
    given = text.rpartition("\nreturn ")[2]
    return f"local {given.rstrip()} = (function()\n{text}end)()"


_ALONE = {"enqueue_alike"}
"""Without the prelude."""

_SAME = {"enqueue_at_keys": "enqueue"}
"""With other parts."""

_PARTS = {
    "commit": ("waits", "attempts", "nodes", "job_keys"),
    "enqueue_at_keys": ("waits", "attempts", "nodes", "job_keys"),
    "why": ("waits", "attempts", "claims"),
    "turn": ("waits", "attempts", "nodes", "job_keys", "claims"),
    "leases": ("waits", "attempts", "nodes"),
    "limits": ("waits", "attempts"),
    "signals": ("waits", "attempts"),
    "set_back": ("waits", "attempts"),
    "workflows": ("waits", "attempts", "nodes"),
    "retention": ("wanted_results",),
    "results": ("wanted_results",),
}
"""What else stands between the prelude and a script."""
