"""Credentials, kept by the hash of their secret."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from fairlane.core.ops import (
    SESSION_S,
    Credential,
    CredentialAct,
    CredentialPage,
    CredentialsSeen,
    FindCredential,
    IssueCredential,
    ListCredentials,
    RedeemLink,
    RevokeCredential,
    SeeCredentials,
)
from fairlane.stores.instants import after, as_text, from_us, to_us
from fairlane.stores.redis.steps import DoneBy, Script, Steps, Work, document, handles

_AT_ONCE = 200


class KeptCredential(Credential, frozen=True, kw_only=True):
    hash: str


_read_credential = msgspec.json.Decoder(KeptCredential).decode


@handles
def issue(work: Work, op: IssueCredential) -> Steps[CredentialAct]:
    act = yield from _issue(work, op)
    yield from work.commit()
    return act


@handles
def find(work: Work, op: FindCredential) -> Steps[CredentialAct]:
    found = yield from _good(work, op.kind, op.hash)
    return CredentialAct(credential=found and _shown(found))


@handles
def redeem(work: Work, op: RedeemLink) -> Steps[CredentialAct]:
    link = yield from _good(work, "link", op.hash)
    if link is None:
        return CredentialAct()
    used = replace(link, revoked_at=from_us(work.now))
    _write(work, used)
    # Who uses a link signs with the name it was made out to.
    work.audit(DoneBy(link.name), "link_redeem", link.tenant, f"link:{link.id}", None, None)
    act = CredentialAct(credential=_shown(used), changed=True)
    if op.session is not None:
        opened = IssueCredential(
            kind="session",
            id=op.session.id,
            hash=op.session.hash,
            prefix=op.session.prefix,
            ttl_s=op.session.ttl_s,
            name=link.name,
            roles=link.roles,
            tenant=link.tenant,
            by=link.name,
        )
        act = yield from _issue(work, opened)
    yield from work.commit()
    return act


@handles
def revoke(work: Work, op: RevokeCredential) -> Steps[CredentialAct]:
    [known] = yield from _read(work, [op.id])
    if known is None or known.revoked_at is not None:
        return CredentialAct(credential=known and _shown(known))
    revoked = replace(known, revoked_at=from_us(work.now))
    _write(work, revoked)
    work.audit(op, f"{known.kind}_revoke", known.tenant, f"{known.kind}:{op.id}", None, None)
    yield from work.commit()
    return CredentialAct(credential=_shown(revoked), changed=True)


@handles
def see(work: Work, op: SeeCredentials) -> Steps[CredentialsSeen]:
    found = yield from _read(work, list(set(op.ids)))
    seen = [replace(known, last_used_at=from_us(work.now)) for known in found if known is not None]
    for known in seen:
        _write(work, known)
    yield from work.commit()
    return CredentialsSeen(count=len(seen))


@handles
def list_credentials(work: Work, op: ListCredentials) -> Steps[CredentialPage]:
    limit = max(op.limit, 0)
    at, _, last = (op.before or "").partition(".")
    found: list[KeptCredential] = []
    offset = 0
    while len(found) <= limit:
        newest = ("ZREVRANGEBYSCORE", f"credentials:{op.kind}", at or "+inf", "-inf", "LIMIT", offset, _AT_ONCE)
        [page] = yield from work.read(newest, watch=False)
        for known in (yield from _read(work, [UUID(hex=one.decode()) for one in page])):
            if known is None or (op.before is not None and _place(known) >= (int(at), UUID(last).bytes)):
                continue
            if op.name in (None, known.name) and (op.also_bad or known.is_good(from_us(work.now))):
                found.append(known)
        if len(page) < _AT_ONCE:
            break
        offset += _AT_ONCE
    shown = tuple(_shown(known) for known in found[:limit])
    following = f"{to_us(shown[-1].created_at)}.{shown[-1].id}" if shown and len(found) > limit else None
    return CredentialPage(credentials=shown, next=following)


def forget_ended(work: Work, before: int, limit: int) -> Generator[Script, Any, int]:
    """Remove credentials that ended before then, those that ended first first; the caller commits."""
    ended = ("ZRANGEBYSCORE", "credentials:ended", "-inf", f"({min(before, work.now + 1)}", "LIMIT", 0, limit)
    [ids] = yield from work.read(ended)
    found = yield from _read(work, [UUID(hex=one.decode()) for one in ids])
    for known in found:
        if known is not None:
            work.do("HDEL", "credential", known.id.hex)
            work.do("HDEL", "credential:hash", known.hash)
            work.do("ZREM", f"credentials:{known.kind}", known.id.hex)
            work.do("ZREM", "credentials:ended", known.id.hex)
    return len(found)


def _issue(work: Work, op: IssueCredential) -> Generator[Script, Any, CredentialAct]:
    [known] = yield from _read(work, [op.id])
    [holder] = yield from work.read(("HGET", "credential:hash", op.hash))
    if known is not None or holder is not None:
        same = known is not None and known.hash == op.hash
        return CredentialAct(credential=_shown(known)) if known is not None and same else CredentialAct()
    lasts_s = SESSION_S if op.ttl_s is None and op.kind == "session" else op.ttl_s
    expires = None if lasts_s is None else after(work.now, lasts_s)
    new = KeptCredential(
        id=op.id,
        kind=op.kind,
        name=op.name,
        prefix=op.prefix,
        hash=op.hash,
        roles=op.roles,
        tenant=op.tenant,
        created_by=op.by,
        created_at=from_us(work.now),
        expires_at=None if expires is None else from_us(expires),
        revoked_at=None,
        last_used_at=None,
    )
    _write(work, new)
    work.do("HSET", "credential:hash", op.hash, op.id.hex)
    work.do("ZADD", f"credentials:{op.kind}", work.now, op.id.hex)
    facts: dict[str, object] = {
        "name": op.name,
        "prefix": op.prefix,
        "roles": op.roles,
        "tenant": op.tenant,
        "expires_at": None if expires is None else as_text(expires),
    }
    work.audit(op, f"{op.kind}_create", op.tenant, f"{op.kind}:{op.id}", None, facts)
    return CredentialAct(credential=_shown(new), changed=True)


def _good(work: Work, kind: str, secret_hash: str) -> Generator[Script, Any, KeptCredential | None]:
    [holder] = yield from work.read(("HGET", "credential:hash", secret_hash))
    if holder is None:
        return None
    [known] = yield from _read(work, [UUID(hex=holder.decode())])
    return known if known is not None and known.kind == kind and known.is_good(from_us(work.now)) else None


def _read(work: Work, ids: Sequence[UUID]) -> Generator[Script, Any, list[KeptCredential | None]]:
    if not ids:
        return []
    [documents] = yield from work.read(("HMGET", "credential", *(one.hex for one in ids)))
    return [None if one is None else _read_credential(one) for one in documents]


def _write(work: Work, known: KeptCredential) -> None:
    work.do("HSET", "credential", known.id.hex, document(known))
    ends = [to_us(at) for at in (known.expires_at, known.revoked_at) if at is not None]
    if ends:
        work.do("ZADD", "credentials:ended", min(ends), known.id.hex)


def _shown(known: KeptCredential) -> Credential:
    return Credential(**{name: getattr(known, name) for name in Credential.__struct_fields__})


def _place(known: Credential) -> tuple[int, bytes]:
    return to_us(known.created_at), known.id.bytes
