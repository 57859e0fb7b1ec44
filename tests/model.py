"""The oracle: every operation by lists and linear scans, written from the docstrings of `core.ops` alone."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from fairlane.core import ops
from fairlane.core.clock import Clock, SystemClock
from tests.model_acts import People
from tests.model_alerts import Watch
from tests.model_breakers import Breakers
from tests.model_claim import Claiming
from tests.model_clock import SetBack
from tests.model_facts import Record, own_failure, span
from tests.model_job_keys import JobKeys
from tests.model_limits import Limits
from tests.model_schedules import Schedules
from tests.model_signals import Signals
from tests.model_tenants import Tenants
from tests.model_workers import Workers
from tests.model_workflows import Workflows

RECORDED_AS = {"completed": "completed", "retried": "failed", "died": "dead", "cancelled": "cancelled"}
RECORDED_AS |= {"snoozed": "snoozed", "released": "released", "crashed": "lost"}
COMPARED = ("type", "tenant", "queue", "priority", "payload", "idempotency_key", "dedup_key", "parent_id")


class Model(
    SetBack, Signals, People, Claiming, JobKeys, Limits, Tenants, Breakers, Schedules, Workers, Watch, Workflows
):
    def __init__(self, clock: Clock | None = None) -> None:
        self.clock = clock or SystemClock()
        self.forget()
        self.last_seq = self.last_audit_id = self.last_claimed = 0

    def forget(self) -> None:
        self.jobs: list[Record] = []
        self.workers: list[dict[str, Any]] = []
        self.audit: list[ops.AuditRecord] = []
        self.pauses: list[ops.Pause] = []
        self.breakers: dict[str, dict[str, Any]] = {}
        self.schedules: dict[str, dict[str, Any]] = {}
        self.figures: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.forget_watch()
        self.signals: list[dict[str, Any]] = []
        self.limits, self.tenants, self.claims, self.tokens = {}, {}, [], []
        self.flows, self.examined_to, self.set_back = [], None, None

    def run(self, op: Any) -> Any:
        now = op.now or self.clock.now()
        answer = getattr(self, type(op).__name__.lower())(op, now)
        self.count_nodes(now)
        return answer

    def enqueue(self, op, now):
        depth = None
        if op.capacity is not None:
            depth = min(sum(r.place in ("ready", "scheduled", "held", "waiting") for r in self.jobs), op.capacity)
            if depth + len(op.jobs) > op.capacity:
                return ops.EnqueueResult(full=True, depth=depth)
        if refusing := self._refusing_pause(op.jobs):
            return ops.EnqueueResult(paused=refusing, depth=depth)
        refused, hits, held = self._limit_hits(op, self._would_be_new(op.jobs, now))
        if refused:
            return ops.EnqueueResult(refused=refused, depth=depth)
        receipts = tuple(self._put(spec, now, held=spec.id in held) for spec in op.jobs)
        return ops.EnqueueResult(receipts=receipts, depth=depth, hits=tuple(hits))

    def _would_be_new(self, jobs, now):
        """Puts them in and takes them out again."""
        changes_others = any(spec.key and spec.key.on_conflict != "wait" for spec in jobs)
        before = self.jobs, self.last_seq
        self.jobs = deepcopy(self.jobs) if changes_others else list(self.jobs)
        new = [spec for spec in jobs if self._put(spec, now).disposition == "created"]
        self.jobs, self.last_seq = before
        return new

    def _put(self, spec, now, held=False):
        for r in self.jobs:
            if r.spec.id == spec.id:
                alike = all(getattr(r.spec, name) == getattr(spec, name) for name in COMPARED)
                return ops.Receipt(disposition="replayed" if alike else "conflict", id=spec.id, seq=r.seq)
        mates = [r for r in self.jobs if r.spec.tenant == spec.tenant]
        for r in mates:
            if spec.idempotency_key is not None and r.spec.idempotency_key == spec.idempotency_key:
                return ops.Receipt(disposition="duplicate", id=r.spec.id, seq=r.seq, key="idempotency")
        for r in mates:
            alike = r.spec.type == spec.type and r.spec.dedup_key == spec.dedup_key
            if spec.dedup_key is not None and alike and not r.is_finished:
                return ops.Receipt(disposition="duplicate", id=r.spec.id, seq=r.seq, key="dedup")
        policy = spec.key.on_conflict if spec.key else "wait"
        for r in self._conflicting(spec) if policy != "wait" else ():
            if policy == "discard":
                return ops.Receipt(disposition="duplicate", id=r.spec.id, seq=r.seq, key="job")
            if not r.lease:
                r.last = None
                r.finish("cancelled", now)
            elif policy == "cancel_running":
                r.lease.cancel = True
        due = spec.run_at or now + span(spec.delay_s or 0.0)
        self.last_seq += 1
        place = "held" if held else "ready" if due <= now else "scheduled"
        since = None if spec.run_at else now
        self.jobs.append(Record(spec, self.last_seq, place, enqueued_at=now, first_due=due, due=due, since=since))
        return ops.Receipt(disposition="created", id=spec.id, seq=self.last_seq, held=held)

    def turn(self, op, now):
        unstarted = self._mark_started(op, now)
        leaseless = [outcome for outcome in op.outcomes if not self._settle(outcome, op.worker, now)]
        stale = [outcome for outcome in leaseless if not self._is_repeat(outcome, op.worker)]
        refused = [ops.Refusal(seq=o.seq, attempt=o.attempt, claim_no=o.claim_no) for o in stale] + unstarted
        next_due_at = self._promote(op.promote_limit, now)[1]
        reclaimed = self._reclaim_lapsed(op.reclaim_limit, now)
        self.count_nodes(now)
        hints = []
        self._let_in(now, hints)
        registered = any(w["id"] == op.worker and w["expires_at"] > now for w in self.workers)
        leases, marks, cursors, surveys = [], {}, {}, []
        self.held_back = False
        for w in self.workers:
            if w["id"] == op.worker and registered:
                w["waiting"] = op.waiting
        if op.wants and registered:
            mine = [r for r in self.jobs if r.lease and (r.lease.worker, r.lease.claim_no) == (op.worker, op.claim_no)]
            leases = [self._lease_of(r) for r in sorted(mine, key=lambda r: r.lease.nth)]
            for want in op.wants if not mine else ():
                claimed, surveyed = self._claim(op, want, now, marks, cursors, hints)
                leases, surveys = leases + claimed, surveys + surveyed
        names = ("queue", "band", "tenant", "rank", "due_at", "seq")
        return ops.TurnResult(
            now=now,
            leases=tuple(leases),
            refused=tuple(refused),
            cancels=tuple(r.seq for r in self.jobs if r.lease and r.lease.worker == op.worker and r.lease.cancel),
            registered=registered,
            marks=tuple(ops.Mark(**dict(zip(names, line + marks[line], strict=True))) for line in sorted(marks)),
            cursors=cursors,
            next_due_at=next_due_at,
            reclaimed=tuple(reclaimed),
            surveys=tuple(surveys),
            limited=self._is_limited(op, now),
            held_back=self.held_back,
            limited_until=min(hints, default=None),
        )

    def _mark_started(self, op, now):
        unstarted = []
        for start in op.starts:
            r = self._leased(start, op.worker)
            if r is None:
                unstarted.append(ops.Refusal(seq=start.seq, attempt=start.attempt, claim_no=start.claim_no))
            else:
                began_at = now - span(start.ran_s)
                r.lease.started_at = r.lease.started_at or began_at
                r.lease.deadline_at, r.lease.alone = began_at + span(2 * start.timeout_s), start.alone
        return unstarted

    def _leased(self, named, worker):
        key = named.seq, named.attempt, named.claim_no, worker
        held = [r for r in self.jobs if r.lease]
        return next((r for r in held if (r.seq, r.lease.attempt, r.lease.claim_no, r.lease.worker) == key), None)

    def _is_repeat(self, outcome, worker):
        told = (outcome.attempt, worker, RECORDED_AS[outcome.__struct_config__.tag])
        tries = [t for r in self.jobs if r.seq == outcome.seq for t in r.tries]
        return not getattr(outcome, "recorded", True) or told in [(t.attempt, t.worker, t.outcome) for t in tries]

    def _settle(self, outcome, worker, now):
        kind = outcome.__struct_config__.tag
        r = self._leased(outcome, worker)
        if r is None:
            return False
        lease, ended_at = r.lease, now - span(outcome.ended_ago_s)
        if lease.started_at is None and outcome.ran_s is not None:
            lease.started_at = ended_at - span(outcome.ran_s)
        if kind == "crashed":
            lease.alone = True
            self._take_back(r, "worker_gone", ended_at, started=True)
            return True
        is_recorded = getattr(outcome, "recorded", True)
        if (kind == "released" and lease.started_at is None) or not is_recorded:
            self._give_back(r)
        failure = getattr(outcome, "failure", None)
        lease.note = outcome.reason if kind == "cancelled" else None
        if kind in ("completed", "retried", "died", "snoozed") and is_recorded:
            r.suspect = False
        if kind == "retried" or (kind == "died" and outcome.charged):
            r.attempts += 1
        series = [t for t in r.tries if t.outcome != "released"][-1:] if kind == "snoozed" and failure else []
        since = [t.ended_at for t in series if t.outcome == "snoozed" and t.failure_type == failure.error_type]
        if since and outcome.give_up_s is not None and since[0] + span(outcome.give_up_s) <= now and not lease.cancel:
            kind = "died"
        if is_recorded or lease.cancel or kind == "died" or (failure and not since):
            r.end_try(RECORDED_AS[kind], ended_at, failure)
        else:
            r.lease = None
        if kind == "completed":
            r.result = None if outcome.result is None else bytes(outcome.result).decode()
        if kind in ("completed", "died", "cancelled") or lease.cancel:
            r.finish(RECORDED_AS[kind] if kind in ("completed", "died") else "cancelled", ended_at)
        elif kind == "released":
            r.make_ready()
        else:
            r.place, r.due, r.awaits_retry = "scheduled", now + span(outcome.delay_s), kind == "retried"
            r.since = now
            r.put_off = kind == "snoozed" and failure is not None
            if kind == "snoozed" and outcome.suspension:
                self._suspend(r, outcome.suspension, lease.attempt, now)
        return True

    def _promote(self, limit, now):
        def waiting():
            return sorted((r for r in self.jobs if r.place == "scheduled"), key=lambda r: (r.due, r.seq))

        due = [r for r in waiting() if r.due <= now][: max(limit, 0)]
        for r in due:
            r.awaits_retry = False
            r.make_ready()
        return len(due), next((r.due for r in waiting()), None)

    def promote(self, op, now):
        count, next_due_at = self._promote(op.limit, now)
        return ops.Promoted(count=count, next_due_at=next_due_at)

    def _reclaim_lapsed(self, limit, now):
        reclaimed = []
        for worker in sorted(
            (w for w in self.workers if w["expires_at"] <= now), key=lambda w: (w["expires_at"], w["id"])
        ):
            if len(reclaimed) >= limit:
                break
            held = [r for r in self.jobs if r.lease and r.lease.worker == worker["id"]]
            room = limit - len(reclaimed)
            reclaimed += [self._take_back(r, "worker_gone", now) for r in held[:room]]
            if len(held) <= room:
                self.workers.remove(worker)
        return reclaimed

    def _take_back(self, r, cause, now, started=False):
        lease, failure, place = r.lease, None, "cancelled" if r.lease.cancel else "ready"
        if cause == "worker_gone" and (lease.started_at or started):
            r.suspect, r.crashes = True, r.crashes + lease.alone
            failure = own_failure(r.spec.type, "WorkerLost", "transient", "its worker is gone")
            if place == "ready" and lease.alone and r.crashes >= ops.MAX_CRASHES:
                message = f"its process died {ops.MAX_CRASHES} times while it ran alone"
                place, failure = "dead", own_failure(r.spec.type, "Crashed", "transient", message)
        if cause == "deadline_passed":
            r.attempts += 1
            failure = own_failure(r.spec.type, "JobStuck", "transient", "Job exceeded timeout threshold")
            place = "cancelled" if lease.cancel else "dead"
        if not lease.started_at and not started:
            self._give_back(r)
        r.end_try("released" if cause == "start_by_passed" else "lost", now, failure)
        if place == "ready":
            r.make_ready()
        else:
            r.finish(place, now)
        return ops.Reclaimed(
            seq=r.seq,
            id=r.spec.id,
            attempt=lease.attempt,
            worker=lease.worker,
            cause=cause,
            became=place,
            type=r.spec.type,
            tenant=r.spec.tenant,
        )

    def reclaim(self, op, now):
        reclaimed = self._reclaim_lapsed(op.limit, now)
        for r in [r for r in self.jobs if r.lease and r.lease.deadline_at <= now][: max(op.limit - len(reclaimed), 0)]:
            reclaimed.append(self._take_back(r, "deadline_passed" if r.lease.started_at else "start_by_passed", now))
        return ops.ReclaimResult(reclaimed=tuple(reclaimed))

    def renew(self, op, now):
        known = [w for w in self.workers if w["id"] == op.worker]
        if not known:
            self.workers.append({"id": op.worker, "registered_at": now, "waiting": False, "batch": 0})
        row = next(w for w in self.workers if w["id"] == op.worker)
        row |= {name: getattr(op, name) for name in ("name", "queues", "types")}
        row |= {"renewed_at": now, "expires_at": now + span(op.lease_s), "figures": dict(op.figures)}
        return ops.Renewed(now=now, expires_at=row["expires_at"], fresh=not known)

    def retire(self, op, now):
        held = [r for r in self.jobs if r.lease and r.lease.worker == op.worker]
        for r in held:
            self._release(r, now)
        self.workers = [w for w in self.workers if w["id"] != op.worker]
        return ops.Retired(released=len(held))
