"""Pausing, resuming and draining queues, tasks and tenants; resetting a job; listing workers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fairlane import Fairlane, FakeClock, InvalidOption, InvalidState, QueuePaused, StillRunning
from fairlane.client.admin.pauses import PausingVerbs
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import Renew, Start, Turn, Want
from fairlane.core.outcome import Completed
from fairlane.testing import run_due
from tests.client.conftest import MovingPause

THINGS: list[dict[str, Any]] = [{"queue": "mail"}, {"type": "send"}, {"tenant": "acme"}]


@pytest.fixture
def send(app: Fairlane) -> Any:
    @app.task(name="send", queue="mail")
    def send() -> None: ...

    return send


def group_of(app: Fairlane, thing: dict[str, Any]) -> tuple[PausingVerbs, str]:
    [(kind, name)] = thing.items()
    return {"queue": app.queues, "type": app.tasks, "tenant": app.tenants}[kind], name


class Hand:
    """A worker moved by hand."""

    def __init__(self, app: Fairlane) -> None:
        self._app, self.id, self._claim_no = app, WorkerId(app.runtime.new_job_id()), 0
        app.runtime.store.run(Renew(worker=self.id, lease_s=3600, name="by hand", figures={"rss_mb": 42.0}))

    def claim(self, *, start: int = 10) -> list[Lease]:
        self._claim_no += 1
        want = Want(lane="l", queues=("mail",), limit=10, start=start)
        return list(self._app.runtime.store.run(Turn(worker=self.id, claim_no=self._claim_no, wants=(want,))).leases)

    def start(self, lease: Lease) -> None:
        self._claim_no += 1
        started = Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=60)
        self._app.runtime.store.run(Turn(worker=self.id, claim_no=self._claim_no, starts=(started,)))

    def complete(self, lease: Lease) -> None:
        self._claim_no += 1
        done = Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no)
        self._app.runtime.store.run(Turn(worker=self.id, claim_no=self._claim_no, outcomes=(done,)))


@pytest.mark.requirement("L15")
@pytest.mark.parametrize("thing", THINGS)
def test_nothing_paused_is_claimed_until_it_is_resumed(app: Fairlane, send: Any, thing: dict[str, Any]) -> None:
    app.task(name="other")(lambda: None).enqueue()
    group, name = group_of(app, thing)
    [pause] = group.pause(name, by="ada", notes="maintenance")
    assert (pause.by, pause.notes, {pause.kind: pause.name}) == ("ada", "maintenance", thing)
    handle = send.using(tenant="acme").enqueue()
    assert [ran.lease.type for ran in run_due(app)] == ["other"]
    assert handle.status() == "pending"
    assert app.pauses.list() == asyncio.run(app.pauses.alist()) == (pause,)
    assert asyncio.run(group.aresume(name, by="bob")) == ()
    assert [ran.lease.type for ran in run_due(app)] == ["send"]
    assert [(record.by, record.action) for record in app.audit.list().records] == [("bob", "resume"), ("ada", "pause")]


@pytest.mark.requirement("L15")
def test_a_pause_lasts_over_restarts(make_app: Callable[..., Fairlane]) -> None:
    first = make_app()
    first.queues.pause("mail")
    second = make_app(store=first.runtime.store)
    assert [pause.name for pause in second.pauses.list()] == ["mail"]


@pytest.mark.requirement("L15")
@pytest.mark.parametrize("thing", THINGS)
def test_draining_pauses_and_waits_for_what_runs(
    app: Fairlane, send: Any, pause: MovingPause, thing: dict[str, Any]
) -> None:
    worker = Hand(app)
    running, waiting = send.using(tenant="acme").enqueue(), None
    [lease] = worker.claim()
    looks = 0

    def meanwhile() -> None:
        nonlocal looks, waiting
        looks += 1
        if looks == 5:
            waiting = send.using(tenant="acme").enqueue()
            assert worker.claim() == []
            worker.complete(lease)

    pause.before = meanwhile
    group, name = group_of(app, thing)
    group.drain(name, by="ada")
    assert running.status() == "completed"
    assert waiting is not None
    assert waiting.status() == "pending"
    assert sum(pause.pauses[5:]) >= 3.0
    assert [each.kind for each in app.pauses.list()] == list(thing)


@pytest.mark.requirement("L15")
def test_draining_gives_up_in_time_and_leaves_it_paused(app: Fairlane, send: Any) -> None:
    send.enqueue()
    Hand(app).claim()
    with pytest.raises(StillRunning, match='jobs of queue "mail" are still running after 10 s; it stays paused'):
        app.queues.drain("mail", timeout=10)
    with pytest.raises(StillRunning, match='task "send"'):
        asyncio.run(app.tasks.adrain("send", timeout=1))
    assert len(app.pauses.list()) == 2


@pytest.mark.requirement("L15")
@pytest.mark.parametrize("timeout", [0, 1, 2.9])
def test_what_is_idle_is_drained_however_short_the_timeout(
    app: Fairlane, send: Any, clock: FakeClock, timeout: float
) -> None:
    began = clock.monotonic()
    app.queues.drain("mail", timeout=timeout)
    assert 3.0 <= clock.monotonic() - began < 5.0


@pytest.mark.requirement("L15")
def test_draining_ends_well_when_the_last_job_ends_just_in_time(app: Fairlane, send: Any, pause: MovingPause) -> None:
    send.enqueue()
    worker = Hand(app)
    [lease] = worker.claim()
    pause.before = lambda: worker.complete(lease) if sum(pause.pauses) > 1.0 else None
    app.queues.drain("mail", timeout=2)


@pytest.mark.requirement("L15")
def test_what_was_claimed_ahead_and_begins_after_the_timeout_still_runs(
    app: Fairlane, send: Any, pause: MovingPause, clock: FakeClock
) -> None:
    send.enqueue()
    worker = Hand(app)
    [lease] = worker.claim(start=0)
    pause.before = lambda: worker.start(lease) if sum(pause.pauses) > 1.5 else None
    began = clock.monotonic()
    with pytest.raises(StillRunning, match="after 1 s"):
        app.queues.drain("mail", timeout=1)
    assert clock.monotonic() - began < 3.0


def test_draining_in_async_code_waits_likewise(app: Fairlane, send: Any, clock: FakeClock) -> None:
    began = clock.monotonic()
    asyncio.run(app.queues.adrain("mail"))
    assert 3.0 <= clock.monotonic() - began < 5.0


@pytest.mark.parametrize("thing", [{"queue": "no such name!"}, {"type": ""}, {"tenant": ""}])
def test_what_to_pause_is_a_name(app: Fairlane, thing: dict[str, Any]) -> None:
    group, name = group_of(app, thing)
    for act in (group.pause, group.resume, group.drain, group.running):
        with pytest.raises(InvalidOption):
            act(name)
    with pytest.raises(InvalidOption, match="by"):
        app.queues.pause("mail", by="")
    assert app.pauses.list() == ()


@pytest.mark.requirement("L15")
def test_a_job_is_taken_from_its_worker_by_hand(app: Fairlane, send: Any) -> None:
    handle, worker = send.enqueue(), Hand(app)
    [lease] = worker.claim()
    job = app.jobs.reset(handle, by="ada")
    assert (job.status, job.attempts, job.worker) == ("pending", 0, None)
    worker.complete(lease)
    assert handle.status() == "pending"
    with pytest.raises(InvalidState, match="cannot reset"):
        asyncio.run(app.jobs.areset(handle))
    assert [record.action for record in app.audit.list().records] == ["job_reset"]


@pytest.mark.requirement("L21")
def test_workers_are_listed_with_what_they_say_of_themselves(app: Fairlane, send: Any) -> None:
    worker = Hand(app)
    send.enqueue()
    worker.claim()
    [seen] = app.workers.list().workers
    assert (seen.id, seen.name, seen.leases, seen.figures) == (worker.id, "by hand", 1, {"rss_mb": 42.0})
    assert asyncio.run(app.workers.alist()) == app.workers.list()


@pytest.mark.requirement("L15", "D21")
@pytest.mark.parametrize("thing", THINGS)
def test_what_refuses_new_jobs_says_why_to_whoever_enqueues(app: Fairlane, send: Any, thing: dict[str, Any]) -> None:
    group, name = group_of(app, thing)
    group.pause(name, refuse=True, by="ada", notes="moving to the new mail host")
    acme = send.using(tenant="acme")
    for enqueue in (
        acme.enqueue,
        lambda: asyncio.run(acme.aenqueue()),
        lambda: app.enqueue_many([acme.bind(), acme.bind()]),
        lambda: app.tasks.enqueue("send", {}, tenant="acme", queue="mail"),
    ):
        with pytest.raises(QueuePaused, match=r"refuses new jobs \(moving to the new mail host\).* resume ") as error:
            enqueue()
        assert (error.value.name, error.value.reason) == (name, "moving to the new mail host")
        assert "ada" not in str(error.value)
    assert not app.jobs.list().jobs
    group.resume(name)
    assert acme.enqueue().status() == "pending"


@pytest.mark.requirement("L15")
def test_draining_may_refuse_new_jobs_and_draining_again_does_not_let_them_in(app: Fairlane, send: Any) -> None:
    app.queues.drain("mail", refuse=True, notes="maintenance")
    app.queues.drain("mail")
    with pytest.raises(QueuePaused):
        send.enqueue()


@pytest.mark.requirement("L15")
def test_a_job_that_enqueues_into_what_refuses_is_retried_slowly(app: Fairlane, send: Any) -> None:
    @app.task(name="parent")
    def parent() -> None:
        send.enqueue()

    app.queues.pause("mail", refuse=True)
    handle = parent.enqueue()
    run_due(app)
    job = handle.job()
    assert (job.status, job.error_type, job.error_class) == ("failed", "QueuePaused", "rate_limited")


@pytest.mark.requirement("L15")
def test_a_schedule_fires_into_what_refuses_and_its_job_waits(app: Fairlane, send: Any, clock: FakeClock) -> None:
    app.schedules.add("often", send.bind(), cron="* * * * *")
    app.queues.pause("mail", refuse=True)
    app.schedules.run("often")
    assert [job.status for job in app.jobs.list().jobs] == ["pending"]


@pytest.mark.requirement("L15")
def test_all_jobs_that_have_run_for_too_long_are_reset_at_once(app: Fairlane, send: Any, clock: FakeClock) -> None:
    acme, globex = (send.using(tenant=tenant).enqueue() for tenant in ("acme", "globex"))
    worker = Hand(app)
    old = worker.claim()
    clock.advance(1801)
    young = send.enqueue()
    worker.claim()
    assert app.jobs.reset_many(running_longer_than=1800, dry_run=True).matched == 2
    acts = app.jobs.reset_many(running_longer_than=timedelta(minutes=30), tenant="acme", by="ada", notes="hung")
    assert [job.id for job in acts.done] == [acme.id]
    assert [job.id for job in asyncio.run(app.jobs.areset_many(running_longer_than=1800)).done] == [globex.id]
    statuses = [(handle.status(), handle.job().attempts) for handle in (acme, globex, young)]
    assert statuses == [("pending", 0), ("pending", 0), ("processing", 0)]
    assert app.jobs.reset_many(running_longer_than=1800).matched == 0
    worker.complete(old[0])
    assert acme.status() == "pending"
    with pytest.raises(InvalidOption, match="running_longer_than"):
        app.jobs.reset_many(running_longer_than=-1)


def test_a_pause_of_what_nothing_knows_is_made_with_a_warning(app: Fairlane, caplog: pytest.LogCaptureFixture) -> None:
    task = app.task(name="mail.send", queue="mailing")(lambda: None)
    task.using(queue="elsewhere").enqueue()
    caplog.clear()
    app.queues.pause("mailing")
    app.queues.pause("elsewhere")
    app.tasks.pause("mail.send")
    app.tenants.pause("nobody")
    assert caplog.messages == []
    app.queues.pause("mailng")
    app.tasks.pause("mail.sent")
    assert [message.partition("which")[0] for message in caplog.messages] == [
        'paused queue "mailng", ',
        'paused task "mail.sent", ',
    ]
    assert ['Nearest: "mailing".' in caplog.messages[0], 'Nearest: "mail.send".' in caplog.messages[1]] == [True, True]
    assert app.queues.is_paused("mailng")
