"""Making tokens and one-time links, from the API and the command line.

Secrets: 256 bits, shown once, kept as a hash.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from hashlib import sha256
from typing import Literal

from fairlane.api.auth.rights import ROLES
from fairlane.client.app import Fairlane
from fairlane.client.enqueue.options import seconds
from fairlane.core.chance import Chance
from fairlane.core.names import check_key, check_tenant
from fairlane.core.ops import Credential, IssueCredential
from fairlane.errors import InvalidOption, nearest

PREFIX_LENGTH = 11
"""Characters of a secret that are kept in the open, for people to tell tokens apart: 48 bits of 256."""

_SHAPE = re.compile(r"fl_[A-Za-z0-9_-]{43}", re.ASCII)


def new_secret(chance: Chance) -> str:
    return "fl_" + urlsafe_b64encode(chance.entropy(32)).rstrip(b"=").decode()


def has_the_shape(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None


def hash_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def is_of(credential: Credential, secret: str) -> bool:
    """Whether a credential found by the hash of a secret bears its open part, compared in constant time."""
    return hmac.compare_digest(credential.prefix.encode(), secret[:PREFIX_LENGTH].encode())


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
    made = (await app.runtime.access.arun(op)).credential
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
    secret = new_secret(app.runtime.chance)
    return secret, IssueCredential(
        id=app.runtime.new_job_id(),
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
