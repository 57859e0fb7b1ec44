"""The state machine: clients, workers and people doing anything in any order, also what they may not."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec import Raw
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import FINAL, Job, JobSpec, Lease
from fairlane.core.limits import Limit
from fairlane.core.ops import (
    ALL_TENANTS,
    Acknowledge,
    Bury,
    Cancel,
    DeadLetterFilter,
    Deliver,
    Discard,
    DropResults,
    Emit,
    Enqueue,
    EnqueueResult,
    Fail,
    ForgetOld,
    GetDeadLetter,
    GetJob,
    GetStats,
    ListSignals,
    Mark,
    Op,
    PageAudit,
    PageDeadLetters,
    PageJobs,
    Promote,
    ReadSteps,
    Reclaim,
    RecordStep,
    Renew,
    Reprocess,
    Resolve,
    Retain,
    Retire,
    Scope,
    Start,
    TakeSignal,
    Turn,
    Want,
)
from fairlane.core.outcome import Outcome, Suspension
from fairlane.testing.conformance.samples import NO_SUCH_SEQ, NOON, OUTCOMES, Making, failure
from fairlane.testing.conformance.scene import Runs, wanting
from tests.stateful.side_by_side import SideBySide
from tests.stateful.strategies import TENANTS, bounds, job_filters, scopes, spans, specs, wants

T = TypeVar("T")
SIGNALS = ("paid", "sent")
SUSPENSIONS = (
    Suspension(n=1, name="sleep"),
    Suspension(n=2, name="sleep"),
    *(Suspension(n=n, name=name, signal=True) for n in (1, 2, 3) for name in SIGNALS),
)
LEASES_S = (1000.0, 1000.0, 15.0, 5.0)
JOB_ACTS: tuple[Callable[..., Op[Any]], ...] = (
    Cancel,
    Cancel,
    lambda **who: Fail(**who, reason="by hand", notes="n"),
    lambda **who: Fail(**who, reason="by hand", retry_delay_s=0.0),
    lambda **who: Fail(**who, reason="by hand", retry_delay_s=5.0),
    lambda **who: Bury(**who, reason="enough"),
)


class Lives(RuleBasedStateMachine):
    """Whatever happens, the store answers as the model does."""

    open_store: ClassVar[Callable[[], Runs]]

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.both = SideBySide(type(self).open_store())
        self.now, self.making = NOON, Making()
        self.specs: dict[JobId, JobSpec] = {}
        self.seqs: list[Seq] = [NO_SUCH_SEQ]
        self.workers: list[WorkerId] = [self.making.worker_id()]
        self.claim_nos: dict[WorkerId, int] = {}
        self.leases: list[tuple[WorkerId, Lease]] = []
        self.marks: list[Mark] = []
        self.touched: set[JobId] = set()
        self.jobs: tuple[Job, ...] = ()
        self.results_dropped: tuple[datetime | None, int | None] = (None, None)
        for lease_s in LEASES_S[1:]:
            self.hire(lease_s)
        self.put(data.draw(st.lists(self.new_specs([]), min_size=3, max_size=8), label="jobs"))

    def run(self, op: Op[T]) -> T:
        return self.both.run(msgspec.structs.replace(op, now=self.now))

    @rule(span=spans)
    def time_passes(self, span: float) -> None:
        self.now += timedelta(seconds=span)

    # Clients.

    def new_specs(self, known: list[JobId]) -> st.SearchStrategy[JobSpec]:
        return specs(self.making, self.now, known)

    def limits(self, data: st.DataObject) -> tuple[Limit, ...]:
        """What the code allows, told with every operation that heeds it."""
        return ()

    def put(self, jobs: list[JobSpec], capacity: int | None = None, limits: tuple[Limit, ...] = ()) -> EnqueueResult:
        result = self.run(Enqueue(jobs=tuple(jobs), capacity=capacity, limits=limits))
        for spec, receipt in zip(jobs, result.receipts, strict=False):
            if receipt.disposition == "created":
                self.specs[spec.id] = spec
                self.seqs.append(receipt.seq)
        return result

    @rule(data=st.data(), capacity=st.sampled_from((None, None, None, None, 8, 20)))
    def enqueue(self, data: st.DataObject, capacity: int | None) -> None:
        known = list(self.specs)
        jobs = data.draw(st.lists(self.new_specs(known), min_size=1, max_size=4), label="jobs")
        self.put(jobs, capacity, self.limits(data))

    @precondition(lambda self: self.specs)
    @rule(data=st.data())
    def repeat_an_enqueue(self, data: st.DataObject) -> None:
        self.put([self.specs[data.draw(st.sampled_from(list(self.specs)), label="job")]], limits=self.limits(data))

    @rule(data=st.data())
    def enqueue_under_a_free_key(self, data: st.DataObject) -> None:
        spec = data.draw(self.new_specs([]), label="job")
        spec = msgspec.structs.replace(spec, idempotency_key=None, dedup_key=spec.dedup_key or "k1", key=None)
        key = (spec.tenant, spec.type, spec.dedup_key)
        holders = [job for job in self.jobs if (job.tenant, job.type, job.dedup_key) == key and job.status not in FINAL]
        refused = self.put([spec]).refused
        assert refused or (spec.id in self.specs) is (not holders), (
            "a key is blocked that nobody holds, or free that somebody does"
        )

    # Workers.

    def a_worker(self, data: st.DataObject) -> WorkerId:
        worker: WorkerId = data.draw(st.sampled_from(self.workers[-3:] * 2 + self.workers), label="worker")
        return worker

    @rule(lease_s=st.sampled_from(LEASES_S))
    def hire(self, lease_s: float) -> None:
        self.workers.append(self.making.worker_id())
        self.run(Renew(worker=self.workers[-1], lease_s=lease_s))

    @rule(data=st.data(), lease_s=st.sampled_from((*LEASES_S, None)))
    def renew_or_retire(self, data: st.DataObject, lease_s: float | None) -> None:
        worker = self.a_worker(data)
        self.run(Retire(worker=worker) if lease_s is None else Renew(worker=worker, lease_s=lease_s))

    @rule(data=st.data())
    def claim(self, data: st.DataObject) -> None:
        self.turn(data, wanted=data.draw(st.lists(wants(self.marks), min_size=1, max_size=2), label="wants"))

    def live(self) -> list[tuple[WorkerId, Lease]]:
        holding = {(job.worker, job.seq, job.attempt) for job in self.jobs if job.worker and job.status not in FINAL}
        return [held for held in self.leases if (held[0], held[1].seq, held[1].attempt) in holding]

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def settle(self, data: st.DataObject) -> None:
        """Report on attempts that still run, and claim on."""
        live = self.live()
        worker = data.draw(st.sampled_from(live))[0]
        self.report(data, [held for held in live if held[0] == worker])

    @precondition(lambda self: self.live())
    @rule(data=st.data())
    def cancel_and_settle(self, data: st.DataObject) -> None:
        worker, lease = data.draw(st.sampled_from(self.live()))
        self.run(Cancel(scope=ALL_TENANTS, id=lease.id, by="ada"))
        self.turn(data, worker=worker, outcomes=[self.an_outcome(data, lease)])

    @precondition(lambda self: self.leases)
    @rule(data=st.data())
    def settle_late_or_for_another(self, data: st.DataObject) -> None:
        """Report on any attempt there ever was, perhaps as somebody else, or of a lost job that had the same number."""
        lost_by = data.draw(st.sampled_from((0, 0, 1)), label="claims between it and the lost one")
        some = [(worker, replace(lease, claim_no=lease.claim_no + lost_by)) for worker, lease in self.leases]
        self.report(data, some, self.a_worker(data))

    def report(self, data: st.DataObject, some: list[tuple[WorkerId, Lease]], worker: WorkerId | None = None) -> None:
        held = data.draw(st.lists(st.sampled_from(some), min_size=1, max_size=3, unique_by=lambda held: held[1].seq))
        outcomes = [self.an_outcome(data, lease) for _, lease in held]
        wanted = data.draw(st.lists(wants(self.marks), max_size=1), label="wants")
        self.turn(data, worker=worker or held[0][0], outcomes=outcomes, wanted=wanted)

    def an_outcome(self, data: st.DataObject, lease: Lease) -> Outcome:
        self.touched.add(lease.id)
        kind = data.draw(st.sampled_from(list(OUTCOMES)), label="outcome")
        options: dict[str, Any] = {
            "ran_s": data.draw(st.sampled_from((None, 0.0, 2.5))),
            "ended_ago_s": data.draw(st.sampled_from((0.0, 0.5))),
        }
        if kind in ("retried", "snoozed"):
            options["delay_s"] = data.draw(st.sampled_from((0.0, 3.0, 60.0)))
        if kind == "snoozed":
            options["recorded"] = data.draw(st.booleans())
            if kept := data.draw(st.sampled_from((None, None, "NeedsNewerCode", "MissingPrincipal")), label="put off"):
                options["failure"] = failure("not here", error_type=kept)
                options["give_up_s"] = data.draw(st.sampled_from((None, 0.0, 60.0)))
            elif suspension := data.draw(st.sampled_from((None, *SUSPENSIONS)), label="suspension"):
                options |= {"suspension": suspension, "recorded": True}
        if kind == "died":
            options["charged"] = data.draw(st.booleans())
        outcome: Outcome = OUTCOMES[kind](lease, **options)
        return outcome

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), n=st.integers(1, 3), name=st.sampled_from(SIGNALS), what=st.sampled_from((0, 1, 1, 2)))
    def step(self, data: st.DataObject, n: int, name: str, what: int) -> None:
        """Record a step, take a signal or read the steps, in an attempt that runs or in one that did."""
        worker, lease = data.draw(st.sampled_from(self.live() or self.leases[-6:]), label="lease")
        self.touched.add(lease.id)
        attempt: dict[str, Any] = {"worker": worker, "seq": lease.seq, "attempt": lease.attempt}
        attempt["claim_no"] = lease.claim_no
        if what == 0:
            self.run(RecordStep(**attempt, n=n, name=name, result=Raw(b"[1]"), ran_s=0.25))
        elif what == 1:
            self.run(TakeSignal(**attempt, n=n, name=name))
        else:
            self.run(ReadSteps(**attempt))

    @rule(data=st.data(), tenant=st.sampled_from(TENANTS), name=st.sampled_from(SIGNALS), deliver=st.booleans())
    def emit(self, data: st.DataObject, tenant: str, name: str, deliver: bool) -> None:
        op = Emit(id=self.making.job_id(), tenant=tenant, name=name, data=Raw(b'"x"'), deliver=deliver)
        self.touched |= {job.id for job in self.jobs if job.tenant == tenant}
        self.run(op)
        if data.draw(st.sampled_from((False, False, True)), label="the reply is lost"):
            self.run(op)
        self.run(ListSignals(scope=ALL_TENANTS, limit=5))

    @rule(limit=bounds, age=st.sampled_from((None, None, 60)))
    def deliver_or_forget(self, limit: int, age: int | None) -> None:
        if age is None:
            self.touched |= {job.id for job in self.jobs}
            self.run(Deliver(limit=limit))
        else:
            self.run(ForgetOld(signals_before=self.now - timedelta(seconds=age), limit=limit))

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), alone=st.booleans(), timeout_s=st.sampled_from((5.0, 300.0)), ran_s=st.sampled_from((0, 2.5)))
    def start(self, data: st.DataObject, alone: bool, timeout_s: float, ran_s: float) -> None:
        worker, lease = data.draw(st.sampled_from(self.leases[-6:]))
        started = Start(
            seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=timeout_s, ran_s=ran_s, alone=alone
        )
        self.touched.add(lease.id)
        self.turn(data, worker=worker, starts=[started])

    @rule(data=st.data(), times=st.sampled_from((1, 1, 2, 3)))
    def crash_alone(self, data: st.DataObject, times: int) -> None:
        """Whatever is first in line starts alone, and its worker is never heard of again."""
        for _ in range(times):
            self.hire(5.0)
            worker = self.workers[-1]
            self.turn(data, worker=worker, wanted=[wanting(1, start=0, queues=("default", "bulk"))])
            for holder, lease in self.leases[-1:]:
                if holder == worker:
                    started = Start(
                        seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=5000.0, alone=True
                    )
                    self.turn(data, worker=worker, starts=[started])
            self.now += timedelta(seconds=5)
            self.run(Reclaim())

    def turn(
        self,
        data: st.DataObject,
        *,
        worker: WorkerId | None = None,
        outcomes: list[Outcome] | None = None,
        starts: list[Start] | None = None,
        wanted: list[Want] | None = None,
    ) -> None:
        worker = worker or self.a_worker(data)
        self.claim_nos[worker] = claim_no = self.claim_nos.get(worker, 0) + 1
        op = Turn(
            worker=worker,
            claim_no=claim_no,
            outcomes=tuple(outcomes or ()),
            starts=tuple(starts or ()),
            wants=tuple({want.lane: want for want in wanted or ()}.values()),
            limits=self.limits(data),
            waiting=data.draw(st.booleans()),
            promote_limit=data.draw(st.sampled_from((1000, 1000, 1000, 1, 0)), label="promote_limit"),
            reclaim_limit=data.draw(st.sampled_from((100, 100, 100, 1, 0)), label="reclaim_limit"),
        )
        result = self.run(op)
        self.leases += [(worker, lease) for lease in result.leases]
        self.touched |= {lease.id for lease in result.leases} | {gone.id for gone in result.reclaimed}
        self.marks = [*self.marks, *result.marks][-8:]
        if result.leases and data.draw(st.sampled_from((False, False, True)), label="the reply is lost"):
            again = self.run(op)
            assert [lease.seq for lease in again.leases] == [lease.seq for lease in result.leases]

    # Duties.

    @rule(limit=bounds, promote=st.booleans())
    def promote_or_reclaim(self, limit: int, promote: bool) -> None:
        if promote:
            self.run(Promote(limit=limit))
        else:
            self.touched |= {gone.id for gone in self.run(Reclaim(limit=limit)).reclaimed}

    @rule(
        limit=bounds,
        finished=st.sampled_from((None, 0, 60)),
        since=st.sampled_from((None, 120)),
        closed=st.sampled_from((None, 0, 60)),
        bulk=st.sampled_from((None, 0, 120)),
        examine=st.sampled_from((1, 2, 100)),
    )
    def retain(
        self, limit: int, finished: int | None, since: int | None, closed: int | None, bulk: int | None, examine: int
    ) -> None:
        ages = {"finished_before": finished, "finished_from": since, "closed_before": closed}
        rule = {name: self.now - timedelta(seconds=age) for name, age in ages.items() if age is not None}
        by_queue = {} if bulk is None else {"bulk": self.now - timedelta(seconds=bulk)}
        self.run(Retain(limit=limit, by_queue=by_queue, examine=examine, **rule))

    @rule(limit=bounds, age=st.sampled_from((0, 60)), is_next=st.booleans())
    def drop_results(self, limit: int, age: int, is_next: bool) -> None:
        behind = self.results_dropped if is_next else (None, None)
        before = self.now - timedelta(seconds=age)
        answer = self.run(
            DropResults(type="mail.send", finished_before=before, at=behind[0], seq=behind[1], limit=limit)
        )
        self.results_dropped = (answer.at, answer.seq)

    # People.

    def any_job(self, data: st.DataObject) -> JobId:
        unfinished = [job.id for job in self.jobs if job.status not in FINAL]
        held = [job.id for job in self.jobs if job.worker and job.status not in FINAL]
        some = [*held * 3, *unfinished * 2, *self.specs, self.making.job_id()]
        job: JobId = data.draw(st.sampled_from(some), label="job")
        self.touched.add(job)
        return job

    @rule(data=st.data(), scope=scopes, act=st.sampled_from(JOB_ACTS))
    def act_on_a_job(self, data: st.DataObject, scope: Scope, act: Callable[..., Op[Any]]) -> None:
        self.run(act(scope=scope, id=self.any_job(data), by="ada"))

    def any_letter(self, data: st.DataObject) -> Seq:
        dead = [job.seq for job in self.jobs if job.status == "dead"]
        letter: Seq = data.draw(st.sampled_from(dead * 3 + self.seqs[-5:]), label="letter")
        return letter

    @precondition(lambda self: any(job.status == "dead" for job in self.jobs))
    @rule(data=st.data(), scope=scopes, act=st.sampled_from((Reprocess, Reprocess, Discard, Resolve, Acknowledge)))
    def act_on_a_letter(self, data: st.DataObject, scope: Scope, act: Callable[..., Op[Any]]) -> None:
        by = data.draw(st.sampled_from(("ada", "grace")))
        if act is not Reprocess:
            self.run(act(scope=scope, id=self.any_letter(data), by=by))
            return
        new = data.draw(st.sampled_from([self.making.job_id()] * 9 + list(self.specs)[:1]), label="new job")
        told = self.run(Reprocess(scope=scope, id=self.any_letter(data), by=by, new_job_id=new, notes="again"))
        if told.new_job and not told.repeated:
            self.seqs.append(told.new_job.seq)

    @rule(data=st.data(), scope=scopes, limit=st.sampled_from((1, 2, 50)), where=job_filters)
    def read(self, data: st.DataObject, scope: Scope, limit: int, where: Any) -> None:
        self.run(GetJob(scope=scope, id=self.any_job(data)))
        before = data.draw(st.sampled_from((None, *self.seqs)))
        self.run(PageJobs(scope=scope, where=where, before=before, limit=limit))
        letter = self.any_letter(data)
        self.run(GetDeadLetter(scope=scope, id=letter))
        filters = DeadLetterFilter(
            status=data.draw(st.sampled_from((None, "pending_review", "retried"))),
            acknowledged=data.draw(st.sampled_from((None, True, False))),
            error_type=data.draw(st.sampled_from((None, None, "Crashed", "Buried"))),
        )
        self.run(PageDeadLetters(scope=scope, where=filters, before=before, limit=limit))
        self.run(PageAudit(scope=scope, target=f"dead_letter:{letter}"))
        self.run(GetStats(scope=scope, cap=data.draw(st.sampled_from((3, 100_000)))))
        self.run(GetStats(scope=scope, rough=True, parts=("queues", "dead_letters", "types")))

    # Always.

    @invariant()
    def both_show_the_same(self) -> None:
        self.jobs = self.both.compare_everything()
        for job in self.touched:
            self.run(GetJob(scope=ALL_TENANTS, id=job))
        self.touched.clear()

    @invariant()
    def each_job_is_in_exactly_one_place(self) -> None:
        stats = self.run(GetStats(scope=ALL_TENANTS))
        unfinished = sum(queue.pending + queue.processing + queue.failed for queue in stats.queues)
        assert unfinished + stats.completed + stats.dead + stats.cancelled == len(self.jobs)
        assert len({job.id for job in self.jobs}) == len({job.seq for job in self.jobs}) == len(self.jobs)

    @invariant()
    def at_most_one_unfinished_job_holds_a_dedup_key(self) -> None:
        live = [(job.tenant, job.type, job.dedup_key) for job in self.jobs if job.dedup_key and job.status not in FINAL]
        assert len(live) == len(set(live))

    def teardown(self) -> None:
        for job in getattr(self, "jobs", ()):
            self.run(GetJob(scope=ALL_TENANTS, id=job.id))
