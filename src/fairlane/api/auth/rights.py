"""What a route may ask of its caller, and which roles give it.

viewer    READ
operator  READ, ACT
staff     READ                 both together: MANAGE, ACT
manager   READ                 (the gates of /api/jobs/admin/)
admin     READ, TOKENS         may hand out every role, so give it like the keys of the house
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from fairlane.client.admin.tokens import ROLES


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
