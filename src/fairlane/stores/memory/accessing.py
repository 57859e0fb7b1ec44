"""Credentials: issued, found, used up, revoked, listed."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from fairlane.core.ops import (
    Credential,
    CredentialAct,
    CredentialKind,
    CredentialPage,
    CredentialsSeen,
    FindCredential,
    IssueCredential,
    ListCredentials,
    RedeemLink,
    RevokeCredential,
    SeeCredentials,
)
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.facts import Facts
from fairlane.stores.memory.moving import later

_NONE = CredentialAct()


def issue_credential(facts: Facts, op: IssueCredential, now: datetime) -> CredentialAct:
    beside = facts.beside
    holder, kept = beside.by_hash.get(op.hash), beside.credentials.get(op.id)
    if kept is not None or holder is not None:
        return CredentialAct(credential=kept) if holder == op.id else _NONE
    new = Credential(
        id=op.id,
        kind=op.kind,
        name=op.name,
        prefix=op.prefix,
        roles=op.roles,
        tenant=op.tenant,
        created_by=op.by,
        created_at=now,
        expires_at=None if op.ttl_s is None else later(now, op.ttl_s),
        revoked_at=None,
        last_used_at=None,
    )
    beside.credentials[op.id], beside.hashes[op.id], beside.by_hash[op.hash] = new, op.hash, op.id
    if op.kind != "session":
        after = {"name": new.name, "prefix": new.prefix, "roles": list(new.roles), "tenant": new.tenant}
        after["expires_at"] = None if new.expires_at is None else as_text(new.expires_at)
        _record(facts, new, "create", op.by, op.notes, now, after)
    return CredentialAct(credential=new, changed=True)


def find_credential(facts: Facts, op: FindCredential, now: datetime) -> CredentialAct:
    return CredentialAct(credential=_find_good(facts, op.kind, op.hash, now))


def redeem_link(facts: Facts, op: RedeemLink, now: datetime) -> CredentialAct:
    link = _find_good(facts, "link", op.hash, now)
    if link is None:
        return _NONE
    _record(facts, link, "redeem", link.name, None, now)
    return _end(facts, link, now)


def revoke_credential(facts: Facts, op: RevokeCredential, now: datetime) -> CredentialAct:
    kept = facts.beside.credentials.get(op.id)
    if kept is None or kept.revoked_at is not None:
        return CredentialAct(credential=kept)
    _record(facts, kept, "revoke", op.by, op.notes, now)
    return _end(facts, kept, now)


def see_credentials(facts: Facts, op: SeeCredentials, now: datetime) -> CredentialsSeen:
    credentials = facts.beside.credentials
    known = credentials.keys() & set(op.ids)
    for seen in known:
        credentials[seen] = replace(credentials[seen], last_used_at=now)
    return CredentialsSeen(count=len(known))


def list_credentials(facts: Facts, op: ListCredentials, now: datetime) -> CredentialPage:
    found = [
        one
        for one in facts.beside.credentials.values()
        if one.kind == op.kind and op.name in (None, one.name) and (op.also_bad or one.is_good(now))
    ]
    found.sort(key=lambda one: (one.created_at, one.id), reverse=True)
    return CredentialPage(credentials=tuple(found[: max(op.limit, 0)]))


def forget_credentials(facts: Facts, before: datetime, limit: int, now: datetime) -> int:
    """Remove those that went bad before then, the longest bad first; returns how many."""
    bad: list[tuple[datetime, UUID]] = []
    for one in facts.beside.credentials.values():
        ended_at = min((at for at in (one.expires_at, one.revoked_at) if at is not None), default=None)
        if ended_at is not None and ended_at < before and not one.is_good(now):
            bad.append((ended_at, one.id))
    gone = sorted(bad)[: max(limit, 0)]
    for _, one_id in gone:
        del facts.beside.credentials[one_id], facts.beside.by_hash[facts.beside.hashes.pop(one_id)]
    return len(gone)


def as_text(at: datetime) -> str:
    """An instant as audit records hold it."""
    return at.isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def _find_good(facts: Facts, kind: CredentialKind, secret_hash: str, now: datetime) -> Credential | None:
    holder = facts.beside.by_hash.get(secret_hash)
    kept = None if holder is None else facts.beside.credentials[holder]
    return kept if kept is not None and kept.kind == kind and kept.is_good(now) else None


def _end(facts: Facts, kept: Credential, now: datetime) -> CredentialAct:
    ended = facts.beside.credentials[kept.id] = replace(kept, revoked_at=now)
    return CredentialAct(credential=ended, changed=True)


def _record(
    facts: Facts, kept: Credential, verb: str, by: str, notes: str | None, now: datetime, after: Any = None
) -> None:
    action, target = f"{kept.kind}_{verb}", f"{kept.kind}:{kept.id}"
    record_act(facts, action, target, kept.tenant, by=by, notes=notes, before=None, after=after, now=now)
