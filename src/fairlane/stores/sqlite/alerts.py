"""Duties done once, alerts, groups of dead letters, and jobs counted as they came in."""

from __future__ import annotations

from collections import Counter

from fairlane.core.ops import (
    Alert,
    Alerts,
    AlertsSaved,
    DeadLetterGroup,
    DeadLetterGroups,
    DutyTaken,
    GroupDeadLetters,
    ReadAlerts,
    RolledUp,
    RollUpEnqueued,
    SaveAlerts,
    Silence,
    SilenceAlerts,
    StatRow,
    TakeDuty,
)
from fairlane.core.ops.alerts import RESOLVED_KEPT_S
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.instants import after, as_text, before, from_us, maybe_from_us, to_us
from fairlane.stores.sqlite.listings import dead_letters_where
from fairlane.stores.sqlite.statistics import add_figures
from fairlane.stores.sqlite.transaction import Transaction

GROUPED = 10_000
"""Dead letters looked at, newest first."""
MINUTE_US = 60_000_000

_DUTY = "select taken_at from fairlane_duty where name = ?"
_ALERTS = """
select rule, about, state, since, fired_at, resolved_at, told_at, value, severity, version from fairlane_alert
where state <> 'resolved' or resolved_at is null or resolved_at > ?
order by rule, about
"""
_FORGET = "delete from fairlane_alert where state = 'resolved' and resolved_at <= ?"
_SAVE = """
insert into fairlane_alert (rule, about, state, since, fired_at, resolved_at, told_at, value, severity, version)
select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
where ?10 = 1 + coalesce((select version from fairlane_alert where rule = ?1 and about = ?2), 0)
on conflict (rule, about) do update set state = excluded.state, since = excluded.since, fired_at = excluded.fired_at,
  resolved_at = excluded.resolved_at, told_at = excluded.told_at, value = excluded.value, severity = excluded.severity, version = excluded.version
returning 1
"""
_GROUPS = """
with found as materialized (
  select d.seq, d.fingerprint, d.died_at, j.tenant from fairlane_dead_letter d cross join fairlane_job j on j.seq = d.seq
  where {where} order by d.seq desc limit ?
), grouped as (
  select fingerprint, count(*) as n, count(distinct tenant) as tenants, min(died_at) as first_at, max(died_at) as last_at, max(seq) as newest
  from found group by fingerprint order by n desc, fingerprint limit ?
)
select g.fingerprint, j.type, d.error_type, d.reason, g.n, g.tenants, g.first_at, g.last_at, g.newest
from grouped g cross join fairlane_dead_letter d on d.seq = g.newest cross join fairlane_job j on j.seq = g.newest
order by g.n desc, g.fingerprint
"""
_ROLLED_UP = "select value from fairlane_meta where name = 'rolled_up_seq'"
_ENQUEUED = """
select seq, enqueued_at, type, queue, tenant from fairlane_job where seq > ? order by seq limit ?
"""


def take_duty(tx: Transaction, op: TakeDuty) -> DutyTaken:
    last = tx.db.execute(_DUTY, (op.name,))
    taken = not last or last[0][0] <= before(tx.now, op.every_s)
    if taken:
        tx.db.execute("insert or replace into fairlane_duty values (?, ?)", (op.name, tx.now))
    return DutyTaken(taken=taken, now=from_us(tx.now))


def read_alerts(tx: Transaction, op: ReadAlerts) -> Alerts:
    return _alerts(tx)


def save_alerts(tx: Transaction, op: SaveAlerts) -> AlertsSaved:
    tx.db.execute(_FORGET, (before(tx.now, RESOLVED_KEPT_S),))
    return AlertsSaved(saved=tuple((alert.rule, alert.about) for alert in op.alerts if _save(tx, alert)))


def silence(tx: Transaction, op: SilenceAlerts) -> Alerts:
    until = after(tx.now, op.for_s)
    if until > tx.now:
        tx.db.execute("insert or replace into fairlane_silence values (?, ?, ?, ?)", (op.rule, until, op.by, op.notes))
        _audit_silence(tx, op, as_text(until))
    elif tx.db.execute("delete from fairlane_silence where rule = ? and until > ? returning 1", (op.rule, tx.now)):
        _audit_silence(tx, op, None)
    return _alerts(tx)


def group_dead_letters(tx: Transaction, op: GroupDeadLetters) -> DeadLetterGroups:
    where, params = dead_letters_where(op.scope, op.where)
    rows = tx.db.execute(_GROUPS.replace("{where}", where), (*params, GROUPED, max(op.limit, 0)))
    groups = tuple(
        DeadLetterGroup(
            fingerprint=fingerprint,
            type=job_type,
            error_type=error_type,
            reason=reason,
            count=count,
            tenants=tenants,
            first_at=from_us(first_at),
            last_at=from_us(last_at),
            newest=newest,
        )
        for fingerprint, job_type, error_type, reason, count, tenants, first_at, last_at, newest in rows
    )
    return DeadLetterGroups(groups=groups)


def roll_up(tx: Transaction, op: RollUpEnqueued) -> RolledUp:
    known = tx.db.execute(_ROLLED_UP)
    settled = before(tx.now, op.settled_s)
    counts: Counter[tuple[int, str, str, str]] = Counter()
    jobs = last = 0
    for seq, enqueued_at, job_type, queue, tenant in tx.db.execute(
        _ENQUEUED, (known[0][0] if known else 0, max(op.limit, 0))
    ):
        if enqueued_at > settled:
            break
        counts[enqueued_at // MINUTE_US * MINUTE_US, job_type, queue, tenant] += 1
        jobs, last = jobs + 1, seq
    if jobs:
        add_figures(
            tx,
            [
                StatRow(minute=from_us(minute), type=job_type, queue=queue, tenant=tenant, enqueued=count)
                for (minute, job_type, queue, tenant), count in counts.items()
            ],
        )
        tx.db.execute("insert or replace into fairlane_meta values ('rolled_up_seq', ?)", (last,))
    return RolledUp(jobs=jobs)


def _save(tx: Transaction, alert: Alert) -> bool:
    later = (None if at is None else to_us(at) for at in (alert.fired_at, alert.resolved_at, alert.told_at))
    row = (alert.rule, alert.about, alert.state, to_us(alert.since), *later, alert.value, alert.severity, alert.version)
    return bool(tx.db.execute(_SAVE, row))


def _alerts(tx: Transaction) -> Alerts:
    alerts = tuple(
        Alert(
            rule=rule,
            about=about,
            state=state,
            since=from_us(since),
            fired_at=maybe_from_us(fired_at),
            resolved_at=maybe_from_us(resolved_at),
            told_at=maybe_from_us(told_at),
            value=value,
            severity=severity,
            version=version,
        )
        for rule, about, state, since, fired_at, resolved_at, told_at, value, severity, version in tx.db.execute(
            _ALERTS, (before(tx.now, RESOLVED_KEPT_S),)
        )
    )
    lasting = tx.db.execute(
        "select rule, until, by, notes from fairlane_silence where until > ? order by rule", (tx.now,)
    )
    silences = tuple(Silence(rule=rule, until=from_us(until), by=by, notes=notes) for rule, until, by, notes in lasting)
    return Alerts(alerts=alerts, silences=silences)


def _audit_silence(tx: Transaction, op: SilenceAlerts, until: str | None) -> None:
    write_audit(tx, op, "alert_silence", None, f"alert:{op.rule}", None, {"until": until})
