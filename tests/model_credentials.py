"""Credentials in the oracle."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import asdict, replace

from fairlane.core import ops
from tests.model_facts import span


def to_us(at):
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)


def instant_text(at):
    return at and at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Access:
    credentials: list[tuple[str, ops.Credential]]  # with their hashes

    def _keep(self, changed):
        self.credentials = [(h, changed if c.id == changed.id else c) for h, c in self.credentials]
        return ops.CredentialAct(credential=changed, changed=True)

    def _note_credential(self, op, verb, c, now, after=None):
        self._note(op, f"{c.kind}_{verb}", c.tenant, f"{c.kind}:{c.id}", None, after, now)

    def issuecredential(self, op, now):
        for kept_hash, c in self.credentials:
            if c.id == op.id or kept_hash == op.hash:
                return ops.CredentialAct(credential=c if (c.id, kept_hash) == (op.id, op.hash) else None)
        names = ("id", "kind", "name", "prefix", "roles", "tenant")
        lasts_s = ops.SESSION_S if op.kind == "session" and op.ttl_s is None else op.ttl_s
        c = ops.Credential(
            **{name: getattr(op, name) for name in names},
            created_by=op.by,
            created_at=now,
            expires_at=None if lasts_s is None else now + span(lasts_s),
            revoked_at=None,
            last_used_at=None,
        )
        self.credentials.append((op.hash, c))
        after: dict[str, Any] = {name: getattr(c, name) for name in ("name", "prefix", "tenant")}
        after |= {"roles": list(c.roles), "expires_at": instant_text(c.expires_at)}
        self._note_credential(op, "create", c, now, after)
        return ops.CredentialAct(credential=c, changed=True)

    def _good(self, kind, secret_hash, now):
        found = (c for kept_hash, c in self.credentials if (c.kind, kept_hash) == (kind, secret_hash))
        return next((c for c in found if c.is_good(now)), None)

    def findcredential(self, op, now):
        return ops.CredentialAct(credential=self._good(op.kind, op.hash, now))

    def redeemlink(self, op, now):
        c = self._good("link", op.hash, now)
        if c is None:
            return ops.CredentialAct()
        self._note_credential(Signed(c.name), "redeem", c, now)
        link = self._keep(replace(c, revoked_at=now))
        if op.session is None:
            return link
        about = {"name": c.name, "roles": c.roles, "tenant": c.tenant, "by": c.name}
        return self.issuecredential(ops.IssueCredential(kind="session", **asdict(op.session), **about), now)

    def revokecredential(self, op, now):
        c = next((c for _, c in self.credentials if c.id == op.id), None)
        if c is None or c.revoked_at is not None:
            return ops.CredentialAct(credential=c)
        self._note_credential(op, "revoke", c, now)
        return self._keep(replace(c, revoked_at=now))

    def seecredentials(self, op, now):
        seen = [c for _, c in self.credentials if c.id in op.ids]
        for c in seen:
            self._keep(replace(c, last_used_at=now))
        return ops.CredentialsSeen(count=len(seen))

    def listcredentials(self, op, now):
        found = [c for _, c in self.credentials if c.kind == op.kind and op.name in (None, c.name)]
        found = [c for c in found if op.also_bad or c.is_good(now)]
        found.sort(key=lambda c: (c.created_at, c.id), reverse=True)
        place = {c.id: f"{to_us(c.created_at)}.{c.id}" for c in found}
        if op.before is not None:
            at, _, last = op.before.partition(".")
            found = [c for c in found if (to_us(c.created_at), c.id) < (int(at), UUID(last))]
        page = found[: max(op.limit, 0)]
        more = page and len(found) > len(page)
        return ops.CredentialPage(credentials=tuple(page), next=place[page[-1].id] if more else None)

    def _forget_credentials(self, before, limit, now):
        bad = []
        for _, c in self.credentials:
            ends = [at for at in (c.expires_at, c.revoked_at) if at is not None]
            if ends and min(ends) < before and not c.is_good(now):
                bad.append((min(ends), c.id))
        gone = {id for _, id in sorted(bad)[: max(limit, 0)]}  # noqa: A001
        self.credentials = [(h, c) for h, c in self.credentials if c.id not in gone]
        return len(gone)


class Signed:
    """An act signed by the credential itself."""

    notes = None

    def __init__(self, by):
        self.by = by
