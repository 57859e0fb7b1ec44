"""Callers, the rights that routes require, and the roles that grant them.

viewer    READ
operator  READ, ACT
staff     READ                 both together: MANAGE, ACT
manager   READ                 (for /api/jobs/admin/)
admin     READ, TOKENS         can grant every role: assign it to few
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
    """The right that a route requires. There is no default: a route without one raises an error."""

    OPEN = "open"
    """For everybody: health and login."""
    READ = "read"
    ACT = "act"
    MANAGE = "manage"
    """Requires authentication and the roles staff and manager."""
    TOKENS = "tokens"


VIEWER, OPERATOR, STAFF, MANAGER, ADMIN = ROLES


def missing_role(roles: Iterable[str], right: Right) -> str | None:
    """The role that is missing for a right; None if none is."""
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
    """A user authenticated by your application's `users` hook."""

    name: str
    """Recorded as the actor in the audit."""
    roles: tuple[str, ...]
    tenant: str | None = None
    """Bound to one tenant; None: to none."""


UsersHook = Callable[["Request"], "Awaitable[Person | None] | Person | None"]
"""Returns the user who sent a request; None if your application does not know them."""


class Caller(Struct, frozen=True, kw_only=True):
    """The authenticated caller of a request."""

    name: str
    roles: tuple[str, ...]
    tenant: str | None
    by: Literal["token", "session", "host"]
    credential_id: UUID | None = None
    hash: str | None = None
    expires_at: datetime | None = None

    @property
    def rides_on_a_cookie(self) -> bool:
        """A browser sends the credential by itself, whichever site's page makes the request."""
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
