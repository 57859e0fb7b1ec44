"""Verbs written once, called in two colours."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from fairlane.client.opening import StoreAccess
from fairlane.core.ops import Op

P = ParamSpec("P")
A = TypeVar("A")
T = TypeVar("T")


class Ask(NamedTuple, Generic[A, T]):
    """An operation, and how its answer is read for the caller."""

    op: Op[A]
    read: Callable[[A], T]


class HasAccess(Protocol):
    @property
    def access(self) -> StoreAccess: ...


def both(
    ask: Callable[P, Ask[Any, T]],
) -> tuple[Callable[Concatenate[HasAccess, P], T], Callable[Concatenate[HasAccess, P], Coroutine[Any, Any, T]]]:
    """The sync method of a verb and its async twin."""

    @wraps(ask)
    def run(self: HasAccess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = ask(*args, **kwargs)
        return asked.read(self.access.run(asked.op))

    @wraps(ask)
    async def arun(self: HasAccess, /, *args: P.args, **kwargs: P.kwargs) -> T:
        asked = ask(*args, **kwargs)
        return asked.read(await self.access.arun(asked.op))

    return run, arun
