"""What a store is: one way in, in two colours, for operations as values."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Op

T = TypeVar("T")


class Capability(StrEnum):
    """Where stores differ, said once; tests ask for a capability, never for a store by name."""

    DURABLE = "durable"
    """What was acknowledged survives the process."""
    SHARED = "shared"
    """Several processes may use it at once."""
    BORROWS = "borrows"
    """Enqueues in the caller's own transaction."""


class Migration(NamedTuple):
    version: int
    name: str
    phase: str
    """`expand` runs before the new code, `contract` once no old code is left."""
    sql: str


class Migrator(Protocol):
    needed: int

    def current(self) -> int: ...

    def pending(self) -> tuple[Migration, ...]: ...

    def up(self) -> tuple[Migration, ...]:
        """Bring the schema to `needed`; returns what ran. Safe to call from many processes at once."""
        ...


class Listener(Protocol):
    """Waits for wake-ups. A wake-up is a hint: it may come for nothing, and may be missed."""

    address: str | None
    """What to register as `Renew.wake_address`, where the store needs one."""

    def wait(self, timeout_s: float) -> bool: ...

    async def await_(self, timeout_s: float) -> bool: ...

    def close(self) -> None: ...


class Store(Protocol):
    name: str
    capabilities: frozenset[Capability]

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        """Run one operation; `on` is the caller's own connection, which is never committed here."""
        ...

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        """The same without blocking the event loop."""
        ...

    def listener(self, worker: WorkerId) -> Listener: ...

    def migrator(self) -> Migrator | None:
        """None: the store keeps no schema of its own."""
        ...

    def close(self) -> None: ...

    async def aclose(self) -> None: ...
