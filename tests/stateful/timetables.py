"""The state machine of what workers share beside jobs: schedules fired by many, breakers tripped by many."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from fairlane.core.breaker import BreakerPolicy
from fairlane.core.ids import WorkerId
from fairlane.core.job import FINAL, Job, JobSpec
from fairlane.core.ops import (
    ALL_TENANTS,
    Admit,
    Cancel,
    DeclareSchedules,
    Fire,
    ForceBreaker,
    ListBreakers,
    ListSchedules,
    Op,
    PauseSchedule,
    Planned,
    RemoveSchedule,
    Renew,
    Report,
    ResetBreaker,
    Retain,
    RunSchedule,
    Turn,
)
from fairlane.core.schedules import Schedule, ScheduleSpec
from fairlane.testing.conformance.samples import NOON, Making, completed
from fairlane.testing.conformance.scene import Runs, wanting
from tests.stateful.side_by_side import SideBySide

T = TypeVar("T")
STEP = timedelta(minutes=1)
NAMES = ("hourly", "nightly")
BREAKERS = ("smtp", "search")

specs = st.builds(
    ScheduleSpec,
    name=st.sampled_from(NAMES),
    type=st.just("report.make"),
    cron=st.sampled_from(("* * * * *", "*/2 * * * *")),
    overlap=st.sampled_from(("skip", "queue", "allow")),
    tenant=st.sampled_from(("system", "a")),
)
names = st.sampled_from((*NAMES * 4, "nobody's"))
policies = st.builds(
    BreakerPolicy,
    threshold=st.sampled_from((1, 2, 3)),
    cooldown_s=st.sampled_from((0.5, 30.0, 60.0)),
    probes=st.sampled_from((1, 2)),
)


class Timetables(RuleBasedStateMachine):
    """Whoever fires, trips or pauses what in whatever order, the store answers as the model does."""

    open_store: ClassVar[Callable[[], Runs]]

    @initialize(declared=st.tuples(specs, specs))
    def begin(self, declared: tuple[ScheduleSpec, ...]) -> None:
        self.both = SideBySide(type(self).open_store())
        self.now, self.making = NOON, Making()
        self.claim_no = 0
        self.worker: WorkerId = self.making.worker_id()
        self.seen: list[Schedule] = []
        self.schedules: tuple[Schedule, ...] = ()
        self.jobs: tuple[Job, ...] = ()
        self.run(Renew(worker=self.worker, lease_s=1e6))
        for spec in declared:
            self.declare([spec], "code", False, None)

    def run(self, op: Op[T]) -> T:
        return self.both.run(msgspec.structs.replace(op, now=self.now))

    @rule(span_s=st.sampled_from((0.5, 1.0, 30.0, 60.0, 150.0)))
    def time_passes(self, span_s: float) -> None:
        self.now += timedelta(seconds=span_s)

    # Schedules.

    @rule(
        declared=st.lists(specs, max_size=2, unique_by=lambda spec: spec.name),
        source=st.sampled_from(("code", "code", "person")),
        prune=st.sampled_from((False, False, False, True)),
        by=st.sampled_from((None, "ada")),
    )
    def declare(self, declared: list[ScheduleSpec], source: Any, prune: bool, by: str | None) -> None:
        planned = tuple(Planned(spec=spec, next_at=self.next_nominal()) for spec in declared)
        self.run(DeclareSchedules(schedules=planned, source=source, prune=prune, by=by))

    def next_nominal(self) -> datetime:
        return NOON + ((self.now - NOON) // STEP + 1) * STEP

    @rule(data=st.data(), span_s=st.sampled_from((0.0, 60.0, 60.0, 60.0, 150.0)))
    def fire_what_is_due(self, data: st.DataObject, span_s: float) -> None:
        self.now += timedelta(seconds=span_s)
        for schedule in self.run(ListSchedules(due=True)).schedules:
            self.seen.append(schedule)
            self.fire(data, schedule)

    @rule(data=st.data())
    def fire_what_somebody_saw_due_earlier(self, data: st.DataObject) -> None:
        if self.seen:
            self.fire(data, data.draw(st.sampled_from(self.seen[-4:]), label="seen"))

    def fire(self, data: st.DataObject, schedule: Schedule) -> None:
        expected_at = schedule.next_at
        assert expected_at is not None
        due = [expected_at + nth * STEP for nth in range((self.now - expected_at) // STEP + 1)] or [expected_at]
        made_up_for = data.draw(st.sampled_from((due[-1:], due[-1:], due[-3:], [])), label="made up for")
        self.run(
            Fire(
                name=schedule.spec.name,
                expected_at=expected_at,
                jobs=tuple(self.job_of(schedule, nominal) for nominal in made_up_for),
                fired_at=due[-1],
                next_at=data.draw(st.sampled_from((due[-1] + STEP,) * 5 + (None,)), label="next"),
            )
        )

    def job_of(self, schedule: Schedule, nominal: datetime) -> JobSpec:
        key = f"schedule:{schedule.spec.name}:{nominal.isoformat()}"
        return self.making.job("report.make", tenant=schedule.spec.tenant, idempotency_key=key)

    @rule(data=st.data(), name=names, act=st.sampled_from(("resume", "pause", "run", "run", "resume", "remove")))
    def act_on_a_schedule(self, data: st.DataObject, name: str, act: str) -> None:
        if act == "run":
            key = data.draw(st.sampled_from((None, "by-hand")))
            self.run(RunSchedule(name=name, job=self.making.job("report.make", idempotency_key=key), by="ada"))
        elif act == "remove":
            self.run(RemoveSchedule(name=name, by="ada", notes="n"))
        else:
            self.run(PauseSchedule(name=name, by="ada", paused=act == "pause", next_at=self.next_nominal()))

    @rule(data=st.data())
    def end_jobs(self, data: st.DataObject) -> None:
        self.claim_no += 1
        wants = (wanting(data.draw(st.integers(1, 2))),)
        leases = self.run(Turn(worker=self.worker, claim_no=self.claim_no, wants=wants)).leases
        if data.draw(st.booleans(), label="they go on"):
            return
        if leases:
            ended = tuple(completed(lease) for lease in leases)
            self.run(Turn(worker=self.worker, claim_no=self.claim_no, outcomes=ended))
        unfinished = [job.id for job in self.jobs if job.status not in FINAL]
        if unfinished and data.draw(st.booleans(), label="one is cancelled"):
            self.run(Cancel(scope=ALL_TENANTS, id=data.draw(st.sampled_from(unfinished)), by="ada"))
        if data.draw(st.sampled_from((False, False, True)), label="retention"):
            self.run(Retain(finished_before=self.now))

    # Breakers.

    @rule(name=st.sampled_from(BREAKERS), policy=policies, times=st.integers(1, 3))
    def ask(self, name: str, policy: BreakerPolicy, times: int) -> None:
        for _ in range(times):
            self.run(Admit(name=name, policy=policy))

    @rule(name=st.sampled_from(BREAKERS), policy=policies, failures=st.integers(0, 3), successes=st.integers(0, 2))
    def report(self, name: str, policy: BreakerPolicy, failures: int, successes: int) -> None:
        self.run(Report(name=name, policy=policy, failures=failures, successes=successes))

    @rule(name=st.sampled_from(BREAKERS), policy=policies)
    def trip_wait_and_ask(self, name: str, policy: BreakerPolicy) -> None:
        self.run(Report(name=name, policy=policy, failures=policy.threshold))
        self.now += timedelta(seconds=policy.cooldown_s)
        self.run(Admit(name=name, policy=policy))

    @rule(name=st.sampled_from(BREAKERS), act=st.sampled_from((ResetBreaker, ForceBreaker)))
    def act_on_a_breaker(self, name: str, act: Callable[..., Op[Any]]) -> None:
        self.run(act(name=name, by="grace"))

    # Always.

    @invariant()
    def both_show_the_same(self) -> None:
        self.schedules = self.run(ListSchedules()).schedules
        self.run(ListBreakers())
        self.jobs = self.both.compare_everything()

    @invariant()
    def each_nominal_time_has_one_job(self) -> None:
        keys = [(job.tenant, job.idempotency_key) for job in self.jobs]
        assert len(keys) == len(set(keys))
