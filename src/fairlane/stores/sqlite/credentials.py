"""Credentials, kept by the hash of their secret."""

from __future__ import annotations

from uuid import UUID

import msgspec

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
from fairlane.stores.instants import after, as_text, to_us
from fairlane.stores.sqlite.audit import Signed, write_audit
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_credential = RowReader(Credential)
_SELECT = f"select {_credential.columns} from fairlane_credential"  # noqa: S608
_BY_ID = f"{_SELECT} where id = ?"
_GOOD = "revoked_at is null and (expires_at is null or expires_at > ?)"
_FIND = f"{_SELECT} where hash = ? and kind = ? and {_GOOD}"
_KEPT = "select id, hash from fairlane_credential where id = ? or hash = ?"
_ISSUE = """
insert into fairlane_credential (id, kind, name, prefix, hash, roles, tenant, created_by, created_at, expires_at)
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_REVOKE = "update fairlane_credential set revoked_at = ? where id = ?"
_SEE = "update fairlane_credential set last_used_at = ? where id = ? returning 1"
_ENDED = """
delete from fairlane_credential where id in (
  select id from fairlane_credential
  where coalesce(min(expires_at, revoked_at), expires_at, revoked_at) < ?1
    and (revoked_at is not null or expires_at <= ?2) and (expires_at is not null or revoked_at is not null)
  order by coalesce(min(expires_at, revoked_at), expires_at, revoked_at), id limit ?3)
returning 1
"""


@change
def issue(tx: Transaction, op: IssueCredential) -> CredentialAct:
    kept = tx.db.execute(_KEPT, (op.id.bytes, op.hash))
    if kept:
        same = kept == [(op.id.bytes, op.hash)]
        return CredentialAct(credential=_require(tx, op.id)) if same else CredentialAct()
    lasts_s = SESSION_S if op.ttl_s is None and op.kind == "session" else op.ttl_s
    expires_at = None if lasts_s is None else after(tx.now, lasts_s)
    roles = msgspec.json.encode(op.roles).decode()
    secret = (op.id.bytes, op.kind, op.name, op.prefix, op.hash)
    tx.db.execute(_ISSUE, (*secret, roles, op.tenant, op.by, tx.now, expires_at))
    facts: dict[str, object] = {
        "name": op.name,
        "prefix": op.prefix,
        "roles": op.roles,
        "tenant": op.tenant,
        "expires_at": None if expires_at is None else as_text(expires_at),
    }
    write_audit(tx, op, f"{op.kind}_create", op.tenant, f"{op.kind}:{op.id}", None, facts)
    return CredentialAct(credential=_require(tx, op.id), changed=True)


@reading
def find(tx: Transaction, op: FindCredential) -> CredentialAct:
    rows = tx.db.execute(_FIND, (op.hash, op.kind, tx.now))
    return CredentialAct(credential=_credential(rows[0]) if rows else None)


@change
def redeem(tx: Transaction, op: RedeemLink) -> CredentialAct:
    rows = tx.db.execute(_FIND, (op.hash, "link", tx.now))
    if not rows:
        return CredentialAct()
    link = _credential(rows[0])
    tx.db.execute(_REVOKE, (tx.now, link.id.bytes))
    # Who uses a link signs with the name it was made out to.
    write_audit(tx, Signed(link.name), "link_redeem", link.tenant, f"link:{link.id}", None, None)
    if op.session is None:
        return CredentialAct(credential=_require(tx, link.id), changed=True)
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
    return issue(tx, opened)


@change
def revoke(tx: Transaction, op: RevokeCredential) -> CredentialAct:
    rows = tx.db.execute(_BY_ID, (op.id.bytes,))
    known = _credential(rows[0]) if rows else None
    if known is None or known.revoked_at is not None:
        return CredentialAct(credential=known)
    tx.db.execute(_REVOKE, (tx.now, op.id.bytes))
    write_audit(tx, op, f"{known.kind}_revoke", known.tenant, f"{known.kind}:{op.id}", None, None)
    return CredentialAct(credential=_require(tx, op.id), changed=True)


@change
def see(tx: Transaction, op: SeeCredentials) -> CredentialsSeen:
    return CredentialsSeen(count=sum(len(tx.db.execute(_SEE, (tx.now, known.bytes))) for known in set(op.ids)))


@reading
def list_credentials(tx: Transaction, op: ListCredentials) -> CredentialPage:
    where = "kind = ?"
    params: list[object] = [op.kind]
    if op.name is not None:
        where, params = f"{where} and name = ?", [*params, op.name]
    if not op.also_bad:
        where, params = f"{where} and {_GOOD}", [*params, tx.now]
    if op.before is not None:
        at, _, last = op.before.partition(".")
        where, params = f"{where} and (created_at, id) < (?, ?)", [*params, int(at), UUID(last).bytes]
    limit = max(op.limit, 0)
    rows = tx.db.execute(f"{_SELECT} where {where} order by created_at desc, id desc limit ?", (*params, limit + 1))
    page = tuple(map(_credential, rows[:limit]))
    following = f"{to_us(page[-1].created_at)}.{page[-1].id}" if page and len(rows) > limit else None
    return CredentialPage(credentials=page, next=following)


def forget_ended(tx: Transaction, before: int, limit: int) -> int:
    """Remove credentials that ended before then, those that ended first first."""
    return len(tx.db.execute(_ENDED, (before, tx.now, limit)))


def _require(tx: Transaction, known: UUID) -> Credential:
    [row] = tx.db.execute(_BY_ID, (known.bytes,))
    return _credential(row)
