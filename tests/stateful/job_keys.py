"""Lives of jobs with keys: held at them, let in, in order and at a rate, set limits to and freed by people."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule

from fairlane.core.ids import JobId
from fairlane.core.job import FINAL, JobSpec
from fairlane.core.job_keys import JobKey, OnConflict
from fairlane.core.limits import NO_LIMIT, Limit, Rate
from fairlane.core.ops import (
    ALL_TENANTS,
    ClearLimit,
    FreePlace,
    ListKeys,
    PauseLimit,
    Scope,
    SetLimit,
    Why,
)
from fairlane.testing.conformance.scene import wanting
from tests.stateful.limits import LimitedLives
from tests.stateful.strategies import QUEUES, job_keys, scopes, specs

NAMES = ("shop", "shop", "shop", "crm", "shop:1")
names = st.sampled_from(NAMES)
limits_of_keys = st.builds(
    lambda name, running, rate: Limit(kind="key", name=name, running=2 if running is rate else running, rate=rate),
    names,
    st.sampled_from((None, 1, 2, 0, NO_LIMIT)),
    st.sampled_from((None, None, Rate(1, 10.0), Rate(2, 10.0), Rate(NO_LIMIT, 10.0))),
)


class KeyedLives(LimitedLives):
    @initialize()
    def have_no_limits_of_the_code(self) -> None:
        """They are the business of other lives; here they would hide keys."""
        self.given = ()

    def new_specs(self, known: list[JobId]) -> st.SearchStrategy[JobSpec]:
        return specs(self.making, self.now, known, st.one_of(st.none(), job_keys, job_keys, job_keys))

    @rule(data=st.data(), limit=limits_of_keys)
    def set_a_limit_of_keys_and_claim(self, data: st.DataObject, limit: Limit) -> None:
        self.run(SetLimit(limit=limit, by="ada", notes="n"))
        self.claim_all(data)

    @rule(data=st.data(), name=names, for_s=st.sampled_from((3.0, 10.0)))
    def pause_a_limit_of_keys_and_claim(self, data: st.DataObject, name: str, for_s: float) -> None:
        self.run(PauseLimit(kind="key", name=name, for_s=for_s, by="worker"))
        self.claim_all(data)

    @rule(name=names)
    def clear_a_limit_of_keys(self, name: str) -> None:
        self.run(ClearLimit(kind="key", name=name, by="grace"))

    @rule(data=st.data())
    def claim_all(self, data: st.DataObject) -> None:
        """Whatever may run."""
        self.turn(data, worker=self.workers[0], wanted=[wanting(20, queues=QUEUES)])

    @rule(data=st.data())
    def claim_all_before_and_after_the_period_of_a_rate(self, data: st.DataObject) -> None:
        for span in (timedelta(0), timedelta(seconds=10, microseconds=-1), timedelta(microseconds=1)):
            self.now += span
            self.claim_all(data)

    @rule(data=st.data(), key=job_keys, on_conflict=st.sampled_from(("discard", "replace", "cancel_running", "wait")))
    def crowd_a_key(self, data: st.DataObject, key: JobKey, on_conflict: OnConflict) -> None:
        """Several jobs of one tenant and call, and perhaps a Turn that lets them in and claims nothing."""
        jobs = data.draw(st.lists(self.new_specs([]), min_size=2, max_size=4), label="jobs")
        last = msgspec.structs.replace(key, on_conflict=on_conflict)
        crowd = [msgspec.structs.replace(job, tenant="a", key=last if job is jobs[-1] else key) for job in jobs]
        self.put(crowd, limits=self.limits(data))
        if data.draw(st.booleans(), label="let in"):
            self.turn(data)

    @rule(data=st.data(), scope=scopes)
    def free_a_place_and_claim(self, data: st.DataObject, scope: Scope) -> None:
        dead = [job.id for job in self.jobs if job.key and job.status == "dead"]
        live = [job.id for job in self.jobs if job.key and job.status not in FINAL]
        some = dead + live * 2
        job = data.draw(st.sampled_from(some), label="job") if some else self.making.job_id()
        self.touched.add(job)
        self.run(FreePlace(scope=scope, id=job, by="ada", notes="n"))
        self.claim_all(data)

    @rule(scope=scopes, name=st.sampled_from((None, "shop", "sho", "shop:1")), limit=st.sampled_from((50, 1, 2)))
    def list_keys(self, scope: Scope, name: str | None, limit: int) -> None:
        self.run(ListKeys(scope=scope, name=name, limit=limit))

    @invariant()
    def keys_look_the_same(self) -> None:
        self.run(ListKeys(scope=ALL_TENANTS))
        for key in ("shop:1", "crm:1"):
            self.run(ListKeys(scope=ALL_TENANTS, key=key))

    @invariant()
    def every_unfinished_job_with_a_key_knows_why_it_waits(self) -> None:
        for job in self.jobs:
            if job.key and job.status not in FINAL:
                self.run(Why(scope=ALL_TENANTS, id=job.id))
