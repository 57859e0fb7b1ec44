"""Schedules in the oracle: a dictionary by name."""

from __future__ import annotations

from typing import Any

from fairlane.core import ops, schedules as values
from tests.model_facts import Record


class Schedules:
    schedules: dict[str, dict[str, Any]]
    jobs: list[Record]

    def _shown(self, name):
        return values.Schedule(**self.schedules[name])

    def declareschedules(self, op, now):
        added, changed, named = [], [], [planned.spec.name for planned in op.schedules]
        for planned in op.schedules:
            name, words = planned.spec.name, {"spec": planned.spec, "next_at": planned.next_at, "declared_at": now}
            there = self.schedules.get(name)
            if there is None:
                self.schedules[name] = {"source": op.source, **words}
                added.append(name)
                self._note_declared(op, "schedule_add", planned.spec, None, {"cron": planned.spec.cron}, now)
            elif there["source"] == op.source and there["spec"] != planned.spec:
                before = {"cron": there["spec"].cron}
                there |= words
                changed.append(name)
                self._note_declared(op, "schedule_change", planned.spec, before, {"cron": planned.spec.cron}, now)
        removed = [name for name, s in self.schedules.items() if s["source"] == op.source and name not in named]
        removed = sorted(removed) if op.prune else []
        for name in removed:
            spec = self.schedules.pop(name)["spec"]
            self._note_declared(op, "schedule_remove", spec, {"cron": spec.cron}, None, now)
        return ops.Declared(added=tuple(added), changed=tuple(changed), removed=tuple(removed))

    def _note_declared(self, op, action, spec, before, after, now):
        if op.by is not None:
            self._note(op, action, spec.tenant, f"schedule:{spec.name}", before, after, now)

    def listschedules(self, op, now):
        found = [self._shown(name) for name in sorted(self.schedules)]
        next_s = None
        if op.due:
            later = [s.next_at for s in found if s.paused_at is None and s.next_at is not None and s.next_at > now]
            next_s = (min(later) - now).total_seconds() if later else None
            found = [s for s in found if s.paused_at is None and s.next_at is not None and s.next_at <= now]
            found.sort(key=lambda s: (s.next_at, s.spec.name))
        return ops.Schedules(schedules=tuple(found[: max(op.limit, 0)]), next_s=next_s)

    def fire(self, op, now):
        row = self.schedules.get(op.name)
        if row is None or row.get("paused_at") or row["next_at"] != op.expected_at:
            return ops.Fired(outcome="lost")
        busy = any(r.spec.id == row.get("last_job_id") and not r.is_finished for r in self.jobs)
        if op.jobs and busy and row["spec"].overlap == "queue":
            return ops.Fired(outcome="waiting")
        row |= {"next_at": op.next_at, "last_at": op.fired_at or row["last_at"]}
        if op.jobs and busy and row["spec"].overlap == "skip":
            return ops.Fired(outcome="skipped")
        made = tuple(self._put(spec, now).id for spec in op.jobs)
        if made:
            row["last_job_id"] = made[-1]
        return ops.Fired(outcome="fired", job_ids=made)

    def _act_on_schedule(self, op, now, change):
        row = self.schedules.get(op.name)
        if row is None:
            return ops.ScheduleAct(refused="not_found")
        shown, noted = self._shown(op.name), change(row)
        if noted:
            self._note(op, noted[0], row["spec"].tenant, f"schedule:{op.name}", noted[1], noted[2], now)
        made = noted[2]["job_id"] if noted and noted[0] == "schedule_run" else None
        left = self._shown(op.name) if op.name in self.schedules else shown
        return ops.ScheduleAct(schedule=left, job_id=made and row["last_job_id"])

    def pauseschedule(self, op, now):
        def change(row):
            if (row.get("paused_at") is not None) == op.paused:
                return None
            row |= {"paused_at": now} if op.paused else {"paused_at": None, "next_at": op.next_at}
            action = "schedule_pause" if op.paused else "schedule_resume"
            return action, {"paused": not op.paused}, {"paused": op.paused}

        return self._act_on_schedule(op, now, change)

    def runschedule(self, op, now):
        def change(row):
            row["last_job_id"] = self._put(op.job, now).id
            return "schedule_run", None, {"job_id": str(row["last_job_id"])}

        return self._act_on_schedule(op, now, change)

    def removeschedule(self, op, now):
        return self._act_on_schedule(
            op, now, lambda row: ("schedule_remove", {"cron": self.schedules.pop(op.name)["spec"].cron}, None)
        )
