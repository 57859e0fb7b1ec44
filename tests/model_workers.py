"""Pauses, workers seen from outside, notes and figures in the oracle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from fairlane.core import ops
from tests.model_facts import Record

SUMS = ("enqueued", "completed", "failed", "dead", "cancelled", "wait_us", "run_us")
BUCKETS = ("wait_buckets", "run_buckets")


class Workers:
    jobs: list[Record]
    workers: list[dict[str, Any]]
    pauses: list[ops.Pause]
    figures: dict[tuple[Any, ...], dict[str, Any]]

    def _is_paused(self, kind, name):
        return any((pause.kind, pause.name) == (kind, name) for pause in self.pauses)

    def _set_pause(self, op, pause, now):
        before = [p for p in self.pauses if (p.kind, p.name) == (op.kind, op.name)]
        self.pauses = [p for p in self.pauses if p not in before] + ([pause] if pause else [])
        seen = [
            {"paused": bool(p)} | ({"refuse": True} if p and p[0].refuse else {}) for p in (before, pause and [pause])
        ]
        tenant = op.name if op.kind == "tenant" else None
        self._note(op, "pause" if pause else "resume", tenant, f"{op.kind}:{op.name}", *seen, now)
        return self._pauses(changed=True)

    def _pauses(self, changed):
        return ops.Pauses(pauses=tuple(sorted(self.pauses, key=lambda p: (p.kind, p.name))), changed=changed)

    def pauseclaims(self, op, now):
        if any((p.kind, p.name) == (op.kind, op.name) and p.refuse >= op.refuse for p in self.pauses):
            return self._pauses(changed=False)
        pause = ops.Pause(kind=op.kind, name=op.name, by=op.by, at=now, notes=op.notes, refuse=op.refuse)
        return self._set_pause(op, pause, now)

    def resumeclaims(self, op, now):
        return self._set_pause(op, None, now) if self._is_paused(op.kind, op.name) else self._pauses(changed=False)

    def listpauses(self, op, now):
        return self._pauses(changed=False)

    def _refusing_pause(self, jobs):
        for spec in jobs:
            over = {("queue", spec.queue), ("tenant", spec.tenant), ("type", spec.type)}
            found = [p for p in self.pauses if p.refuse and (p.kind, p.name) in over]
            if found:
                return min(found, key=lambda p: p.kind)
        return None

    def lapse(self, op, now):
        if all(w["id"] != op.worker for w in self.workers):
            return ops.ReclaimResult()
        self._mark_started(op, now)
        held = sorted((r for r in self.jobs if r.lease and r.lease.worker == op.worker), key=lambda r: r.seq)
        self.workers = [w for w in self.workers if w["id"] != op.worker]
        return ops.ReclaimResult(reclaimed=tuple(self._take_back(r, "worker_gone", now) for r in held))

    def reportexceptions(self, op, now):
        known = [w for w in self.workers if w["id"] == op.worker]
        for w in known:
            w["exceptions"] = op.exceptions[-20:]
        return ops.ExceptionsReported(accepted=bool(known))

    def listexceptions(self, op, now):
        found = [(w, e) for w in self.workers for e in w.get("exceptions", ()) if op.scope.admits(e.tenant)]
        found.sort(key=lambda pair: (pair[0]["id"], pair[1].id, pair[1].attempt))
        found.sort(key=lambda pair: pair[1].at, reverse=True)
        told = (ops.WorkerException(worker=w["id"], name=w["name"], caught=e) for w, e in found[: op.limit])
        return ops.WorkerExceptions(exceptions=tuple(told))

    def listworkers(self, op, now):
        rows = sorted(self.workers, key=lambda w: (w["registered_at"], w["id"]))
        told = set(ops.WorkerRecord.__struct_fields__) - {"leases"}
        return ops.Workers(
            now=now,
            workers=tuple(
                ops.WorkerRecord(
                    **{name: w[name] for name in told},
                    leases=sum(r.lease is not None and r.lease.worker == w["id"] for r in self.jobs),
                )
                for w in rows
            ),
        )

    def note(self, op, now):
        r = self._leased(op, op.worker)
        if r is None:
            return ops.Noted(accepted=False)
        if op.progress is not None:
            r.progress = op.progress
        r.log += [ops.LogLine(at=now, attempt=op.attempt, message=line) for line in op.log]
        r.log = r.log[-ops.LOG_LINES :]
        return ops.Noted(accepted=True)

    def addstats(self, op, now):
        worker = next((w for w in self.workers if w["id"] == op.worker), None)
        if worker is None or op.batch <= worker["batch"]:
            return ops.StatsAdded(added=False)
        worker["batch"] = op.batch
        for row in op.rows:
            self._sum_up(row)
        return ops.StatsAdded(added=True)

    def _sum_up(self, row):
        key = row.minute, row.type, row.queue, row.tenant
        there = self.figures.setdefault(key, dict.fromkeys(SUMS, 0) | {name: {} for name in BUCKETS})
        for name in SUMS:
            there[name] += getattr(row, name)
        for name in BUCKETS:
            more = getattr(row, name)
            there[name] = {b: there[name].get(b, 0) + more.get(b, 0) for b in {*there[name], *more}}

    def readstats(self, op, now):
        names = ("minute", "type", "queue", "tenant")
        rows = [ops.StatRow(**dict(zip(names, key, strict=True)), **self.figures[key]) for key in sorted(self.figures)]
        asked = [row for row in rows if all(getattr(op, name) in (None, getattr(row, name)) for name in names[1:])]
        asked = [row for row in asked if op.since <= row.minute < op.until]
        if op.step_s is not None:
            kept, self.figures = self.figures, {}
            for row in asked:
                steps = (row.minute - op.since) // timedelta(seconds=op.step_s)
                others = {name: "" for name in names[1:] if name != op.by}
                self._sum_up(replace(row, minute=op.since + steps * timedelta(seconds=op.step_s), **others))
            asked = [
                ops.StatRow(**dict(zip(names, key, strict=True)), **self.figures[key]) for key in sorted(self.figures)
            ]
            self.figures = kept
        return ops.StatPage(rows=tuple(asked[: max(op.limit, 0)]))
