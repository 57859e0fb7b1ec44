"""Lives in which people pause and reset, foremen see workers die, and attempts speak of themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import (
    ALL_TENANTS,
    LOG_LINES,
    AddStats,
    BringBack,
    Cancel,
    CaughtException,
    Lapse,
    ListExceptions,
    ListPauses,
    ListWorkers,
    Note,
    PauseClaims,
    ReadSetBack,
    ReadStats,
    Renew,
    ReportExceptions,
    Reset,
    ResumeClaims,
    Retain,
    Scope,
    Start,
    StatRow,
)
from fairlane.testing.conformance.samples import NOON, OUTCOMES, crashed
from fairlane.testing.conformance.scene import wanting
from tests.stateful.machine import Lives
from tests.stateful.strategies import QUEUES, TENANTS, TYPES, scopes

PAUSABLE = [*(("queue", name) for name in QUEUES), *(("type", name) for name in TYPES)]
PAUSABLE += [("tenant", name) for name in TENANTS]

buckets = st.dictionaries(st.integers(0, 3), st.integers(1, 5), max_size=2)
stat_rows = st.builds(
    StatRow,
    minute=st.sampled_from((NOON, NOON + timedelta(minutes=1))),
    type=st.sampled_from(TYPES),
    queue=st.sampled_from(QUEUES),
    tenant=st.sampled_from(TENANTS),
    completed=st.integers(0, 3),
    failed=st.integers(0, 3),
    wait_us=st.sampled_from((0, 1, 10**12)),
    run_buckets=buckets,
    wait_buckets=buckets,
)


class InterruptedLives(Lives):
    @rule(data=st.data(), what=st.sampled_from(PAUSABLE), lasting=st.booleans(), refuse=st.booleans())
    def pause_and_claim(self, data: st.DataObject, what: tuple[Any, str], lasting: bool, refuse: bool) -> None:
        kind, name = what
        self.run(PauseClaims(kind=kind, name=name, refuse=refuse, by="ada", notes="n"))
        self.claim(data)
        if refuse:
            jobs = [self.making.job(name if kind == "type" else TYPES[0], **({} if kind == "type" else {kind: name}))]
            jobs += data.draw(st.lists(self.new_specs(list(self.specs)), max_size=2), label="jobs")
            assert self.put(jobs).paused is not None
        if refuse or not lasting:
            self.run(ResumeClaims(kind=kind, name=name, by="grace"))

    @rule(what=st.sampled_from(PAUSABLE))
    def resume(self, what: tuple[Any, str]) -> None:
        paused = self.run(ListPauses()).pauses
        kind, name = (paused[0].kind, paused[0].name) if paused else what
        self.run(ResumeClaims(kind=kind, name=name, by="ada", notes="n"))

    @rule(data=st.data(), ahead_s=st.sampled_from((40.0, 3600.0)), noticed=st.booleans(), gone=st.booleans())
    def the_clock_goes_ahead_and_is_set_back(
        self, data: st.DataObject, ahead_s: float, noticed: bool, gone: bool
    ) -> None:
        self.now += timedelta(seconds=ahead_s)
        jobs = data.draw(st.lists(self.new_specs(list(self.specs)), max_size=3), label="jobs")
        self.put(jobs)
        if not gone:
            self.run(Renew(worker=self.workers[-1], lease_s=15.0))
            for worker, lease in self.running(data)[:2]:
                self.touched.add(lease.id)
                self.turn(data, worker=worker, outcomes=[data.draw(st.sampled_from(list(OUTCOMES.values())))(lease)])
        self.now -= timedelta(seconds=ahead_s)
        done = self.run(BringBack(behind_s=ahead_s if noticed else None))
        assert not done.more
        self.run(ReadSetBack())
        self.claim(data)

    def running(self, data: st.DataObject) -> list[tuple[WorkerId, Lease]]:
        """Attempts that run: whoever is there, else some that begin now."""
        if not self.live():
            self.hire(1000.0)
            self.turn(data, worker=self.workers[-1], wanted=[wanting(2, start=1, queues=QUEUES)])
            self.jobs = self.both.compare_everything()
        return self.live()

    @rule(data=st.data(), cancelled=st.booleans())
    def reset(self, data: st.DataObject, cancelled: bool) -> None:
        for _, lease in self.running(data)[:1]:
            self.touched.add(lease.id)
            if cancelled:
                self.run(Cancel(scope=ALL_TENANTS, id=lease.id, by="ada"))
            self.run(Reset(scope=data.draw(scopes), id=lease.id, by="grace", notes="n"))
        self.run(Reset(scope=ALL_TENANTS, id=self.any_job(data), by="grace"))

    @rule(data=st.data())
    def lapse(self, data: st.DataObject) -> None:
        """A foreman sees a worker die and says what it knows had begun, right or wrong."""
        holders = [worker for worker, _ in self.running(data)]
        worker = data.draw(st.sampled_from(holders * 3 + self.workers[-2:]), label="worker")
        known = [lease for holder, lease in self.live() if holder == worker] * 2 + [lease for _, lease in self.leases]
        begun = (
            st.lists(st.sampled_from(known), max_size=3, unique_by=lambda lease: lease.seq) if known else st.just([])
        )
        told = data.draw(begun, label="begun")
        starts = [
            Start(
                seq=lease.seq,
                attempt=lease.attempt,
                claim_no=lease.claim_no,
                timeout_s=5.0,
                alone=data.draw(st.booleans()),
            )
            for lease in told
        ]
        gone = self.run(Lapse(worker=worker, starts=tuple(starts))).reclaimed
        self.touched |= {taken.id for taken in gone}

    @rule(data=st.data(), ran_s=st.sampled_from((None, 2.5)))
    def report_a_crash(self, data: st.DataObject, ran_s: float | None) -> None:
        for worker, lease in self.one_of(data, self.running(data)):
            self.touched.add(lease.id)
            self.turn(data, worker=worker, outcomes=[crashed(lease, ran_s=ran_s, ended_ago_s=0.5)])

    @rule(data=st.data(), progress=st.sampled_from((None, 0.0, 0.5, 1.0)), lines=st.sampled_from((0, 1, 2, LOG_LINES)))
    def note(self, data: st.DataObject, progress: float | None, lines: int) -> None:
        for holder, lease in self.one_of(data, self.running(data)):
            worker = data.draw(st.sampled_from((holder, holder, holder, self.workers[0])), label="who")
            self.touched.add(lease.id)
            log = tuple(f"line {nth}" for nth in range(lines))
            self.run(
                Note(
                    worker=worker,
                    seq=lease.seq,
                    attempt=lease.attempt,
                    claim_no=lease.claim_no,
                    progress=progress,
                    log=log,
                )
            )

    def one_of(self, data: st.DataObject, running: list[tuple[WorkerId, Lease]]) -> list[tuple[WorkerId, Lease]]:
        """One that runs, or now and then one that did."""
        some = running * 6 + self.leases[-3:]
        return [data.draw(st.sampled_from(some), label="attempt")] if some else []

    @rule(data=st.data(), batch=st.integers(1, 4), rows=st.lists(stat_rows, max_size=3))
    def tell_figures(self, data: st.DataObject, batch: int, rows: list[StatRow]) -> None:
        """Small batch numbers: most are told again sooner or later."""
        worker = self.a_worker(data)
        self.run(AddStats(worker=worker, batch=batch, rows=tuple(rows)))
        if data.draw(st.booleans(), label="says more"):
            self.run(Renew(worker=worker, lease_s=15.0, name="x", queues=QUEUES, figures={"rss_bytes": float(batch)}))
        if data.draw(st.sampled_from((False, False, False, True)), label="old figures go"):
            self.run(Retain(stats_before=NOON + timedelta(minutes=1), limit=0))
        self.run(ReadStats(since=NOON, until=NOON + timedelta(hours=1), tenant=data.draw(st.sampled_from((None, "a")))))

    @rule(data=st.data(), count=st.sampled_from((0, 1, 3, 25)), scope=scopes)
    def tell_exceptions(self, data: st.DataObject, count: int, scope: Scope) -> None:
        caught = tuple(
            CaughtException(
                id=self.making.job_id(),
                task=TYPES[0],
                tenant=data.draw(st.sampled_from(TENANTS)),
                attempt=1,
                type="OSError",
                error="no",
                error_class="transient",
                is_final=False,
                at=self.now + timedelta(seconds=nth % 3),
            )
            for nth in range(count)
        )
        self.run(ReportExceptions(worker=self.a_worker(data), exceptions=caught))
        self.run(ListExceptions(scope=scope))

    @invariant()
    def workers_and_pauses_look_the_same(self) -> None:
        workers = self.run(ListWorkers()).workers
        held = [job for job in self.jobs if job.worker is not None and job.finished_at is None]
        assert sum(worker.leases for worker in workers) == len(held)

    def teardown(self) -> None:
        super().teardown()
        if hasattr(self, "both"):
            self.run(ListPauses())
