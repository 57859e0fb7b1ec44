"""Making tokens and one-time links, from the API and the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from fairlane.api.access.rights import ROLES
from fairlane.api.access.secret import PREFIX_LENGTH, hash_of, new_secret
from fairlane.client.app import Fairlane
from fairlane.client.options import seconds
from fairlane.core.names import check_key, check_tenant
from fairlane.core.ops import Credential, IssueCredential
from fairlane.errors import InvalidOption, nearest

LINK_S = 600.0
LONGEST_LINK_S = 86_400.0
MAX_TTL_S = 10 * 366 * 86_400.0


async def issue(
    app: Fairlane,
    kind: Literal["token", "link"],
    name: str,
    roles: Sequence[str],
    *,
    tenant: str | None = None,
    ttl_s: float | None = None,
    by: str,
    notes: str | None = None,
) -> tuple[str, Credential]:
    """The secret, which nobody can ask for again, and the credential as it is kept."""
    secret, op = prepared(app, kind, name, roles, tenant=tenant, ttl_s=ttl_s, by=by, notes=notes)
    made = (await app.access.arun(op)).credential
    assert made is not None
    return secret, made


def prepared(
    app: Fairlane,
    kind: Literal["token", "link"],
    name: str,
    roles: Sequence[str],
    *,
    tenant: str | None = None,
    ttl_s: float | None = None,
    by: str,
    notes: str | None = None,
) -> tuple[str, IssueCredential]:
    for role in roles:
        if role not in ROLES:
            raise InvalidOption("role", role, f"one of {', '.join(ROLES)}.{nearest(role, ROLES)}")
    if not roles:
        raise InvalidOption("roles", roles, f"at least one of {', '.join(ROLES)}")
    longest_s = MAX_TTL_S if kind == "token" else LONGEST_LINK_S
    secret = new_secret(app.chance)
    return secret, IssueCredential(
        id=app.new_job_id(),
        kind=kind,
        name=check_key("name", name),
        prefix=secret[:PREFIX_LENGTH],
        hash=hash_of(secret),
        roles=tuple(role for role in ROLES if role in roles),
        tenant=None if tenant is None else check_tenant(tenant),
        ttl_s=None if ttl_s is None else seconds("ttl", ttl_s, at_least=0.001, at_most=longest_s),
        by=check_key("by", by),
        notes=notes,
    )
