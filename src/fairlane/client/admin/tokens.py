"""`app.tokens`: credentials of the HTTP API: tokens for programs, one-time links and sessions for people.

A secret has 256 bits, is shown once, and is kept as a hash only.
"""

from __future__ import annotations

import hmac
import re
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256
from typing import Literal, Unpack
from uuid import UUID

from msgspec import Struct

from fairlane.client.admin.filters import page_size
from fairlane.client.context import require_all_tenants
from fairlane.client.enqueue.options import seconds
from fairlane.client.handle import ActOptions, audited
from fairlane.client.rights import ROLES, Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.names import check_key, check_own_tenant
from fairlane.core.ops import (
    Credential,
    CredentialKind,
    CredentialPage,
    FindCredential,
    IssueCredential,
    ListCredentials,
    NewSession,
    RedeemLink,
    RevokeCredential,
    SeeCredentials,
)
from fairlane.errors import CredentialNotFound, InvalidOption, nearest

LINK_S = 600.0
LONGEST_LINK_S = 86_400.0
MAX_TTL_S = 10 * 366 * 86_400.0

PREFIX_LENGTH = 11
"""Characters of a secret that are stored in clear text, so that people can identify tokens: 48 bits of 256."""

_PLACE = re.compile(r"[0-9]{1,18}\.[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_SHAPE = re.compile(r"fl_[A-Za-z0-9_-]{43}", re.ASCII)


class IssuedCredential(Struct, frozen=True, kw_only=True):
    secret: str
    """Shown only once."""
    credential: Credential


class TokenAdmin(Verbs):
    """Methods for credentials."""

    __slots__ = ()

    def _create(
        self,
        name: str,
        roles: Sequence[str],
        *,
        tenant: str | int | None = None,
        ttl: float | timedelta | None = None,
        **about: Unpack[ActOptions],
    ) -> Steps[IssuedCredential]:
        """Create a token for a program; without `ttl` it is valid until it is revoked."""
        require_all_tenants("making a token")
        ttl_s = None if ttl is None else seconds("ttl", ttl, at_least=0.001, at_most=MAX_TTL_S)
        return (yield from self._issue("token", name, _roles(roles), tenant, ttl_s, about))

    def _create_link(
        self,
        name: str,
        roles: Sequence[str],
        *,
        tenant: str | int | None = None,
        ttl: float | timedelta = LINK_S,
        **about: Unpack[ActOptions],
    ) -> Steps[IssuedCredential]:
        """Create a link by which a person logs in once; its session lasts half a day."""
        require_all_tenants("making a link")
        ttl_s = seconds("ttl", ttl, at_least=0.001, at_most=LONGEST_LINK_S)
        return (yield from self._issue("link", name, _roles(roles), tenant, ttl_s, about))

    def _redeem_link(self, secret: str) -> Steps[IssuedCredential | None]:
        """Exchange a link for a session; None if the link is unknown, expired or already used."""
        if not has_shape_of_secret(secret):
            return None
        issued = self._new_secret()
        session = NewSession(id=self._runtime.new_job_id(), prefix=issued[:PREFIX_LENGTH], hash=hash_of(issued))
        opened = (yield from ask(RedeemLink(hash=hash_of(secret), session=session))).credential
        return None if opened is None else IssuedCredential(secret=issued, credential=opened)

    def _find(self, kind: Literal["token", "session"], secret: str) -> Steps[Credential | None]:
        """The valid credential with this secret, or None."""
        if not has_shape_of_secret(secret):
            return None
        found = (yield from ask(FindCredential(kind=kind, hash=hash_of(secret)))).credential
        # Found by the hash; the clear-text part is compared in constant time.
        is_its_own = found is not None and hmac.compare_digest(found.prefix.encode(), secret[:PREFIX_LENGTH].encode())
        return found if is_its_own else None

    def _is_good(self, kind: Literal["token", "session"], hash: str) -> Steps[bool]:
        """Whether the credential with this hash is valid: neither revoked nor expired."""
        return (yield from ask(FindCredential(kind=kind, hash=hash))).credential is not None

    def _list(
        self,
        kind: CredentialKind = "token",
        *,
        name: str | None = None,
        also_bad: bool = False,
        before: str | None = None,
        limit: int = 50,
    ) -> Steps[CredentialPage]:
        """One page of tokens, links or sessions, newest first; revoked and expired ones only on request.

        Pass a page's `next` as `before` for the next one.
        """
        require_all_tenants("the tokens")
        if before is not None and not _PLACE.fullmatch(before):
            raise InvalidOption("before", before, "the `next` of the page before")
        op = ListCredentials(kind=kind, name=name, also_bad=also_bad, before=before, limit=page_size(limit))
        return (yield from ask(op))

    def _revoke(self, id: UUID, **about: Unpack[ActOptions]) -> Steps[Credential]:
        """Revoke a token, a link or a session, with immediate effect. Raises `CredentialNotFound`."""
        require_all_tenants("revoking a token")
        found = (yield from ask(RevokeCredential(id=id, **audited(about)))).credential
        if found is None:
            raise CredentialNotFound(id)
        return found

    def _note_use(self, ids: Sequence[UUID]) -> Steps[None]:
        """Record that these credentials were used now."""
        yield from ask(SeeCredentials(ids=tuple(ids)))

    create, acreate = both(_create, Right.TOKENS)
    create_link, acreate_link = both(_create_link, Right.TOKENS)
    redeem_link, aredeem_link = both(_redeem_link, Right.NOBODY)
    find, afind = both(_find, Right.NOBODY)
    is_good, ais_good = both(_is_good, Right.NOBODY)
    list, alist = both(_list, Right.TOKENS)
    revoke, arevoke = both(_revoke, Right.TOKENS)
    note_use, anote_use = both(_note_use, Right.NOBODY)

    def _issue(
        self,
        kind: CredentialKind,
        name: str,
        roles: tuple[str, ...],
        tenant: str | int | None,
        ttl_s: float | None,
        about: ActOptions,
    ) -> Steps[IssuedCredential]:
        secret = self._new_secret()
        op = IssueCredential(
            id=self._runtime.new_job_id(),
            kind=kind,
            name=check_key("name", name),
            prefix=secret[:PREFIX_LENGTH],
            hash=hash_of(secret),
            roles=roles,
            tenant=None if tenant is None else check_own_tenant(tenant),
            ttl_s=ttl_s,
            **audited(about),
        )
        made = (yield from ask(op)).credential
        assert made is not None
        return IssuedCredential(secret=secret, credential=made)

    def _new_secret(self) -> str:
        return "fl_" + urlsafe_b64encode(self._runtime.chance.entropy(32)).rstrip(b"=").decode()


def has_shape_of_secret(text: str) -> bool:
    return _SHAPE.fullmatch(text) is not None


def hash_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def _roles(given: Sequence[str]) -> tuple[str, ...]:
    for role in given:
        if role not in ROLES:
            raise InvalidOption("role", role, f"one of {', '.join(ROLES)}.{nearest(role, ROLES)}")
    if not given:
        raise InvalidOption("roles", given, f"at least one of {', '.join(ROLES)}")
    return tuple(role for role in ROLES if role in given)
