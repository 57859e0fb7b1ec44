"""Jobs claimed, completed and failed by hand, on every store: leases and fences like a worker's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import pytest

from fairlane import Fairlane, FakeClock, InvalidOption, Retry, SyncTask, tenant
from fairlane.core.chance import FixedChance
from fairlane.core.ops import ALL_TENANTS, ReadEvents, Reclaim
from fairlane.errors import ClaimLost, PermissionDenied, RateLimited
from fairlane.testing import run_due
from tests.support.stores import Ground, Timed, ground, open_at

__all__ = ["ground"]

pytestmark = pytest.mark.requirement("W7", "D28")

Mail = SyncTask[[int], None]


@pytest.fixture(params=["memory", "sqlite-apsw", "postgres", "redis"])
def app(request: pytest.FixtureRequest, ground: Ground, clock: FakeClock) -> Iterator[Fairlane]:
    store = open_at(request.param, ground.address(request.param))
    if (migrator := store.migrator()) is not None:
        migrator.up()
    yield Fairlane(
        store=Timed(store, clock),
        clock=clock,
        chance=FixedChance(1),
        profile="development",
        queues={"legacy": {"retry": {"max_attempts": 4, "delays": [7, 8, 9]}}},
    )
    store.close()


in_memory = pytest.mark.parametrize("app", ["memory"], indirect=True)
"""For what the client decides, whatever the store."""


@pytest.fixture
def mail(app: Fairlane) -> Mail:
    @app.task(name="mail.send", queue="legacy")
    def send(number: int) -> None:
        raise AssertionError("it runs by hand only")

    return send


def test_a_job_is_claimed_and_completed_by_code_that_is_no_task(app: Fairlane, mail: Mail, clock: FakeClock) -> None:
    handle = mail.using(tenant="acme", correlation_id="c-1", idempotency_key="k-1").enqueue(7)
    clock.advance(2)
    claimed = app.jobs.claim("legacy", worker="legacy-1", lease=60)
    assert claimed is not None
    assert (claimed.id, claimed.type, claimed.tenant, claimed.arguments) == (
        handle.id,
        "mail.send",
        "acme",
        {"number": 7},
    )
    assert (claimed.attempt, claimed.correlation_id, claimed.idempotency_key) == (1, "c-1", "k-1")
    assert claimed.lease_until == clock.now() + timedelta(seconds=60)
    running = handle.job()
    assert (running.status, running.worker) == ("processing", claimed.token)
    [worker] = app.workers.list().workers
    assert (worker.id, worker.name, worker.leases) == (claimed.token, "legacy-1", 1)
    assert app.jobs.claim("legacy") is None
    clock.advance(3)
    claimed.complete({"sent": True})
    done = handle.job()
    assert (done.status, done.result, done.worker) == ("completed", '{"sent":true}', claimed.token)
    assert (done.finished_at, done.started_at) == (clock.now(), clock.now() - timedelta(seconds=3))
    assert app.workers.list().workers == ()
    claimed.complete({"sent": True})  # its first answer may have been lost
    with pytest.raises(ClaimLost, match=f"cannot fail job {handle.id}"):
        claimed.fail("too late")


@in_memory
@pytest.mark.requirement("W9")
@pytest.mark.parametrize(
    ("given", "delay_s"),
    [
        ({}, 7),
        ({"error_class": "transient"}, 7),
        ({"error_class": "rate_limited"}, 60),
        ({"error_class": "non_retryable"}, None),
        ({"retry": False}, None),
        ({"error_class": "rate_limited", "retry_after": 20}, 20),
        ({"retry_after": timedelta(seconds=20)}, 20),
    ],
)
def test_a_failure_by_hand_waits_by_the_rules_of_a_worker(
    app: Fairlane, mail: Mail, clock: FakeClock, given: dict[str, object], delay_s: float | None
) -> None:
    handle = mail.enqueue(7)
    claimed = app.jobs.claim("legacy")
    assert claimed is not None
    waits_s = claimed.fail("the server hung up", **given)  # type: ignore[arg-type]
    failed = handle.job()
    assert (failed.attempts, failed.error_type, failed.last_error) == (1, "FailedByHand", "the server hung up")
    assert failed.error_class == given.get("error_class", "retryable")
    if delay_s is None:
        assert (waits_s, failed.status) == (None, "dead")
        [letter] = app.dead_letters.list().dead_letters
        assert letter.reason == "the server hung up"
    else:
        assert waits_s == pytest.approx(delay_s, rel=0.2)
        assert (failed.status, failed.run_at) == ("failed", clock.now() + timedelta(seconds=waits_s or 0))


@pytest.mark.requirement("W8")
def test_the_last_attempt_that_fails_by_hand_is_a_dead_letter_with_each_error(
    app: Fairlane, mail: Mail, clock: FakeClock
) -> None:
    handle = mail.enqueue(7)
    for delay_s in (7, 8, 9, None):
        claimed = app.jobs.claim("legacy")
        assert claimed is not None
        assert claimed.fail(ConnectionError("hung up")) == delay_s
        clock.advance(3600)
    assert app.jobs.claim("legacy") is None
    detail = app.jobs.detail(handle)
    assert detail is not None
    assert (detail.job.status, detail.job.attempts) == ("dead", 4)
    assert [(one.outcome, one.error_class, one.error_type) for one in detail.attempts] == [
        *[("failed", "transient", "ConnectionError")] * 3,
        ("dead", "transient", "ConnectionError"),
    ]


@in_memory
def test_an_exception_says_its_class_and_its_own_delay(app: Fairlane, mail: Mail) -> None:
    mail.enqueue(7)
    claimed = app.jobs.claim("legacy")
    assert claimed is not None
    assert claimed.fail(RateLimited(retry_after=20)) == pytest.approx(20, rel=0.2)


@in_memory
def test_the_policy_of_the_enqueue_call_goes_first_and_a_task_need_not_be_known(app: Fairlane, mail: Mail) -> None:
    mail.using(retry=Retry(max_attempts=2, delays=(33,))).enqueue(7)
    other = Fairlane(store=app.runtime.store, clock=app.runtime.clock, profile="development")
    claimed = other.jobs.claim("legacy")
    assert claimed is not None
    assert claimed.fail("not yet") == 33


@pytest.mark.requirement("Q17")
def test_a_lease_that_ends_gives_the_job_to_the_next_and_what_comes_late_is_refused(
    app: Fairlane, mail: Mail, clock: FakeClock
) -> None:
    handle = mail.enqueue(7)
    late = app.jobs.claim("legacy", lease=30)
    assert late is not None
    clock.advance(29)
    assert app.jobs.claim("legacy") is None
    assert late.renew(30) == clock.now() + timedelta(seconds=30)
    clock.advance(29)
    assert app.jobs.claim("legacy") is None
    clock.advance(2)
    second = app.jobs.claim("legacy")
    assert second is not None
    assert (second.id, second.attempt) == (handle.id, 2)
    acts = (late.complete, lambda: late.fail("no"), late.release, late.renew)
    for act in acts:
        with pytest.raises(ClaimLost, match="not held by this claim any more"):
            act()
    with pytest.raises(ClaimLost):
        app.jobs.claimed(late.token)
    assert [one.outcome for one in app.jobs.detail(handle).attempts] == ["lost"]  # type: ignore[union-attr]
    second.complete()
    assert handle.job().attempt == 2


def test_a_job_whose_holders_never_come_back_is_a_dead_letter_at_the_third(
    app: Fairlane, mail: Mail, clock: FakeClock
) -> None:
    handle = mail.enqueue(7)
    for _ in range(3):
        assert app.jobs.claim("legacy", lease=5) is not None
        clock.advance(6)
    assert app.jobs.claim("legacy") is None
    assert (handle.job().status, handle.job().error_type) == ("dead", "Crashed")


def test_a_lease_may_be_longer_than_the_timeout_of_the_task(app: Fairlane, clock: FakeClock) -> None:
    @app.task(name="slow", queue="legacy", timeout=10)
    def slow() -> None: ...

    slow.enqueue()
    claimed = app.jobs.claim("legacy", lease=300)
    assert claimed is not None
    clock.advance(200)
    app.runtime.store.run(Reclaim())
    claimed.complete()


def test_a_job_given_back_is_ready_at_once_and_not_charged(app: Fairlane, mail: Mail) -> None:
    handle = mail.enqueue(7)
    claimed = app.jobs.claim("legacy")
    assert claimed is not None
    claimed.release()
    assert (handle.job().status, handle.job().attempts) == ("pending", 0)
    again = app.jobs.claim("legacy")
    assert again is not None
    assert again.attempt == 2


def test_who_has_only_the_token_continues_the_claim(app: Fairlane, mail: Mail, clock: FakeClock) -> None:
    handle, other = mail.enqueue(7), mail.enqueue(8)
    first = app.jobs.claim("legacy", worker="cron", lease=30)
    assert first is not None
    clock.advance(4)
    again = app.jobs.claimed(str(first.token))
    assert (again.id, again.attempt, again.lease_until) == (handle.id, 1, first.lease_until)
    again.renew(90)
    assert [worker.name for worker in app.workers.list().workers] == ["cron"]
    again.complete(1)
    with pytest.raises(ClaimLost):
        app.jobs.claimed(first.token)
    assert other.status() == "pending"  # a token that is spent claims nothing
    with pytest.raises(InvalidOption, match="token"):
        app.jobs.claimed("x")


def test_limits_pauses_and_types_hold_as_for_a_worker(app: Fairlane, mail: Mail) -> None:
    mail.enqueue(7)
    mail.enqueue(8)
    assert app.jobs.claim("legacy", types=["other"]) is None
    assert app.jobs.claim("other") is None
    app.queues.pause("legacy", by="ada")
    assert app.jobs.claim("legacy") is None
    app.queues.resume("legacy", by="ada")
    app.limits.set(queue="legacy", running=1, by="ada")
    first = app.jobs.claim(["other", "legacy"], types="mail.send")
    assert first is not None
    assert app.jobs.claim("legacy") is None
    first.complete()
    assert app.jobs.claim("legacy") is not None


@pytest.mark.requirement("I3")
def test_tenants_take_turns(app: Fairlane, mail: Mail) -> None:
    for name in ("a", "b", "c"):
        for number in range(2):
            mail.using(tenant=name).enqueue(number)
    claimed = [app.jobs.claim("legacy") for _ in range(6)]
    tenants = [one.tenant for one in claimed if one]
    assert sorted(tenants[:3]) == sorted(tenants[3:]) == ["a", "b", "c"]


def test_events_and_figures_are_those_of_a_worker(app: Fairlane, mail: Mail, clock: FakeClock) -> None:
    for number in (7, 8):
        mail.enqueue(number)
    done, failed = app.jobs.claim("legacy"), app.jobs.claim("legacy")
    assert done is not None
    assert failed is not None
    clock.advance(2)
    done.complete()
    failed.fail("no", error_class="non_retryable")
    events = app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, kinds=("job_dead", "job_completed"))).events
    assert [(event.kind, event.data["id"], event.data["ran_s"]) for event in events] == [
        ("job_dead", str(failed.id), 2)
    ]
    sums = app.statistics.minutes(clock.now() - timedelta(minutes=5), clock.now() + timedelta(minutes=5))
    assert [(row.type, row.completed, row.dead) for row in sums.rows] == [("mail.send", 1, 1)]


@in_memory
def test_a_tenants_own_code_claims_nothing_and_mistakes_change_nothing(app: Fairlane, mail: Mail) -> None:
    handle = mail.enqueue(7)
    with tenant("acme"), pytest.raises(PermissionDenied):
        app.jobs.claim("legacy")
    for given in ({"queues": "a b"}, {"queues": ()}, {"lease": 0}, {"types": [""]}, {"worker": ""}):
        with pytest.raises(InvalidOption):
            app.jobs.claim(**given)  # type: ignore[arg-type]
    assert app.workers.list().workers == ()
    claimed = app.jobs.claim("legacy")
    assert claimed is not None
    with pytest.raises(InvalidOption, match="error_class"):
        claimed.fail("x", error_class="bad")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="error"):
        claimed.fail(" ")
    with pytest.raises(InvalidOption, match="retry_after"):
        claimed.fail("x", retry_after=-1)
    with pytest.raises(InvalidOption, match="result"):
        claimed.complete(object())
    assert handle.status() == "processing"


def test_each_verb_has_its_async_twin(app: Fairlane, mail: Mail) -> None:
    async def work() -> None:
        for number in range(4):
            mail.enqueue(number)
        first, second, third = [await app.jobs.aclaim("legacy") for _ in range(3)]
        assert first and second and third  # noqa: PT018
        await first.arenew(60)
        await (await app.jobs.aclaimed(first.token)).acomplete(1)
        assert await second.afail("no") == 7
        await third.arelease()

    asyncio.run(work())
    assert sorted(job.status for job in app.jobs.list().jobs) == ["completed", "failed", "pending", "pending"]


@in_memory
def test_a_worker_runs_what_was_failed_by_hand(app: Fairlane, clock: FakeClock) -> None:
    @app.task(name="add")
    def add(a: int) -> int:
        return a + 1

    handle = add.enqueue(1)
    claimed = app.jobs.claim()
    assert claimed is not None
    claimed.fail("not here")
    clock.advance(3600)
    run_due(app)
    assert handle.result(timeout=0) == 2
