"""Duties taken once, alerts, the audit's seal, groups of dead letters, the roll-up of jobs enqueued."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from itertools import islice

from msgspec.structs import replace

from fairlane.core.ops import (
    Alert,
    Alerts,
    AlertsSaved,
    AuditChain,
    AuditRecord,
    AuditSealed,
    AuditToSeal,
    DeadLetterGroup,
    DeadLetterGroups,
    DutyTaken,
    GroupDeadLetters,
    ReadAlerts,
    ReadAuditChain,
    ReadUnsealed,
    RolledUp,
    RollUpEnqueued,
    SaveAlerts,
    SealAudit,
    SealedRecord,
    Silence,
    SilenceAlerts,
    StatRow,
    TakeDuty,
)
from fairlane.core.ops.watch import RESOLVED_KEPT_S
from fairlane.stores.memory.accessing import as_text
from fairlane.stores.memory.acting import record_act
from fairlane.stores.memory.facts import Facts, Row
from fairlane.stores.memory.moving import as_utc, earlier, later
from fairlane.stores.memory.reading import copied, is_letter_asked_for
from fairlane.stores.memory.reporting import add_figures
from fairlane.stores.memory.showing import dead_letter_of

_MAX_LINKS = 1000
_MAX_UNSEALED = 1000
_MAX_LETTERS = 10_000


def take_duty(facts: Facts, op: TakeDuty, now: datetime) -> DutyTaken:
    last = facts.beside.duties.get(op.name)
    taken = last is None or later(last, op.every_s) <= now
    if taken:
        facts.beside.duties[op.name] = now
    return DutyTaken(taken=taken, now=now)


def read_alerts(facts: Facts, op: ReadAlerts, now: datetime) -> Alerts:
    return _alerts(facts, now)


def save_alerts(facts: Facts, op: SaveAlerts, now: datetime) -> AlertsSaved:
    alerts, saved = facts.beside.alerts, []
    for key in [key for key, alert in alerts.items() if not _is_kept(alert, now)]:
        del alerts[key]
    for alert in [_in_utc(alert) for alert in op.alerts]:
        key = alert.rule, alert.about
        if alert.version == (alerts[key].version + 1 if key in alerts else 1):
            alerts[key] = alert
            saved.append(key)
    return AlertsSaved(saved=tuple(saved))


def silence_alerts(facts: Facts, op: SilenceAlerts, now: datetime) -> Alerts:
    silences, until = facts.beside.silences, None
    if op.for_s > 0:
        until = later(now, op.for_s)
        silences[op.rule] = Silence(rule=op.rule, until=until, by=op.by, notes=op.notes)
        changed = True
    else:
        ended = silences.pop(op.rule, None)
        changed = ended is not None and ended.until > now
    if changed:
        after = {"until": None if until is None else as_text(until)}
        target = f"alert:{op.rule}"
        record_act(facts, "alert_silence", target, None, by=op.by, notes=op.notes, before=None, after=after, now=now)
    return _alerts(facts, now)


def _alerts(facts: Facts, now: datetime) -> Alerts:
    kept, silences = facts.beside.alerts, facts.beside.silences
    return Alerts(
        alerts=tuple(kept[key] for key in sorted(kept) if _is_kept(kept[key], now)),
        silences=tuple(silences[rule] for rule in sorted(silences) if silences[rule].until > now),
    )


def _is_kept(alert: Alert, now: datetime) -> bool:
    over_at = alert.resolved_at if alert.state == "resolved" else None
    return over_at is None or over_at > earlier(now, RESOLVED_KEPT_S)


def _in_utc(alert: Alert) -> Alert:
    return replace(
        alert,
        since=as_utc("since", alert.since),
        fired_at=None if alert.fired_at is None else as_utc("fired_at", alert.fired_at),
        resolved_at=None if alert.resolved_at is None else as_utc("resolved_at", alert.resolved_at),
        told_at=None if alert.told_at is None else as_utc("told_at", alert.told_at),
    )


def read_unsealed(facts: Facts, op: ReadUnsealed, now: datetime) -> AuditToSeal:
    links = facts.beside.links
    records = tuple(map(copied, islice(_unsealed(facts), max(op.limit, 0))))
    return AuditToSeal(last=links[-1] if links else None, records=records)


def seal_audit(facts: Facts, op: SealAudit, now: datetime) -> AuditSealed:
    beside = facts.beside
    next_n, new = len(beside.links) + 1, {link.audit_id for link in op.links}
    follow = all(link.n == n for n, link in enumerate(op.links, next_n))
    if not follow or len(new) < len(op.links) or not beside.sealed.isdisjoint(new):
        return AuditSealed(sealed=False)
    beside.links += op.links
    beside.sealed |= new
    return AuditSealed(sealed=True)


def read_audit_chain(facts: Facts, op: ReadAuditChain, now: datetime) -> AuditChain:
    after, limit = max(op.after, 0), max(1, min(op.limit, _MAX_LINKS))
    links = facts.beside.links[after : after + limit]
    sealed = tuple(SealedRecord(link=link, record=_record(facts, link.audit_id)) for link in links)
    return AuditChain(sealed=sealed, unsealed=sum(1 for _ in islice(_unsealed(facts), _MAX_UNSEALED)))


def _unsealed(facts: Facts) -> Iterator[AuditRecord]:
    beside, audit = facts.beside, facts.audit
    while beside.sealed_before < len(audit) and audit[beside.sealed_before].id in beside.sealed:
        beside.sealed_before += 1
    for nth in range(beside.sealed_before, len(audit)):
        if audit[nth].id not in beside.sealed:
            yield audit[nth]


def _record(facts: Facts, audit_id: int) -> AuditRecord | None:
    nth = audit_id - facts.audit[0].id if facts.audit else -1
    return copied(facts.audit[nth]) if 0 <= nth < len(facts.audit) else None


def group_dead_letters(facts: Facts, op: GroupDeadLetters, now: datetime) -> DeadLetterGroups:
    found = [row for row in facts.letters.values() if is_letter_asked_for(row, op.scope, op.where)]
    found.sort(key=lambda row: row.seq, reverse=True)
    alike: dict[str, list[Row]] = {}
    for row in found[:_MAX_LETTERS]:
        assert row.failure is not None
        alike.setdefault(row.failure.fingerprint, []).append(row)
    groups = sorted(map(_group_of, alike.values()), key=lambda group: (-group.count, group.fingerprint))
    return DeadLetterGroups(groups=tuple(groups[: max(op.limit, 0)]))


def _group_of(rows: list[Row]) -> DeadLetterGroup:
    """Of rows that failed alike, newest first."""
    newest = dead_letter_of(rows[0])
    died = [row.finished_at for row in rows if row.finished_at is not None]
    return DeadLetterGroup(
        fingerprint=newest.fingerprint,
        type=newest.job.type,
        error_type=newest.error_type,
        reason=newest.reason,
        count=len(rows),
        tenants=len({row.spec.tenant for row in rows}),
        first_at=min(died),
        last_at=max(died),
        newest=newest.id,
    )


def roll_up_enqueued(facts: Facts, op: RollUpEnqueued, now: datetime) -> RolledUp:
    settled_before, counted = earlier(now, op.settled_s), 0
    for seq in range(facts.beside.counted_seq + 1, facts.last_seq + 1):
        row = facts.rows.get(seq)
        if row is not None:
            if counted >= op.limit or row.enqueued_at > settled_before:
                break
            minute, spec = row.enqueued_at.replace(second=0, microsecond=0), row.spec
            figures = StatRow(minute=minute, type=spec.type, queue=spec.queue, tenant=spec.tenant, enqueued=1)
            add_figures(facts, figures)
            counted += 1
        facts.beside.counted_seq = seq
    return RolledUp(jobs=counted)
