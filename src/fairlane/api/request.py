"""One request, seen from a route: the application, who asks, and whose jobs they may see."""

from __future__ import annotations

from typing import Annotated, NamedTuple, TypeVar

from fastapi import Depends
from starlette.requests import Request

from fairlane.api.auth.admission import Door
from fairlane.api.auth.caller import Caller
from fairlane.api.problems import Problem
from fairlane.api.sse import EventFeed
from fairlane.client.app import Fairlane
from fairlane.core.ops import Op, Scope

T = TypeVar("T")


class House(NamedTuple):
    """What all requests of one API share."""

    app: Fairlane
    door: Door
    feed: EventFeed


class Visit(NamedTuple):
    house: House
    caller: Caller

    @property
    def app(self) -> Fairlane:
        return self.house.app

    @property
    def by(self) -> str:
        """Who signs the acts of this request."""
        return self.caller.name

    @property
    def tenant(self) -> str | None:
        """Whose jobs may be seen and touched; None: everybody's."""
        return self.caller.tenant

    @property
    def scope(self) -> Scope:
        return self.caller.scope

    def narrowed(self, tenant: str | None) -> Scope:
        """The scope of one tenant, where asked for and allowed; nobody else's tenant can be asked for."""
        if tenant is None or self.tenant is not None:
            return self.scope
        return Scope(tenant)

    def required(self, tenant: str | None) -> Scope:
        """The scope of one tenant, for acts: what is asked of another's jobs is not done to one's own."""
        if self.tenant is not None and tenant not in {None, self.tenant}:
            raise Problem(404, "tenant_not_found", "no such tenant here; nothing was changed")
        return self.narrowed(tenant)

    async def ask(self, op: Op[T]) -> T:
        return await self.app.runtime.access.arun(op)


async def _house(request: Request) -> House:
    house: House = request.app.state.house
    return house


async def _visit(request: Request) -> Visit:
    return Visit(request.app.state.house, request.state.caller)


ThisHouse = Annotated[House, Depends(_house)]
Here = Annotated[Visit, Depends(_visit)]
