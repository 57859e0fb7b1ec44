"""Duties, alerts, the audit's seal, groups of dead letters and the roll-up in the oracle."""

from __future__ import annotations

from collections import Counter
from datetime import UTC
from typing import Any

from msgspec.structs import replace

from fairlane.core import audit_chain, ops
from tests.model_credentials import Access, instant_text
from tests.model_events import Events
from tests.model_facts import span
from tests.model_pages import letter_of


class Watch(Access, Events):
    duties: dict[str, Any]
    alerts: dict[tuple[str, str], ops.Alert]
    silences: dict[str, ops.Silence]
    links: list[ops.AuditLink]
    rolled_up: int

    def forget_watch(self):
        self.credentials, self.events, self.watched_at = [], [], []
        self.duties, self.alerts, self.silences, self.links, self.rolled_up = {}, {}, {}, [], 0

    def takeduty(self, op, now):
        last = self.duties.get(op.name)
        taken = last is None or last + span(op.every_s) <= now
        if taken:
            self.duties[op.name] = now
        return ops.DutyTaken(taken=taken, now=now)

    def readalerts(self, op, now):
        silences = [self.silences[rule] for rule in sorted(self.silences) if self.silences[rule].until > now]
        alerts = self._alerts_kept(now)
        return ops.Alerts(alerts=tuple(alerts[key] for key in sorted(alerts)), silences=tuple(silences))

    def _alerts_kept(self, now):
        def is_forgotten(alert):
            return alert.state == "resolved" and alert.resolved_at and alert.resolved_at <= now - span(86_400)

        return {key: alert for key, alert in self.alerts.items() if not is_forgotten(alert)}

    def savealerts(self, op, now):
        saved, self.alerts = [], self._alerts_kept(now)
        for alert in op.alerts:
            key = alert.rule, alert.about
            if alert.version == (self.alerts[key].version if key in self.alerts else 0) + 1:
                self.alerts[key] = self._in_utc(alert)
                saved.append(key)
        return ops.AlertsSaved(saved=tuple(saved))

    def _in_utc(self, alert):
        instants = {name: getattr(alert, name) for name in ("since", "fired_at", "resolved_at", "told_at")}
        return replace(alert, **{name: at and at.astimezone(UTC) for name, at in instants.items()})

    def silencealerts(self, op, now):
        silence = self.silences.pop(op.rule, None)
        until = now + span(op.for_s) if op.for_s > 0 else None
        if until is not None:
            self.silences[op.rule] = ops.Silence(rule=op.rule, until=until, by=op.by, notes=op.notes)
        if until is not None or (silence is not None and silence.until > now):
            self._note(op, "alert_silence", None, f"alert:{op.rule}", None, {"until": instant_text(until)}, now)
        return self.readalerts(op, now)

    def _unsealed(self):
        sealed = {link.audit_id for link in self.links}
        return [a for a in self.audit if a.id not in sealed]

    def readunsealed(self, op, now):
        last = self.links[-1] if self.links else None
        return ops.AuditToSeal(last=last, records=tuple(self._unsealed()[: max(op.limit, 0)]))

    def sealaudit(self, op, now):
        records = {a.id: a for a in self.audit}
        ids = [link.audit_id for link in (*self.links, *op.links)]
        sealed = all(link.audit_id in records for link in op.links) and len(set(ids)) == len(ids)
        if sealed:
            last = self.links[-1] if self.links else None
            sealed = tuple(op.links) == audit_chain.seal(last, [records[link.audit_id] for link in op.links])
        if sealed:
            self.links += op.links
        return ops.AuditSealed(sealed=sealed)

    def readauditchain(self, op, now):
        records = {a.id: a for a in self.audit}
        asked = [link for link in self.links if link.n > op.after][: max(1, min(op.limit, 1000))]
        sealed = tuple(ops.SealedRecord(link=link, record=records.get(link.audit_id)) for link in asked)
        return ops.AuditChain(sealed=sealed, unsealed=min(len(self._unsealed()), 1000))

    def groupdeadletters(self, op, now):
        letters = self._letters_matching(op)[:10_000]
        groups = []
        for fingerprint in sorted({letter.fingerprint for letter in letters}):
            alike = [letter for letter in letters if letter.fingerprint == fingerprint]
            newest = alike[0]
            groups.append(
                ops.DeadLetterGroup(
                    fingerprint=fingerprint,
                    type=newest.job.type,
                    error_type=newest.error_type,
                    reason=newest.reason,
                    count=len(alike),
                    tenants=len({letter.job.tenant for letter in alike}),
                    first_at=min(letter.died_at for letter in alike),
                    last_at=max(letter.died_at for letter in alike),
                    newest=newest.id,
                )
            )
        groups.sort(key=lambda group: -group.count)
        return ops.DeadLetterGroups(groups=tuple(groups[: max(op.limit, 0)]))

    def _letters_matching(self, op):
        found = []
        for letter in (letter_of(r) for r in self.jobs if r.letter and op.scope.admits(r.spec.tenant)):
            seen = {name: getattr(letter, name) for name in ("status", "error_class", "error_type", "fingerprint")}
            seen |= {name: getattr(letter.job, name) for name in ("queue", "type", "category", "correlation_id")}
            seen["acknowledged"] = letter.acknowledged_by is not None
            if all(getattr(op.where, name) in (None, value) for name, value in seen.items()):
                found.append(letter)
        return sorted(found, key=lambda letter: -letter.id)

    def rollupenqueued(self, op, now):
        counted = 0
        for r in sorted(self.jobs, key=lambda r: r.seq):
            if r.seq <= self.rolled_up:
                continue
            if counted >= op.limit or r.enqueued_at > now - span(op.settled_s):
                break
            minute = r.enqueued_at.replace(second=0, microsecond=0)
            spec = r.spec
            self._sum_up(ops.StatRow(minute=minute, type=spec.type, queue=spec.queue, tenant=spec.tenant, enqueued=1))
            self.rolled_up, counted = r.seq, counted + 1
        return ops.RolledUp(jobs=counted)

    def readenqueued(self, op, now):
        last = max((r.seq for r in self.jobs), default=0)
        above = max(op.after, last - max(op.limit, 0))
        counts = Counter((r.spec.tenant, r.spec.queue) for r in self.jobs if r.seq > above)
        lines = tuple(ops.EnqueuedLine(tenant=t, queue=q, jobs=n) for (t, q), n in sorted(counts.items()))
        return ops.EnqueuedLines(lines=lines, last=last)
