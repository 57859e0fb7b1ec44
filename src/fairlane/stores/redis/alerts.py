"""Alerts as they are kept, and silences."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
from msgspec.structs import replace

from fairlane.core.ops import Alert, Alerts, AlertsSaved, ReadAlerts, SaveAlerts, Silence, SilenceAlerts
from fairlane.core.ops.alerts import RESOLVED_KEPT_S
from fairlane.stores.instants import after, as_text, before, from_us, to_us
from fairlane.stores.redis.states import joined
from fairlane.stores.redis.steps import Script, Steps, Work, document, handles

_read_alert = msgspec.json.Decoder(Alert).decode
_read_silence = msgspec.json.Decoder(Silence).decode


@handles
def read_alerts(work: Work, op: ReadAlerts) -> Steps[Alerts]:
    alerts, silences = yield from _read(work)
    return _alerts(work, alerts, silences)


@handles
def save_alerts(work: Work, op: SaveAlerts) -> Steps[AlertsSaved]:
    alerts, _ = yield from _read(work)
    for alert in list(alerts.values()):
        if not _is_kept(work, alert):
            work.do("HDEL", "alert", _field(alert))
            del alerts[alert.rule, alert.about]
    saved: list[tuple[str, str]] = []
    for alert in op.alerts:
        known = alerts.get((alert.rule, alert.about))
        if alert.version == 1 + (0 if known is None else known.version):
            alerts[alert.rule, alert.about] = in_utc = _in_utc(alert)
            saved.append((alert.rule, alert.about))
            work.do("HSET", "alert", _field(alert), document(in_utc))
    yield from work.commit()
    return AlertsSaved(saved=tuple(saved))


@handles
def silence(work: Work, op: SilenceAlerts) -> Steps[Alerts]:
    alerts, silences = yield from _read(work)
    until = after(work.now, op.for_s)
    known = silences.get(op.rule)
    if until > work.now:
        silences[op.rule] = Silence(rule=op.rule, until=from_us(until), by=op.by, notes=op.notes)
        work.do("HSET", "silence", op.rule, document(silences[op.rule]))
        work.audit(op, "alert_silence", None, f"alert:{op.rule}", None, {"until": as_text(until)})
    elif known is not None and to_us(known.until) > work.now:
        del silences[op.rule]
        work.do("HDEL", "silence", op.rule)
        work.audit(op, "alert_silence", None, f"alert:{op.rule}", None, {"until": None})
    yield from work.commit()
    return _alerts(work, alerts, silences)


_KeptAlerts = dict[tuple[str, str], Alert]


def _read(work: Work) -> Generator[Script, Any, tuple[_KeptAlerts, dict[str, Silence]]]:
    alerts, silences = yield from work.read(("HVALS", "alert"), ("HVALS", "silence"))
    return (
        {(alert.rule, alert.about): alert for alert in map(_read_alert, alerts)},
        {silence.rule: silence for silence in map(_read_silence, silences)},
    )


def _in_utc(alert: Alert) -> Alert:
    names = ("since", "fired_at", "resolved_at", "told_at")
    return replace(alert, **{name: at and from_us(to_us(at)) for name in names for at in [getattr(alert, name)]})


def _field(alert: Alert) -> str:
    return joined(alert.rule, alert.about)


def _is_kept(work: Work, alert: Alert) -> bool:
    since = alert.resolved_at
    return alert.state != "resolved" or since is None or to_us(since) > before(work.now, RESOLVED_KEPT_S)


def _alerts(work: Work, alerts: _KeptAlerts, silences: dict[str, Silence]) -> Alerts:
    return Alerts(
        alerts=tuple(alerts[place] for place in sorted(alerts) if _is_kept(work, alerts[place])),
        silences=tuple(silences[rule] for rule in sorted(silences) if to_us(silences[rule].until) > work.now),
    )
