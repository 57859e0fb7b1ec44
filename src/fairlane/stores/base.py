"""What a store is: one way in, in two colours, for operations as values."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Protocol, TypeVar

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Op
from fairlane.stores.migrations import Migration, SchemaState

T = TypeVar("T")


class Capability(StrEnum):
    """What a store can do that others cannot; tests ask for a capability, never for a store by name."""

    DURABLE = "durable"
    """What was acknowledged survives the process."""
    SHARED = "shared"
    """Several processes may use it at once."""
    BORROWS = "borrows"
    """Enqueues in the caller's own transaction."""
    SPOOLS = "spools"
    """Takes enqueues while it cannot be reached."""


class Migrator(Protocol):
    """Brings the schema of a store up to date; works on schemas that the store would refuse."""

    needed: SchemaState

    def state(self) -> SchemaState:
        """How far the schema has been migrated; all 0: there is none."""
        ...

    def require(self) -> None:
        """Raises `SchemaOutOfDate` unless this code can run on the schema."""
        ...

    def pending(self, to: int | None = None) -> tuple[Migration, ...]:
        """What `up` would run."""
        ...

    def up(self, to: int | None = None) -> tuple[Migration, ...]:
        """Bring the schema to what this code needs, or to version `to`; returns what ran. Safe from many processes."""
        ...

    def contracting(self) -> tuple[Migration, ...]:
        """What `contract` would run."""
        ...

    def contract(self) -> tuple[Migration, ...]:
        """Remove what only older code needs; raises `OldWorkersAlive` while some of it runs. Returns what ran."""
        ...

    def script(self, to: int | None = None) -> str:
        """What `up` runs, as SQL to run by hand; made without a connection where the store is a server."""
        ...


class Listener(Protocol):
    """Waits for wake-ups. A wake-up is a hint: it may come for nothing, and may be missed."""

    @property
    def address(self) -> str | None:
        """What to register as `Renew.wake_address`, where the store needs one."""
        ...

    def wait(self, timeout_s: float) -> bool: ...

    async def await_(self, timeout_s: float) -> bool: ...

    def prove(self) -> None:
        """Send a wake-up to itself, the way that others send theirs: one that is received shows that they arrive."""
        ...

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


def driver_connection(conn: Any) -> object:
    """The driver's connection behind Django's `connection`, in whose thread this is called; any other as it is."""
    if type(conn).__module__.startswith("django.") and hasattr(conn, "ensure_connection"):
        conn.ensure_connection()
        return conn.connection
    return conn
