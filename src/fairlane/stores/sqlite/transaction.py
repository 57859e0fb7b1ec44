"""What the handler of an operation works with, and which function handles which operation.

A function is registered where it is written; the annotation of its parameter `op` names the operation:

    @change
    def cancel(tx: Transaction, op: Cancel) -> JobAct: ...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from fairlane.core.clock import Clock
from fairlane.core.ops import CLOCK_HELD_S, Op
from fairlane.errors import StoreRefused
from fairlane.stores.instants import EPOCH, MICROSECOND
from fairlane.stores.sqlite.driver import Driver, Row

if TYPE_CHECKING:
    from fairlane.stores.sqlite.limits.in_force import LimitCache


_KEEP_LATEST_EVERY_US = 1_000_000
_HELD_US = round(CLOCK_HELD_S * 1_000_000)


@dataclass(slots=True)
class Transaction:
    """One operation's view of the file, at one instant."""

    db: Driver
    now: int
    wakes: list[str] = field(default_factory=list)
    """Addresses of workers to wake once the transaction has committed."""
    limit_cache: LimitCache | None = None
    """None on a borrowed connection: what is read there may never be committed."""
    leases_counted: bool | None = None
    """Whether leases carry what they are counted by; None: not looked yet."""
    has_refusals: bool = False
    """Some pause refuses new jobs; known once limits are read."""
    freed: list[Row] = field(default_factory=list)
    """Queue, tenant and type of leases that ended and were counted."""
    gave_back: bool = False
    """Leased jobs are ready again, or nodes that waited for their parents are."""
    left_key: bool = False
    """Jobs have left their keys: others may be let in."""
    keys_used: bool | None = None
    """Whether any job has ever had a key; None: not looked yet."""
    watches_claims: bool = False
    """Some jobs that were let in count against a rate of their key when they are claimed."""
    ended: list[int] = field(default_factory=list)
    """Jobs that ended while there are workflows: nodes among them are still to be counted."""


def as_list(values: Sequence[int] | Sequence[str] | Sequence[Sequence[object] | None]) -> str:
    """Many values as one parameter, for `json_each`."""
    return msgspec.json.encode(values).decode()


def as_object(values: Mapping[int, int]) -> str:
    return msgspec.json.encode(values).decode()


def text_of(raw: msgspec.Raw, what: str, whose: object) -> str:
    try:
        return str(raw, "utf-8")
    except UnicodeDecodeError as error:
        raise StoreRefused("sqlite", f"{what} {whose} is not UTF-8: {error}; nothing was changed") from error


class StoreClock:
    """The machine's clock. Where it goes back a little, it is held at the latest instant that the file has seen.

    Where it goes back by more it is taken as it is: time must not stand still until it catches up. Workers then send
    `BringBack`. The latest instant is written at most once a second, so after a restart the hold may be a second short.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._latest = 0

    def now_us(self, db: Driver, *, writing: bool) -> int:
        rows = db.execute("select value from fairlane_meta where name = 'latest_us'")
        kept = rows[0][0] if rows else 0
        now, latest = (self._clock.now() - EPOCH) // MICROSECOND, max(kept, self._latest)
        if now < latest <= now + _HELD_US:
            now = latest
        if writing and not 0 <= now - kept < _KEEP_LATEST_EVERY_US:
            db.execute("insert or replace into fairlane_meta values ('latest_us', ?)", (now,))
        self._latest = now
        return now


Handler = Callable[[Transaction, Any], object]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[type[Op[Any]], Handler] = {}
_WRITES: dict[type[Op[Any]], Callable[[Any], bool]] = {}


def reading(handler: H) -> H:
    """It changes nothing, and waits for no writer."""
    HANDLERS[_operation(handler)] = handler
    return handler


def change(handler: H) -> H:
    """It runs in a write transaction."""
    return change_if(lambda op: True)(handler)


def change_if(writes: Callable[[Any], bool]) -> Callable[[H], H]:
    """It runs in a write transaction for the operations that `writes` is true of."""

    def register(handler: H) -> H:
        _WRITES[_operation(handler)] = writes
        return reading(handler)

    return register


def is_change(op: Op[Any]) -> bool:
    return type(op) in _WRITES and _WRITES[type(op)](op)


def _operation(handler: Handler) -> type[Op[Any]]:
    operation: type[Op[Any]] = handler.__globals__[handler.__annotations__["op"]]
    return operation
