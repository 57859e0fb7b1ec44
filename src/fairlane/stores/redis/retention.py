"""Retention: removes what is old enough; and a purge for tests."""

from __future__ import annotations

from typing import Any

from fairlane.core.ops import Purge, Purged
from fairlane.stores.redis.steps import Commands, Steps, Work, handles

_GLOB = str.maketrans({letter: f"\\{letter}" for letter in "*?[]\\^-"})
_NUMBERS = ("seq", "audit", "event", "limits_version", "latest", "format")
"""What is never given twice, also after a purge."""


@handles
def purge(work: Work, op: Purge) -> Steps[Purged]:
    tag = work.tag
    [jobs] = yield Commands((("HLEN", f"{tag}:id"),))
    [kept] = yield Commands((("HMGET", f"{tag}:meta", *_NUMBERS),))
    cursor: Any = b"0"
    while True:
        [[cursor, keys]] = yield Commands((("SCAN", cursor, "MATCH", f"{tag.translate(_GLOB)}:*", "COUNT", 1000),))
        if keys:
            yield Commands((("UNLINK", *keys),))
        if cursor in (b"0", 0):
            break
    again = {name: value for name, value in zip(_NUMBERS, kept, strict=True) if value is not None}
    if "seq" in again:
        again["rolled_up"] = again["seq"]
    again["limits_version"] = int(again.get("limits_version", 0)) + 1
    yield Commands((("HSET", f"{tag}:meta", *(part for pair in again.items() for part in pair)),))
    return Purged(jobs=jobs)
