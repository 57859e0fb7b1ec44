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

    def _told(self, op, changed, now):
        if changed:
            paused, tenant = self._is_paused(op.kind, op.name), op.name if op.kind == "tenant" else None
            action, target = "pause" if paused else "resume", f"{op.kind}:{op.name}"
            self._note(op, action, tenant, target, {"paused": not paused}, {"paused": paused}, now)
        return ops.Pauses(pauses=tuple(sorted(self.pauses, key=lambda p: (p.kind, p.name))), changed=changed)

    def pauseclaims(self, op, now):
        changed = not self._is_paused(op.kind, op.name)
        if changed:
            self.pauses.append(ops.Pause(kind=op.kind, name=op.name, by=op.by, at=now, notes=op.notes))
        return self._told(op, changed, now)

    def resumeclaims(self, op, now):
        changed = self._is_paused(op.kind, op.name)
        self.pauses = [pause for pause in self.pauses if (pause.kind, pause.name) != (op.kind, op.name)]
        return self._told(op, changed, now)

    def listpauses(self, op, now):
        return self._told(op, False, now)

    def lapse(self, op, now):
        if all(w["id"] != op.worker for w in self.workers):
            return ops.ReclaimResult()
        self._mark_started(op, now)
        held = sorted((r for r in self.jobs if r.lease and r.lease.worker == op.worker), key=lambda r: r.seq)
        self.workers = [w for w in self.workers if w["id"] != op.worker]
        return ops.ReclaimResult(reclaimed=tuple(self._take_back(r, "worker_gone", now) for r in held))

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
        r = self._leased(op.seq, op.attempt, op.worker)
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
