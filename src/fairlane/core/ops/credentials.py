"""Credentials: tokens for programs, one-time links and sessions for people. A store keeps only the hash of a secret."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar, Literal
from uuid import UUID

from msgspec import Struct

from fairlane.core.ops.base import Act, Op

SESSION_S = 12 * 3600.0

CredentialKind = Literal["token", "link", "session"]
"""token    a program's, good until it expires or is revoked
link     good once: it is exchanged for a session
session  a person's browser
"""


class Credential(Struct, frozen=True, kw_only=True):
    id: UUID
    """Made by the caller, so that issuing may be repeated after a lost reply."""
    kind: CredentialKind
    name: str
    """Whose it is: the person, or what the program is called. It signs the acts done with it."""
    prefix: str
    """The first characters of the secret, by which people recognise a token."""
    roles: tuple[str, ...]
    """What it may do; the API knows what they mean."""
    tenant: str | None
    """Bound to one tenant; None: to none."""
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None

    def is_good(self, now: datetime) -> bool:
        return self.revoked_at is None and (self.expires_at is None or self.expires_at > now)


class CredentialAct(Struct, frozen=True, kw_only=True, omit_defaults=True):
    credential: Credential | None = None
    """None: no such credential, or not a good one any more; nothing was changed."""
    changed: bool = False


class IssueCredential(Act[CredentialAct], frozen=True, kw_only=True):
    """Keep a new credential by the hash of its secret.

    The same id again with the same hash writes nothing and returns the kept credential, good or not. The same id with
    another hash, or this hash under another id, returns none.

    Audit: `token_create`, `link_create` or `session_create`, target `token:<id>` …, tenant, before None, after {"name",
    "prefix", "roles", "tenant", "expires_at"} (an instant as in `AuditRecord`).
    """

    repeatable: ClassVar[bool] = True

    id: UUID
    kind: CredentialKind
    name: str
    prefix: str
    hash: str
    """SHA-256 of the secret, in hex."""
    roles: tuple[str, ...]
    tenant: str | None = None
    ttl_s: float | None = None
    """None: it does not expire. A session always does: without one it lasts SESSION_S."""


class FindCredential(Op[CredentialAct], frozen=True, kw_only=True):
    """The good credential of this kind with this hash. Writes nothing."""

    kind: CredentialKind
    hash: str


class NewSession(Struct, frozen=True, kw_only=True):
    id: UUID
    hash: str
    prefix: str
    ttl_s: float = SESSION_S


class RedeemLink(Op[CredentialAct], frozen=True, kw_only=True):
    """Use a good link up and open a session for who it was made out to: with its name, roles and tenant, nothing more.

    The first call gets the session, every later one none; without a session, the link itself, now revoked.

    Audit: `link_redeem`, by = its name, target and tenant as for issuing; no notes, no before, no after. Then that of
    the session, as for issuing.
    """

    repeatable: ClassVar[bool] = False

    hash: str
    session: NewSession | None = None


class RevokeCredential(Act[CredentialAct], frozen=True, kw_only=True):
    """Revoke a credential, expired or not, from this commit on.

    The second time nothing is written and it is returned as it is; an unknown id returns none.

    Audit: `token_revoke`, `link_revoke` or `session_revoke`, target (`session:<id>`) and tenant as for issuing, no
    before, no after.
    """

    repeatable: ClassVar[bool] = True

    id: UUID


class CredentialsSeen(Struct, frozen=True, kw_only=True):
    count: int
    """How many of them there are, good or not."""


class SeeCredentials(Op[CredentialsSeen], frozen=True, kw_only=True):
    """These were used just now: sets `last_used_at`. Sent now and then, not at every use."""

    ids: tuple[UUID, ...]


class CredentialPage(Struct, frozen=True, kw_only=True):
    credentials: tuple[Credential, ...]
    next: str | None = None
    """Where the next page begins: the last credential's `created_at` in microseconds, a dot, its id. None: no more."""


class ListCredentials(Op[CredentialPage], frozen=True, kw_only=True):
    """Those of one kind, newest first by (`created_at`, id), at most `limit`; bad ones only where asked for.

    With `before`, those behind that place, whether or not its credential is still kept.
    """

    kind: CredentialKind
    name: str | None = None
    also_bad: bool = False
    before: str | None = None
    limit: int = 200
