"""Alerts as they are kept, and silences."""

from __future__ import annotations

from fairlane.core.ops import Alert, Alerts, AlertsSaved, ReadAlerts, SaveAlerts, Silence, SilenceAlerts
from fairlane.core.ops.alerts import RESOLVED_KEPT_S
from fairlane.stores.instants import after, as_text, before, to_us
from fairlane.stores.sqlite.audit import write_audit
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction, change, reading

_alert, _silence = RowReader(Alert), RowReader(Silence)
_ALERTS = f"""
select {_alert.columns} from fairlane_alert
where state <> 'resolved' or resolved_at is null or resolved_at > ? order by rule, about
"""  # noqa: S608
_SILENCES = f"select {_silence.columns} from fairlane_silence where until > ? order by rule"  # noqa: S608
_FORGET = """
delete from fairlane_alert where (rule, about) in
  (select rule, about from fairlane_alert where state = 'resolved' and resolved_at <= ? limit 2000)
"""
_SAVE = """
insert into fairlane_alert (rule, about, state, since, fired_at, resolved_at, told_at, value, severity, version)
select ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10
where ?10 = 1 + coalesce((select version from fairlane_alert where rule = ?1 and about = ?2), 0)
on conflict (rule, about) do update set state = excluded.state, since = excluded.since, fired_at = excluded.fired_at,
  resolved_at = excluded.resolved_at, told_at = excluded.told_at, value = excluded.value, severity = excluded.severity,
    version = excluded.version
returning 1
"""


@reading
def read_alerts(tx: Transaction, op: ReadAlerts) -> Alerts:
    return _alerts(tx)


@change
def save_alerts(tx: Transaction, op: SaveAlerts) -> AlertsSaved:
    tx.db.execute(_FORGET, (before(tx.now, RESOLVED_KEPT_S),))
    return AlertsSaved(saved=tuple((alert.rule, alert.about) for alert in op.alerts if _save(tx, alert)))


@change
def silence(tx: Transaction, op: SilenceAlerts) -> Alerts:
    until = after(tx.now, op.for_s)
    if until > tx.now:
        tx.db.execute("insert or replace into fairlane_silence values (?, ?, ?, ?)", (op.rule, until, op.by, op.notes))
        _audit_silence(tx, op, as_text(until))
    elif tx.db.execute("delete from fairlane_silence where rule = ? and until > ? returning 1", (op.rule, tx.now)):
        _audit_silence(tx, op, None)
    return _alerts(tx)


def _save(tx: Transaction, alert: Alert) -> bool:
    later = (None if at is None else to_us(at) for at in (alert.fired_at, alert.resolved_at, alert.told_at))
    row = (alert.rule, alert.about, alert.state, to_us(alert.since), *later, alert.value, alert.severity, alert.version)
    return bool(tx.db.execute(_SAVE, row))


def _alerts(tx: Transaction) -> Alerts:
    alerts = tx.db.execute(_ALERTS, (before(tx.now, RESOLVED_KEPT_S),))
    silences = tx.db.execute(_SILENCES, (tx.now,))
    return Alerts(alerts=tuple(map(_alert, alerts)), silences=tuple(map(_silence, silences)))


def _audit_silence(tx: Transaction, op: SilenceAlerts, until: str | None) -> None:
    write_audit(tx, op, "alert_silence", None, f"alert:{op.rule}", None, {"until": until})
