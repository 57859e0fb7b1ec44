"""What people are told of why a job waits: every sentence of the table, played on every store."""

from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from fairlane.client.admin import explanation
from fairlane.client.admin.explanation import TABLE, Reason, explain
from fairlane.client.steps import run_steps
from fairlane.core.ids import JobId
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import ForceBreaker, PauseClaims, Renew
from fairlane.core.outcome import Suspension
from fairlane.core.workflows import RELEASE_LIMIT
from fairlane.errors import JobNotFound
from fairlane.testing.conformance.limits import claimed, pause_limit, queue, rate, task, tenant
from fairlane.testing.conformance.samples import died, failure, retried, snoozed
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.workflows import Flow

pytestmark = pytest.mark.requirement("I2", "L15", "D27")


class Played:
    """A scene with a live worker for everything, and tasks that are registered here."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.limits: tuple[Limit, ...] = ()
        self.tasks: dict[str, Any] = {}
        for name in ("mail.send", "a", "b", "c"):
            self.register(name)
        self.worker = scene.hire(6000)

    def register(self, name: str, **definition: Any) -> None:
        given = {"breaker": None, "isolated": False, **definition}
        self.tasks[name] = SimpleNamespace(definition=SimpleNamespace(**given))

    def reasons(self, job: JobId) -> tuple[Reason, ...]:
        return run_steps(self.scene, explain(job, None, self.limits, self.tasks)).reasons  # type: ignore[arg-type]

    def put(self, place: str = "ready", **options: Any) -> JobId:
        """A job that waits in this place."""
        if place == "held":
            self.limits = (tenant("acme", waiting=0, when_full="hold"),)
            return self.scene.enqueue(self.scene.job(tenant="acme", **options), limits=self.limits).receipts[0].id
        return self.scene.put(tenant="acme", delay_s=60 if place == "scheduled" else 0, **options).id

    def lease(self, **options: Any) -> Any:
        job = self.put(**options)
        [lease] = self.scene.claim(self.worker)
        assert lease.id == job
        return lease

    def settled(self, outcome: Callable[..., Any], *more: Any, **options: Any) -> JobId:
        lease = self.lease()
        assert not self.scene.settle(self.worker, outcome(lease, *more, **options)).refused
        return lease.id

    def letter(self, act: str) -> JobId:
        lease = self.scene.dead()
        getattr(self.scene, act)(lease.seq)
        return lease.id

    def at_key(self, count: int = 2, **said: Any) -> list[JobId]:
        """Jobs with one key."""
        return [self.put(key=JobKey(value="customer:42", **said)) for _ in range(count)]

    def flow(self) -> Flow:
        flow = Flow(self.scene, {"a": [], "b": ["a"], "c": ["b"]})
        flow.worker = self.worker
        return flow.put()

    def wide(self) -> Flow:
        """Nodes behind one gate, one more than one commit lets go."""
        flow = Flow(self.scene, {"a": [], **{f"b{n}": ["a"] for n in range(RELEASE_LIMIT + 1)}}, name="wide")
        flow.worker = self.worker
        flow.put()
        assert flow.claim(1) == ["a"]
        return flow

    def without_workers(self) -> None:
        self.scene.retire(self.worker)

    def with_worker(self, **serving: Any) -> None:
        self.scene.retire(self.worker)
        self.scene.run(Renew(worker=self.scene.making.worker_id(), lease_s=6000, name="w", **serving))


Story = tuple[Callable[[Played], JobId], str]
"""How the job comes there, and what is said of it."""
STORIES: dict[tuple[str, str], Story] = {}


def story(places: str, code: str, says: str) -> Callable[[Callable[..., JobId]], Callable[..., JobId]]:
    def kept(play: Callable[..., JobId]) -> Callable[..., JobId]:
        many = len(places.split()) > 1
        for place in places.split():
            STORIES[place, code] = (lambda p, place=place: play(p, place)) if many else play, says  # type: ignore[misc]
        return play

    return kept


@story("completed", "completed", "it does not wait: it completed 0.0 s ago")
def _(p: Played) -> JobId:
    return p.scene.finished().id


@story("cancelled", "cancelled", "it does not wait: it was cancelled 5.0 s ago")
def _(p: Played) -> JobId:
    job = p.put()
    p.scene.cancel(job)
    p.scene.later(5)
    return job


@story(
    "dead", "pending_review", "it does not run again by itself: it is dead, and its dead letter # waits for a person"
)
def _(p: Played) -> JobId:
    return p.scene.dead().id


@story("dead", "retried", "it is dead; its dead letter # was reprocessed as job")
def _(p: Played) -> JobId:
    return p.letter("reprocess")


@story("dead", "resolved", "it is dead; somebody resolved its dead letter #")
def _(p: Played) -> JobId:
    return p.letter("resolve")


@story("dead", "discarded", "it is dead; somebody discarded its dead letter #")
def _(p: Played) -> JobId:
    return p.letter("discard")


@story(
    "leased",
    "worker_lost",
    "the worker that claimed it has not been heard of for longer than its lease: a live worker takes the job back",
)
def _(p: Played) -> JobId:
    _, lease = p.scene.leased()
    p.scene.later(16)
    return lease.id


@story("leased", "stopping", "it was asked to stop and has not ended yet")
def _(p: Played) -> JobId:
    lease = p.lease()
    p.scene.cancel(lease.id)
    return lease.id


@story("leased", "claimed", "a worker has claimed it and it begins when a slot is free there")
def _(p: Played) -> JobId:
    job = p.put()
    p.scene.prefetch(p.worker)
    return job


def _after_a_crash(p: Played) -> JobId:
    """Ready again after the worker process that ran it was lost."""
    _, lease = p.scene.leased()
    p.scene.later(16)
    assert [one.id for one in p.scene.reclaim()] == [lease.id]
    return lease.id


@story("leased", "alone", "it is running, for 3.0 s, alone in a process: an attempt before ended with its process")
def _(p: Played) -> JobId:
    job = _after_a_crash(p)
    [lease] = p.scene.prefetch(p.worker)
    p.scene.start(p.worker, lease, alone=True)
    p.scene.later(3)
    return job


@story("leased", "isolated", "it is running, for 3.0 s, in a process of its own")
def _(p: Played) -> JobId:
    p.register("mail.send", isolated=True)
    lease = p.lease()
    p.scene.later(3)
    return lease.id


@story("leased", "running", "it is running, for 2 min")
def _(p: Played) -> JobId:
    lease = p.lease()
    p.scene.later(120)
    return lease.id


@story("ready scheduled held", "paused", 'tenant "acme" is paused by ada: owes money')
def _(p: Played, place: str) -> JobId:
    p.scene.run(PauseClaims(kind="tenant", name="acme", by="ada", notes="owes money"))
    return p.put(place)


@story(
    "held",
    "dead_parent",
    'it waits for node "a" of its workflow, which is dead: it goes on when somebody deals with dead letter #',
)
def _(p: Played) -> JobId:
    flow = p.flow()
    assert flow.claim() == ["a"]
    flow.die("a")
    return flow.job("c")


@story("held", "parents", 'it waits for nodes of its workflow: "b" (waits itself)')
def _(p: Played) -> JobId:
    return p.flow().job("c")


@story(
    "held",
    "not_known",
    "which nodes of its workflow it waits for is not known here: the workflow has more than 5,000",
)
def _(p: Played) -> JobId:
    return p.wide().job(f"b{RELEASE_LIMIT}")


@story("held", "parents_ended", "the nodes that it waited for have ended: a live worker lets it go on")
def _(p: Played) -> JobId:
    flow = p.wide()
    flow.complete("a")
    return flow.job(f"b{RELEASE_LIMIT}")


@story("held", "not_needed", "the nodes that it waited for have ended so that it does not run: a live worker ends it")
def _(p: Played) -> JobId:
    flow = p.wide()
    flow.stop("a")
    return flow.job(f"b{RELEASE_LIMIT}")


@story(
    "held", "tenant_full", 'its tenant is at its limit of 0 jobs in queue "default"; it continues when there is room'
)
def _(p: Played) -> JobId:
    return p.put("held")


@story("held", "limit_lifted", "it was held at its tenant's limit, which is lifted: a live worker lets it go on")
def _(p: Played) -> JobId:
    job = p.put("held")
    p.limits = ()
    return job


@story(
    "ready scheduled",
    "needs",
    "it needs newer code and has been put off, uncharged, for 20.0 s: version 3 is not known",
)
def _(p: Played, place: str) -> JobId:
    reason = failure("version 3 is not known", error_type="NeedsNewerCode", error_class="non_retryable")
    job = p.settled(snoozed, 20 if place == "ready" else 60, recorded=False, failure=reason, give_up_s=86_400.0)
    p.scene.later(20)
    p.scene.promote()
    return job


@story("scheduled", "offered", "it is offered to a worker again in 40.0 s")
def _(p: Played) -> JobId:
    job = STORIES["scheduled", "needs"][0](p)
    for _ in range(2):  # once recorded, it is put off again without a record
        p.scene.later(60)
        p.scene.promote()
        [lease] = p.scene.claim(p.worker)
        reason = failure("version 3 is not known", error_type="NeedsNewerCode", error_class="non_retryable")
        p.scene.settle(p.worker, snoozed(lease, 60, recorded=False, failure=reason, give_up_s=86_400.0))
    p.scene.later(20)
    return job


@story("scheduled", "signal", 'it waits for the signal "paid" with the key "7" until 2026-03-01 13:00:00 UTC')
def _(p: Played) -> JobId:
    return p.settled(snoozed, 3600.0, suspension=Suspension(n=1, name="paid", signal=True, key="7"))


@story("scheduled", "retry", "it failed and is tried again in 2.0 s")
def _(p: Played) -> JobId:
    return p.settled(retried, 2.0)


@story("scheduled", "rate_limited", "what it calls limits its rate: it is tried again in 2 min")
def _(p: Played) -> JobId:
    return p.settled(retried, 120.0, failure(error_class="rate_limited"))


@story("scheduled", "asleep", 'it sleeps in its step "a day" and goes on in 24.0 h')
def _(p: Played) -> JobId:
    return p.settled(snoozed, 86_400.0, suspension=Suspension(n=1, name="a day"))


@story("scheduled", "delay", "it is scheduled in 1 min")
def _(p: Played) -> JobId:
    return p.put("scheduled")


@story("scheduled", "snoozed", "its last attempt put it off, uncharged: it runs again in 30.0 s")
def _(p: Played) -> JobId:
    return p.settled(snoozed)


@story(
    "scheduled",
    "put_off",
    "it was put off before it ran, as by an open breaker, and is due in 30.0 s; by what is not kept",
)
def _(p: Played) -> JobId:
    return p.settled(snoozed, recorded=False)


@story("scheduled", "due", "it is due: a live worker makes it ready")
def _(p: Played) -> JobId:
    job = p.put("scheduled")
    p.scene.later(60)
    return job


@story("ready", "full", 'queue "default" has 1 of 1 running')
def _(p: Played) -> JobId:
    p.limits = (queue(running=1),)
    p.lease()
    return p.put()


@story("ready", "rate", 'task "mail.send" has used its rate of 1/min; the next one in 50.0 s')
def _(p: Played) -> JobId:
    p.limits = (task(rate=rate(1)),)
    p.put()
    assert len(claimed(p.scene, *p.limits)) == 1
    p.scene.later(10)
    return p.put()


@story("ready", "limit_paused", 'task "mail.send" is paused for 30.0 s')
def _(p: Played) -> JobId:
    pause_limit(p.scene, "type", "mail.send", 30)
    return p.put()


@story("ready scheduled", "breaker", 'breaker "smtp" is open')
def _(p: Played, place: str) -> JobId:
    p.register("mail.send", breaker=SimpleNamespace(name="smtp"))
    p.scene.run(ForceBreaker(name="smtp", by="ada"))
    return p.put(place)


@story("ready scheduled held", "no_worker", 'no live worker serves queue "default"')
def _(p: Played, place: str) -> JobId:
    p.with_worker(queues=("bulk",))
    return p.put(place)


@story("ready scheduled held", "no_task", 'no live worker knows task "mail.send"; 1 serve its queue')
def _(p: Played, place: str) -> JobId:
    p.with_worker(types=("x",))
    return p.put(place)


@story("ready", "suspect", "an attempt of it ended with its process: it runs alone, in a process of its own")
def _(p: Played) -> JobId:
    return _after_a_crash(p)


@story(
    "ready scheduled",
    "task_not_known",
    "its task is not registered here: whether a breaker, or limits of its code, keep it is not known",
)
def _(p: Played, place: str) -> JobId:
    return p.put(place, type="elsewhere")


@story("ready", "in_line", "it is ready: 1 of its tenant before it, 1 other tenant has ready jobs, too, 1 more urgent")
def _(p: Played) -> JobId:
    p.put()
    p.scene.put(tenant="bolt")
    p.scene.put(tenant="bolt", priority=1)
    return p.put()


SAID = [(place, row.code) for row in TABLE for place in row.places]


@story(
    "held", "key", "it is second of 2 at customer:42, which runs 1 at a time; job # has its place, running for 3.0 s"
)
def _(p: Played) -> JobId:
    jobs = p.at_key(3)
    p.scene.claim(p.worker)
    p.scene.later(3)
    return jobs[2]


@story(
    "held",
    "key_ordered",
    "it is next at customer:42, which runs one at a time, in order; job # has its place, let in and not claimed yet",
)
def _(p: Played) -> JobId:
    jobs = p.at_key(ordered=True)
    p.scene.turn(p.worker)
    return jobs[1]


@story(
    "held",
    "key_again",
    "it is next at customer:42, which runs one at a time, in order; job # has its place, to run again in 5.0 s",
)
def _(p: Played) -> JobId:
    jobs = p.at_key(ordered=True)
    [lease] = p.scene.claim(p.worker)
    p.scene.settle(p.worker, retried(lease, delay_s=5.0))
    return jobs[1]


@story(
    "held",
    "key_dead",
    "it is next at customer:42, which runs one at a time, in order; dead letter # holds the line until somebody deals",
)
def _(p: Played) -> JobId:
    jobs = p.at_key(ordered=True)
    [lease] = p.scene.claim(p.worker)
    p.scene.settle(p.worker, died(lease))
    return jobs[1]


@story("held", "key_closed", "it is first of 2 at customer:42, which has no places")
def _(p: Played) -> JobId:
    return p.at_key(running=0)[0]


@story("held", "key_paused", "it is first of 2 at customer:42, and keys of that name are paused for 40.0 s")
def _(p: Played) -> JobId:
    pause_limit(p.scene, "key", "customer", 40.0)
    return p.at_key()[0]


@story("held", "key_rate", "it is next at customer:42, and waits for its rate of 1/min")
def _(p: Played) -> JobId:
    jobs = p.at_key(running=2, rate=Rate(1, 60.0))
    p.scene.claim(p.worker)
    return jobs[1]


@story("held", "key_free", "it is next at customer:42: a live worker lets it in")
def _(p: Played) -> JobId:
    return p.at_key(1)[0]


@pytest.mark.parametrize(("place", "code"), SAID, ids=[f"{place} {code}" for place, code in SAID])
def test_whatever_can_be_said_of_a_waiting_job_is_said_when_it_is_so(
    scene: Scene, place: str, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play, says = STORIES[place, code]
    if code == "not_known":
        monkeypatch.setattr(explanation, "MOST_NODES", 1000)
    played = Played(scene)
    found = played.reasons(play(played))
    [said] = [reason for reason in found if reason.code == code]
    assert re.sub(r"(letter|job) \d+", r"\1 #", said.says).startswith(says)
    assert bool(said.helps) is (code in HELPED)
    expected = BESIDES.get((place, code), {"ready": ["in_line"]}.get(place, []))
    assert [reason.code for reason in found if reason.code != code] == [one for one in expected if one != code]


HELPED = {
    *("pending_review", "worker_lost", "paused", "dead_parent", "not_known", "tenant_full", "needs", "signal", "full"),
    *("rate", "breaker", "no_worker", "no_task", "task_not_known"),
    *("key", "key_ordered", "key_again", "key_dead", "key_closed", "key_rate"),
}
"""Where a person can do something."""
BESIDES = {
    **{("scheduled", code): ["delay"] for code in ("paused", "breaker", "no_worker", "no_task", "task_not_known")},
    **{("held", code): ["tenant_full"] for code in ("paused", "no_worker", "no_task")},
    **{("leased", code): ["running"] for code in ("worker_lost", "stopping")},
    ("held", "dead_parent"): ["parents"],
    ("scheduled", "needs"): ["offered"],
    ("scheduled", "offered"): ["needs"],
    ("ready", "in_line"): [],
}
"""What is said as well; nothing else is."""


def test_every_place_of_a_removed_or_unknown_job_is_that_it_is_not_here(scene: Scene) -> None:
    with pytest.raises(JobNotFound, match="never enqueued, past retention, or another tenant's"):
        Played(scene).reasons(scene.making.job_id())


@pytest.mark.parametrize("act", ["discard", "resolve", "reprocess"])
def test_a_node_waits_for_nobody_once_the_dead_letter_before_it_is_dealt_with(scene: Scene, act: str) -> None:
    played = Played(scene)
    flow = Flow(scene, {"a": [], "b": [], "c": ["a", "b"], "d": ["c"]})
    flow.worker = played.worker
    flow.put()
    flow.claim()
    flow.die("a")
    assert [reason.code for reason in played.reasons(flow.job("d"))] == ["dead_parent", "parents"]
    getattr(scene, act)(flow.letter("a"))
    told = {"discard": ["cancelled"], "resolve": ["parents"], "reprocess": ["parents"]}
    assert [reason.code for reason in played.reasons(flow.job("d"))] == told[act]


def test_a_node_that_runs_however_its_parents_end_is_not_held_up_by_a_dead_one(scene: Scene) -> None:
    played = Played(scene)
    flow = Flow(scene, {"a": [], "b": [], "c": (["a", "b"], "continue")})
    flow.worker = played.worker
    flow.put()
    flow.claim()
    flow.die("a")
    [reason] = played.reasons(flow.job("c"))
    assert (reason.code, reason.says) == ("parents", 'it waits for nodes of its workflow: "b" (processing)')


def test_of_many_parents_a_few_are_named(scene: Scene) -> None:
    parents = [f"p{n}" for n in range(70)]
    flow = Flow(scene, {**{name: [] for name in parents}, "last": parents}).put()
    [reason] = Played(scene).reasons(flow.job("last"))
    assert reason.says.endswith('"p0" (pending), "p1" (pending), "p2" (pending) and 67 more')
