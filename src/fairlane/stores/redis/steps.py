"""How a handler talks to the server: it yields calls and is sent their replies, once for both colours.

    @handles
    def set_tenant(work: Work, op: SetTenant) -> Steps[TenantRecord]:
        [kept] = yield from work.read(("HGET", "tenant", op.name))     # one script, at one instant: work.now
        work.do("HSET", "tenant", op.name, document)                   # gathered ...
        work.audit(op, "tenant_set", ...)
        yield from work.commit()                                       # ... and written by one script

`commit` writes nothing and the handler begins again if anything that `read` has seen was changed in between.
Operations whose every microsecond counts have scripts of their own: `yield Script("turn", …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from fairlane.core.ops import Op
from fairlane.stores.instants import from_us, to_us

T = TypeVar("T")


class Script(NamedTuple):
    """One call of a script; its reply is the script's."""

    name: str
    args: tuple[bytes | str | int, ...]


class Commands(NamedTuple):
    """Plain commands with whole keys, sent together; the reply is a list of theirs."""

    commands: tuple[tuple[bytes | str | int, ...], ...]
    optional: bool = False
    """One that the server refuses is answered by None."""


Steps = Generator[Script | Commands, Any, T]
Command = tuple[bytes | str | int | float, ...]
"""A command whose keys lack the installation's tag: ("HGET", "tenant", name)."""

pack = msgspec.msgpack.encode


class Changed(Exception):
    """What a handler has read was changed before it could write: it begins again."""


class DoneBy(NamedTuple):
    """Who did what no operation of a person says."""

    by: str
    notes: str | None = None


class Work:
    """One try of one operation: the instant it happens at, what it has read, what it is about to write."""

    def __init__(self, op: Op[Any], tag: str, limits: Any = None) -> None:
        self.tag = tag
        """What every key begins with: `{prefix}`."""
        self.limits = limits
        """The store's cache of limits that people set."""
        self._given = None if op.now is None else to_us(op.now)
        self.now = -1 if self._given is None else self._given
        """Known from the first `read` on."""
        self._seen: list[tuple[Command, str]] = []
        self._acts: list[tuple[Any, ...]] = []
        self._bodies: list[bytes] = []

    def instant(self) -> str:
        """For scripts: the instant given, or nothing where the server's clock counts."""
        return "" if self.now < 0 and self._given is None else str(self.now)

    def read(self, *commands: Command, watch: bool = True) -> Generator[Script, Any, list[Any]]:
        """The replies of commands that change nothing, all at one instant. `watch`: a commit depends on them."""
        reply = yield Script("read", (self.instant(), pack(commands), int(watch)))
        self.now = int(reply[0])
        if watch:
            self._seen += zip(commands, texts(reply[2]), strict=True)
        return list(reply[1])

    def do(self, *command: bytes | str | float) -> None:
        """Write by a plain command."""
        self._acts.append(("do", command))

    def act(self, name: str, *args: Any) -> None:
        """Write by a function of the prelude that scripts/commit.lua offers."""
        self._acts.append((name, *args))

    def create(self, given: dict[str, object], body: bytes) -> None:
        """Write a new job, made by `states.new_job`."""
        self._bodies.append(body)
        self._acts.append(("create", given, len(self._bodies)))

    def audit(
        self,
        by: Any,
        action: str,
        tenant: str | None,
        target: str,
        before: dict[str, object] | None,
        after: dict[str, object] | None,
    ) -> None:
        """Add a record to the audit trail; `by` is an act or a `DoneBy`."""
        record = {
            "at": from_us(self.now),
            "by": by.by,
            "action": action,
            "tenant": tenant,
            "target": target,
            "notes": by.notes,
            "before": before,
            "after": after,
        }
        self._acts.append(("audit", tenant or "", target, document(record)))

    def commit(self) -> Generator[Script, Any, list[Any]]:
        """Write all of it, or raise `Changed`; returns what each write answered."""
        if not self._acts:
            return []
        reply = yield Script("commit", (str(self.now), pack(self._seen), pack(self._acts), *self._bodies))
        if reply is None:
            raise Changed
        self._seen, self._acts, self._bodies = [], [], []
        return list(reply)


Handler = Callable[[Work, Any], Steps[Any]]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[type[Op[Any]], Handler] = {}


def handles(handler: H) -> H:
    """Register a handler; the annotation of its parameter `op` names the operation."""
    operation: type[Op[Any]] = handler.__globals__[handler.__annotations__["op"]]
    HANDLERS[operation] = handler
    return handler


def document(value: object) -> str:
    """JSON, as text: scripts know no bytes."""
    return msgspec.json.encode(value).decode()


def texts(replies: Sequence[bytes]) -> list[str]:
    return [reply.decode() for reply in replies]
