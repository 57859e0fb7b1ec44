"""Credentials as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.core.ops import (
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
from fairlane.stores.postgres.call import Call, answering, instant

_credential_act = answering(CredentialAct)
_credentials_seen = answering(CredentialsSeen)
_credential_page = answering(CredentialPage)


def _issue(op: IssueCredential) -> Call[CredentialAct]:
    secret = (str(op.id), op.kind, op.name, op.prefix, op.hash)
    return Call(
        "select {schema}.issue_credential_v1(%s::uuid, %s, %s, %s, %s, %s::text[], %s, %s::float8, %s, %s, %s::timestamptz)::text",
        (*secret, list(op.roles), op.tenant, op.ttl_s, op.by, op.notes, instant(op.now)),
        _credential_act,
    )


def _find(op: FindCredential) -> Call[CredentialAct]:
    return Call(
        "select {schema}.find_credential_v1(%s, %s, %s::timestamptz)::text",
        (op.kind, op.hash, instant(op.now)),
        _credential_act,
    )


def _redeem(op: RedeemLink) -> Call[CredentialAct]:
    return Call(
        "select {schema}.redeem_link_v1(%s, %s::timestamptz)::text", (op.hash, instant(op.now)), _credential_act
    )


def _revoke(op: RevokeCredential) -> Call[CredentialAct]:
    return Call(
        "select {schema}.revoke_credential_v1(%s::uuid, %s, %s, %s::timestamptz)::text",
        (str(op.id), op.by, op.notes, instant(op.now)),
        _credential_act,
    )


def _see(op: SeeCredentials) -> Call[CredentialsSeen]:
    return Call(
        "select {schema}.see_credentials_v1(%s::uuid[], %s::timestamptz)::text",
        ([str(known) for known in op.ids], instant(op.now)),
        _credentials_seen,
    )


def _list(op: ListCredentials) -> Call[CredentialPage]:
    return Call(
        "select {schema}.list_credentials_v1(%s, %s, %s, %s, %s::timestamptz)::text",
        (op.kind, op.name, op.also_bad, max(op.limit, 0), instant(op.now)),
        _credential_page,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    IssueCredential: _issue,
    FindCredential: _find,
    RedeemLink: _redeem,
    RevokeCredential: _revoke,
    SeeCredentials: _see,
    ListCredentials: _list,
}
