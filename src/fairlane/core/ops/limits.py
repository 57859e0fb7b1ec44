"""Limits that people set at run time, tokens taken under them, and jobs held because of them.

The code's own limits travel with each operation that applies them (`limits`), people's are kept in the store.
`core.limits.LimitsInForce` says how the two go together. A claim counts under every key that `LimitsInForce.keys_of`
names.
"""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from fairlane.core.limits import Limit, LimitKind, Rate, StoredLimit
from fairlane.core.ops.base import Act, Op


class Limits(Struct, frozen=True, kw_only=True):
    limits: tuple[StoredLimit, ...]
    """By kind, name, queue."""
    changed: bool = False


class ListLimits(Op[Limits], frozen=True, kw_only=True):
    """Every limit that people have set, by kind, name and queue."""


class SetLimit(Act[Limits], frozen=True, kw_only=True):
    """Set what is allowed to one thing, in place of what was set for it before; in force from this commit on.

    A pause stays. Setting what is set already writes nothing. Wakes waiting workers.

    Audit: `limit_set`, target `limit:<kind>:<name>`, with `@<queue>` behind it for a tenant in one queue; tenant = the
    name for one tenant's, None for every tenant's; before and after: the limit as JSON, None where there was none or
    only a pause.
    """

    limit: Limit


class ClearLimit(Act[Limits], frozen=True, kw_only=True):
    """Take back what was set for one thing, pause and all: the code's own limit is in force again.

    Where nothing is set, nothing is written. Wakes waiting workers.

    Audit: `limit_clear`, likewise, after None; none is written where there was only a pause.
    """

    kind: LimitKind
    name: str
    queue: str = ""


class LimitPaused(Struct, frozen=True, kw_only=True):
    until: datetime


class PauseLimit(Op[LimitPaused], frozen=True, kw_only=True):
    """Let nothing under one limit be claimed for a while, as after a provider's 429; never shortens an earlier pause.

    Not audited. Where nothing is set for it, a record with only the pause is made; else its `by` and `at` stay.
    """

    kind: LimitKind
    name: str
    queue: str = ""
    for_s: float
    by: str


class TokensTaken(Struct, frozen=True, kw_only=True):
    granted: bool
    tenant: str | None = None
    """Refused: the first by name that has too few."""
    rate: Rate | None = None
    """Refused: what is in force for it."""
    retry_at: datetime | None = None
    """Refused: when enough tokens will be there, if nobody else takes any. None though refused: never, because more
    are asked for than the rate allows."""


class TakeTokens(Op[TokensTaken], frozen=True, kw_only=True):
    """Take tokens of tenants' `enqueue_rate`: all that are asked for, for every tenant, or none.

    Always on the client's own connection. A tenant without such a rate has as many as it likes, and none are counted.
    """

    counts: dict[str, int]
    """By tenant."""
    limits: tuple[Limit, ...] = ()


class Unheld(Struct, frozen=True, kw_only=True):
    count: int


class Unhold(Op[Unheld], frozen=True, kw_only=True):
    """Let held jobs go on where their tenant has room again: ready if due, else scheduled; at most `limit`.

    By (queue, tenant), and within by seq: as many as its `waiting` limit exceeds its ready, scheduled and leased jobs
    there; all, where there is no such limit any more. Wakes waiting workers where any became ready.
    """

    limits: tuple[Limit, ...] = ()
    limit: int = 1000
