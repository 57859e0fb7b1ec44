"""What people do, and how a store is kept, in the oracle."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from fairlane.core import job as values, ops
from tests.model_facts import Record, own_failure, span
from tests.model_pages import Reads, job_of, letter_of

CARRIED_OVER = (
    "type",
    "payload_version",
    "tenant",
    "queue",
    "priority",
    "priority_scope",
    "category",
    "refs",
)
CARRIED_OVER += ("headers", "max_attempts", "timeout_s", "retry", "parent_id", "key")


class People(Reads):
    workers: list[Any]
    last_seq: int
    last_audit_id: int

    def _note(self, op, action, tenant, target, before, after, now):
        self.last_audit_id += 1
        self.audit.append(
            ops.AuditRecord(
                id=self.last_audit_id,
                at=now,
                by=op.by,
                action=action,
                tenant=tenant,
                target=target,
                notes=op.notes,
                before=before,
                after=after,
            )
        )

    def _act_on_job(self, op, action, now, allowed, change):
        r = next((r for r in self.jobs if r.spec.id == op.id and op.scope.admits(r.spec.tenant)), None)
        if r is None:
            return ops.JobAct(refused="not_found")
        if not allowed(r):
            return ops.JobAct(refused="not_allowed", job=job_of(r))
        before = {"status": r.status, "attempts": r.attempts}
        if change(r):
            after = {"status": r.status, "attempts": r.attempts}
            self._note(op, action, r.spec.tenant, f"job:{r.spec.id}", before, after, now)
        return ops.JobAct(job=job_of(r))

    def cancel(self, op, now):
        def change(r):
            if r.place == "cancelled" or (r.lease and r.lease.cancel):
                return False
            if r.lease:
                r.lease.cancel = True
            else:
                r.last = None
                r.finish("cancelled", now)
            return True

        return self._act_on_job(op, "job_cancel", now, lambda r: r.place not in ("completed", "dead"), change)

    def fail(self, op, now):
        def change(r):
            runs_again = op.retry_delay_s is not None and r.attempts + 1 < r.spec.max_attempts
            runs_again = runs_again and r.place != "waiting"
            error_class = "retryable" if runs_again else "non_retryable"
            cancelled = r.lease is not None and r.lease.cancel
            r.attempts, r.suspect = r.attempts + 1, False
            r.end_try("failed_by_hand", now, own_failure(r.spec.type, "FailedByHand", error_class, op.reason))
            if runs_again and not cancelled:
                r.place, r.due, r.awaits_retry = "scheduled", now + span(op.retry_delay_s), True
                r.since, r.at_key = now, False
            else:
                r.finish("cancelled" if runs_again else "dead", now)
            return True

        return self._act_on_job(op, "job_fail", now, lambda r: not r.is_finished, change)

    def bury(self, op, now):
        def change(r):
            failure = own_failure(r.spec.type, "Buried", "non_retryable", op.reason)
            r.end_try("failed_by_hand", now, failure)
            r.finish("dead", now)
            return True

        return self._act_on_job(op, "job_bury", now, lambda r: not r.is_finished, change)

    def _release(self, r, now):
        cancelled = r.lease.cancel
        if r.lease.started_at is None:
            self._give_back(r)
        r.end_try("released", now)
        if cancelled:
            r.finish("cancelled", now)
        else:
            r.make_ready()
        return True

    def reset(self, op, now):
        return self._act_on_job(op, "job_reset", now, lambda r: r.lease is not None, lambda r: self._release(r, now))

    def _letter(self, op):
        return next((r for r in self.jobs if r.letter and r.seq == op.id and op.scope.admits(r.spec.tenant)), None)

    def _close(self, op, r, status, now):
        r.letter |= {"status": status, "closed_by": op.by, "closed_at": now, "resolution_notes": op.notes}

    def _act_on_letter(self, op, action, now, allowed, change):
        r = self._letter(op)
        if r is None:
            return ops.DeadLetterAct(refused="not_found")
        if r.letter["status"] not in allowed:
            return ops.DeadLetterAct(refused="not_allowed", dead_letter=letter_of(r))
        before = {name: r.letter[name] for name in ("status", "acknowledged_by")}
        if change(r):
            after = {name: r.letter[name] for name in ("status", "acknowledged_by")}
            self._note(op, action, r.spec.tenant, f"dead_letter:{r.seq}", before, after, now)
        return ops.DeadLetterAct(dead_letter=letter_of(r))

    def discard(self, op, now):
        allowed = ("pending_review", "retried")
        return self._act_on_letter(
            op, "job_dlq_discard", now, allowed, lambda r: self._close(op, r, "discarded", now) or True
        )

    def resolve(self, op, now):
        allowed = ("pending_review", "retried")
        return self._act_on_letter(
            op, "job_dlq_resolve", now, allowed, lambda r: self._close(op, r, "resolved", now) or True
        )

    def acknowledge(self, op, now):
        def change(r):
            if r.letter["acknowledged_by"] is not None:
                return False
            r.letter |= {"acknowledged_by": op.by, "acknowledged_at": now}
            return True

        return self._act_on_letter(op, "job_dlq_acknowledge", now, values.DEAD_LETTER_STATUSES, change)

    def reprocess(self, op, now):
        r = self._letter(op)
        if r is None:
            return ops.DeadLetterAct(refused="not_found")
        letter = r.letter
        made = next((j for j in self.jobs if j.spec.id == letter["reprocessed_as"]), None)
        if made and letter["status"] == "retried" and (made.spec.id == op.new_job_id or not self._ended_badly(made)):
            return ops.DeadLetterAct(dead_letter=letter_of(r), new_job=job_of(made), repeated=True)
        target, before = f"dead_letter:{r.seq}", {name: letter[name] for name in ("status", "acknowledged_by")}
        self._note(op, "job_dlq_reprocess_requested", r.spec.tenant, target, before, None, now)
        is_open = letter["status"] in ("pending_review", "retried")
        if not is_open or any(j.spec.id == op.new_job_id for j in self.jobs) or not self.may_be_tried_again(r):
            return ops.DeadLetterAct(refused="not_allowed", dead_letter=letter_of(r))
        taken = {j.spec.idempotency_key for j in self.jobs if j.spec.tenant == r.spec.tenant}
        n = letter["reprocess_count"] + 1
        while f"{r.idempotency_key}_retry_{n}" in taken:
            n += 1
        spec = values.JobSpec(
            id=op.new_job_id,
            idempotency_key=f"{r.idempotency_key}_retry_{n}",
            correlation_id=r.correlation_id,
            created_by=op.by,
            payload=r.spec.payload if op.payload is None else op.payload,
            **{name: getattr(r.spec, name) for name in CARRIED_OVER},
        )
        due = now + span(op.delay_s or 0.0)
        self.last_seq += 1
        place = "ready" if due <= now else "scheduled"
        taken_along = {"steps": list(r.steps), "attempt": 1} if r.steps else {}
        taken_along["order"] = r.order
        new = Record(spec, self.last_seq, place, enqueued_at=now, first_due=due, due=due, since=now, **taken_along)
        self.jobs.append(new)
        self.replace_job(r, self.jobs[-1])
        self._close(op, r, "retried", now)
        letter |= {"reprocess_count": letter["reprocess_count"] + 1, "reprocessed_as": spec.id}
        after = {"status": "retried", "acknowledged_by": letter["acknowledged_by"], "new_job_id": str(spec.id)}
        if spec.payload != r.spec.payload:
            after["payload_edited"] = True
        self._note(op, "job_dlq_reprocess_success", r.spec.tenant, target, before, after, now)
        return ops.DeadLetterAct(dead_letter=letter_of(r), new_job=job_of(self.jobs[-1]))

    def _ended_badly(self, r):
        return r.place in ("dead", "cancelled")

    def check(self, op, now):
        return ops.Health(now=now, store="model", server="none", schema_version=0, durable=False)

    def retain(self, op, now):
        def is_past(r, at, before):
            before = op.by_queue.get(r.spec.queue, before)
            return at is not None and before is not None and at < before and not self.is_wanted(r)

        ages = [at for at in (op.finished_before, *op.by_queue.values()) if at is not None]
        finished = [
            r for r in self.jobs if r.place in ("completed", "cancelled") and ages and r.finished_at < max(ages)
        ]
        finished = [r for r in finished if r.finished_at >= (op.finished_from or r.finished_at)]
        finished.sort(key=lambda r: (r.finished_at, r.seq))
        examined_to = None
        if op.by_queue and len(finished) >= max(op.examine, 1):
            examined_to = finished[max(op.examine, 1) - 1].finished_at + timedelta(microseconds=1)
            finished = [r for r in finished if r.finished_at < examined_to]
        old = [r for r in finished if is_past(r, r.finished_at, op.finished_before)]
        closed = [r for r in self.jobs if r.letter and is_past(r, r.letter["closed_at"], op.closed_before)]
        closed.sort(key=lambda r: (r.letter["closed_at"], r.seq))
        old = old[: max(op.limit, 0)]
        removed = [r.seq for r in (old + closed)[: max(op.limit, 0)]]
        self.jobs = [r for r in self.jobs if r.seq not in removed]
        self.forget_nodes()
        over = sorted(key for key in self.figures if op.stats_before and key[0] < op.stats_before)
        for key in over[:2000]:
            del self.figures[key]
        finished_to = old[-1].finished_at if old else None
        more_stats = len(over) > 2000
        return ops.Retained(jobs=len(removed), finished_to=finished_to, examined_to=examined_to, more_stats=more_stats)

    def dropresults(self, op, now):
        ended = sorted(
            (r for r in self.jobs if r.place in ("completed", "cancelled")), key=lambda r: (r.finished_at, r.seq)
        )
        behind = (op.at, -1 if op.seq is None else op.seq)
        examined = [
            r
            for r in ended
            if r.finished_at < op.finished_before and (op.at is None or (r.finished_at, r.seq) > behind)
        ][: max(op.limit, 0)]
        old = [r for r in examined if r.place == "completed" and r.spec.type == op.type and r.result is not None]
        left = [r.finished_at for r in old if self.is_wanted(r)]
        old = [r for r in old if not self.is_wanted(r)]
        for r in old:
            r.result = None
        return ops.ResultsDropped(
            dropped=len(old),
            at=examined[-1].finished_at if examined else op.at,
            seq=examined[-1].seq if examined else op.seq,
            more=len(examined) >= max(op.limit, 0),
            left_at=left[0] if left else None,
        )

    def purge(self, op, now):
        count = len(self.jobs)
        self.forget()
        return ops.Purged(jobs=count)
