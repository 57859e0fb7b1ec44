"""A clock that is set back, in the oracle: what began in the future begins now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from fairlane.core import ops
from tests.model_facts import Record, span


class SetBack:
    jobs: list[Record]
    workers: list[dict[str, Any]]
    set_back: ops.SetBack | None
    examined_to: float | None
    """Jobs from this number on have been examined; None: nothing is to be."""

    def bringback(self, op, now):
        behind = span(op.behind_s or 0.0)
        if not behind and self.examined_to is None:
            seen = [w["renewed_at"] for w in self.workers] + list(self.duties.values())
            seen += [r.enqueued_at for r in sorted(self.jobs, key=lambda r: r.seq)[-1:]]
            behind = max((at - now for at in seen if at - now > span(ops.CLOCK_HELD_S)), default=behind)
        if behind > span(0):
            self.set_back = ops.SetBack(now=now, at=now, behind_s=behind.total_seconds())
            self._begin_now(now)
            self.examined_to = float("inf")
        if self.examined_to is None:
            return ops.BroughtBack(now=now)
        waiting = [r for r in self.jobs if r.place in ("ready", "scheduled") and r.seq < self.examined_to]
        step = sorted(waiting, key=lambda r: -r.seq)[: max(op.limit, 0)]
        moved, more = sum(self._due_from(r, now) for r in step), len(step) >= max(op.limit, 0)
        self.examined_to = (step[-1].seq if step else self.examined_to) if more else None
        return ops.BroughtBack(now=now, behind_s=behind.total_seconds(), moved=moved, more=more)

    def readsetback(self, op, now):
        return replace(self.set_back or ops.SetBack(now=now), now=now)

    def _due_from(self, r: Record, now: datetime) -> bool:
        if r.place == "ready":
            is_late, r.due = r.due > now, min(r.due, now)
            return is_late
        if r.since is None or r.since <= now:
            return False
        was, r.due, r.since = r.due, now + max(r.due - r.since, span(0)), now
        r.steps = [replace(s, until=r.due) if s.kind == "sleep" and s.until == was else s for s in r.steps]
        if r.wait and r.wait["until"] == was:
            r.wait["until"] = r.due
        return True

    def _begin_now(self, now):
        for w in self.workers:
            if w["renewed_at"] > now:
                w["expires_at"] = now + (w["expires_at"] - w["renewed_at"])
                w["renewed_at"], w["registered_at"] = now, min(w["registered_at"], now)
        for r in self.jobs:
            if r.lease:
                lease, began_at = r.lease, r.lease.started_at or r.lease.leased_at
                lease.deadline_at -= max(began_at - now, span(0))
                lease.leased_at, r.due = min(lease.leased_at, now), min(r.due, now)
                lease.started_at = lease.started_at and min(lease.started_at, now)
        self.duties = {name: min(at, now) for name, at in self.duties.items()}
        for row in self.breakers.values():
            if row["retry_at"] and row["opened_at"] and row["opened_at"] > now:
                row["retry_at"] = now + (row["retry_at"] - row["opened_at"])
            for name in ("opened_at", "half_opened_at", "last_failure_at", "updated_at"):
                row[name] = row[name] and min(row[name], now)
        for key, alert in self.alerts.items():
            names = ("since", "fired_at", "told_at", "resolved_at")
            instants = {name: at and min(at, now) for name in names for at in [getattr(alert, name)]}
            self.alerts[key] = replace(alert, **instants)
        for key, kept in self.limits.items():
            if kept.paused_until and kept.paused_until > now:
                self.limits[key] = replace(kept, paused_until=None)
        for claim in self.claims:
            claim["at"] = min(claim["at"], now)
        self.tokens = [(tenant, min(at, now)) for tenant, at in self.tokens]
