"""Limits that people set at run time."""

from __future__ import annotations

import msgspec

from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import Limit, LimitKey, StoredLimit
from fairlane.core.ops import ClearLimit, LimitPaused, Limits, ListLimits, PauseLimit, SetLimit
from fairlane.stores.instants import after, from_us, to_us
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.job_keys.places import hold_again
from fairlane.stores.sqlite.limits.in_force import forget_read, read_kept
from fairlane.stores.sqlite.listener import wake_for_ready
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_THIS = "kind = ? and name = ? and queue = ?"
_SET = """
insert into fairlane_limit (kind, name, queue, said, by, at) values (?, ?, ?, ?, ?, ?)
on conflict (kind, name, queue) do update set said = excluded.said, by = excluded.by, at = excluded.at
"""
_PAUSE = f"update fairlane_limit set paused_until = ? where {_THIS}"  # noqa: S608


@reading
def list_limits(tx: Transaction, op: ListLimits) -> Limits:
    return _all(tx, changed=False)


@change
def set_limit(tx: Transaction, op: SetLimit) -> Limits:
    known = _find(tx, op.limit.key)
    changed = known is None or known.limit != op.limit
    if changed:
        _write(tx, op.limit, op.by)
        _hold_again(tx, op.limit.key)
        _audit(tx, op, "limit_set", op.limit.key, _said(known), op.limit)
        wake_for_ready(tx)
    return _all(tx, changed=changed)


@change
def clear_limit(tx: Transaction, op: ClearLimit) -> Limits:
    key = LimitKey(op.kind, op.name, op.queue)
    known = _find(tx, key)
    if known is not None:
        tx.db.execute(f"delete from fairlane_limit where {_THIS}", key)  # noqa: S608
        forget_read(tx)
        _hold_again(tx, key)
        if (said := _said(known)) is not None:
            _audit(tx, op, "limit_clear", key, said, None)
        wake_for_ready(tx)
    return _all(tx, changed=known is not None)


@change
def pause_limit(tx: Transaction, op: PauseLimit) -> LimitPaused:
    key, until = LimitKey(op.kind, op.name, op.queue), after(tx.now, op.for_s)
    _hold_again(tx, key)
    known = _find(tx, key)
    if known is None:
        _write(tx, _nothing_said(key), op.by)
    elif known.paused_until is not None and to_us(known.paused_until) >= until:
        return LimitPaused(until=known.paused_until)
    tx.db.execute(_PAUSE, (until, *key))
    forget_read(tx)
    return LimitPaused(until=from_us(until))


def _find(tx: Transaction, key: LimitKey) -> StoredLimit | None:
    return next(iter(read_kept(tx, _THIS, key)), None)


def _write(tx: Transaction, limit: Limit, by: str) -> None:
    tx.db.execute(_SET, (*limit.key, msgspec.json.encode(limit).decode(), by, tx.now))
    forget_read(tx)


def _hold_again(tx: Transaction, key: LimitKey) -> None:
    if key.kind == "key":
        hold_again(tx, key.name)


def _nothing_said(key: LimitKey) -> Limit:
    return Limit(kind=key.kind, name=key.name, queue=key.queue)


def _said(known: StoredLimit | None) -> Limit | None:
    """None also for a record that was made for a pause alone."""
    return None if known is None or known.limit == _nothing_said(known.limit.key) else known.limit


def _all(tx: Transaction, *, changed: bool) -> Limits:
    return Limits(limits=read_kept(tx), changed=changed)


def _audit(
    tx: Transaction, op: SetLimit | ClearLimit, action: str, key: LimitKey, before: Limit | None, after: Limit | None
) -> None:
    tenant = key.name if key.kind == "tenant" and key.name != EVERY_TENANT else None
    target = f"limit:{key.kind}:{key.name}" + (f"@{key.queue}" if key.queue else "")
    facts = [None if limit is None else msgspec.to_builtins(limit) for limit in (before, after)]
    write_audit(tx, op, action, tenant, target, *facts)
