"""Who asks, what a route may ask of its caller, and which roles give it.

viewer    READ
operator  READ, ACT
staff     READ                 both together: MANAGE, ACT
manager   READ                 (the gates of /api/jobs/admin/)
admin     READ, TOKENS         may hand out every role: give it to few
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Literal
from uuid import UUID

from msgspec import Struct

from fairlane.client.admin.tokens import ROLES
from fairlane.core.names import check_key, check_tenant
from fairlane.core.ops import Credential

if TYPE_CHECKING:
    from starlette.requests import Request


class Right(StrEnum):
    """What a route declares. There is no default: a route without one cannot be built."""

    OPEN = "open"
    """For everybody: health, and the way in."""
    READ = "read"
    ACT = "act"
    MANAGE = "manage"
    """Three gates: authenticated, staff, manager."""
    TOKENS = "tokens"


VIEWER, OPERATOR, STAFF, MANAGER, ADMIN = ROLES


def missing_role(roles: Iterable[str], right: Right) -> str | None:
    """The role that stands between these roles and a right; None: nothing does."""
    held = frozenset(roles)
    is_manager = {STAFF, MANAGER} <= held
    match right:
        case Right.OPEN:
            return None
        case Right.READ:
            return None if held.intersection(ROLES) else VIEWER
        case Right.ACT:
            return None if OPERATOR in held or is_manager else OPERATOR
        case Right.MANAGE:
            return None if is_manager else STAFF if STAFF not in held else MANAGER
        case Right.TOKENS:
            return None if ADMIN in held else ADMIN


class Person(Struct, frozen=True, kw_only=True):
    """Somebody your application has let in already, as its `users` hook says."""

    name: str
    """Signs what they do."""
    roles: tuple[str, ...]
    tenant: str | None = None
    """Bound to one tenant; None: to none."""


UsersHook = Callable[["Request"], "Awaitable[Person | None] | Person | None"]
"""Looks at a request and says who it comes from; None: nobody your application knows."""


class Caller(Struct, frozen=True, kw_only=True):
    """Whoever makes a request, once let in."""

    name: str
    roles: tuple[str, ...]
    tenant: str | None
    by: Literal["token", "session", "host"]
    credential_id: UUID | None = None
    hash: str | None = None
    expires_at: datetime | None = None

    @property
    def rides_on_a_cookie(self) -> bool:
        """A browser sends what lets them in by itself, whoever wrote the page that asks."""
        return self.by != "token"


def caller_of(credential: Credential, hash: str) -> Caller:
    assert credential.kind != "link"
    return Caller(
        name=credential.name,
        roles=credential.roles,
        tenant=credential.tenant,
        by=credential.kind,
        credential_id=credential.id,
        hash=hash,
        expires_at=credential.expires_at,
    )


def caller_for(person: Person) -> Caller:
    return Caller(
        name=check_key("name", person.name),
        roles=tuple(person.roles),
        tenant=None if person.tenant is None else check_tenant(person.tenant),
        by="host",
    )
