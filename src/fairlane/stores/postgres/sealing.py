"""The chain that seals the audit, as calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from fairlane.core.ops import AuditChain, AuditSealed, AuditToSeal, ReadAuditChain, ReadUnsealed, SealAudit
from fairlane.stores.postgres.call import Call, answering

MAX_LINKS = 1_000
COUNTED_TO = 1_000

_to_seal = answering(AuditToSeal)
_sealed = answering(AuditSealed)
_chain = answering(AuditChain)


def _read_unsealed(op: ReadUnsealed) -> Call[AuditToSeal]:
    return Call("select {schema}.unsealed_v1(%s)::text", (max(op.limit, 0),), _to_seal)


def _seal(op: SealAudit) -> Call[AuditSealed]:
    return Call("select {schema}.seal_v1(%s::json)::text", (msgspec.json.encode(op.links).decode(),), _sealed)


def _read_chain(op: ReadAuditChain) -> Call[AuditChain]:
    return Call(
        "select {schema}.audit_chain_v1(%s, %s, %s)::text",
        (op.after, max(1, min(op.limit, MAX_LINKS)), COUNTED_TO),
        _chain,
    )


CALLS: dict[type, Callable[[Any], Call[Any]]] = {
    ReadUnsealed: _read_unsealed,
    SealAudit: _seal,
    ReadAuditChain: _read_chain,
}
