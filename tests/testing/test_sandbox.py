"""`app.testing()`: the user's own application in memory, and everything put back afterwards."""

from __future__ import annotations

import asyncio
import unittest
from datetime import timedelta

import pytest

from fairlane import (
    Breaker,
    FakeClock,
    InvalidOption,
    JobFailed,
    ResultTimeout,
    Retry,
    StoreUnavailable,
    UnknownTask,
)
from fairlane.client.workflows import WorkflowBuilder
from fairlane.core.clock import SystemClock
from fairlane.core.outcome import Snoozed
from fairlane.errors import BlocksEventLoop
from fairlane.testing import (
    NoSandbox,
    Sandbox,
    assert_enqueued,
    assert_nothing_enqueued,
    enqueued,
)
from tests.testing.conftest import Shop


def test_nothing_of_a_test_is_left_behind(shop: Shop) -> None:
    app, before = shop.app, repr(shop.app)
    runtime = app.runtime
    clock, access, limits, settings = runtime.clock, runtime.access, app.limits.declared, runtime.settings
    for _ in range(2):
        with app.testing(strict_payload=False, capacity=5) as jobs:
            assert app.jobs.list().jobs == ()
            assert app.limits.list() == ()
            assert app.tenants.list().tenants == ()
            assert runtime.settings.capacity == 5
            assert isinstance(jobs.clock, FakeClock)
            shop.welcome.using(tenant="acme").enqueue(7)
            app.limits.set(queue="mail", running=1)
            app.limits.declare("one", running=1)
            app.schedules.declare("nightly", cron="0 3 * * *", args={"user_id": 1})(shop.welcome)
            app.queues.pause("mail")
            app.jobs.on_enqueue(lambda draft: None)
            app.before_job(lambda job: None)
            shop.welcome.after_job(lambda job, result: None)
            app.task(name="only.here")(lambda: None)
            jobs.advance(timedelta(days=400))
    assert (runtime.clock, runtime.access, runtime.settings) == (clock, access, settings)
    assert app.limits.declared == limits
    assert "nightly" not in app.schedules.declared
    assert (runtime.preparer.hooks, runtime.hooks.before, shop.welcome.definition.hooks.after) == ([], (), ())
    assert not runtime.preparer.uses_tenants
    with pytest.raises(UnknownTask):
        app.tasks["only.here"]
    assert repr(app) == before
    with pytest.raises(StoreUnavailable):
        app.jobs.list()
    app.close()


def test_the_schedules_of_the_code_are_there_as_after_the_start_of_a_worker(shop: Shop) -> None:
    app = shop.app
    app.schedules.declare("nightly", cron="0 3 * * *", args={"user_id": 1})(shop.welcome)
    with app.testing() as jobs:
        [nightly] = app.schedules.list()
        assert (nightly.spec.name, nightly.source, nightly.paused_at) == ("nightly", "code", None)
        assert nightly.next_at is not None
        assert nightly.next_at > jobs.clock.now()
        jobs.assert_nothing_enqueued()
        app.schedules.run("nightly")
        jobs.assert_enqueued(shop.welcome, user_id=1)
        app.schedules.pause("nightly")
    with app.testing():
        assert app.schedules.get("nightly").paused_at is None


def test_a_breaker_of_a_task_is_left_out_and_a_guard_in_its_code_is_not(shop: Shop) -> None:
    """As docs/guides/testing.md says."""
    app = shop.app

    @app.task(name="mail.send", breaker=Breaker("smtp", threshold=1), retry=Retry(max_attempts=4))
    def send() -> None:
        raise ConnectionError

    @app.task(name="charge", retry=Retry(max_attempts=1))
    def charge() -> None:
        with app.breakers.guard("payments"):
            raise AssertionError("not called")

    with app.testing() as jobs:
        send.enqueue()
        assert len(jobs.run_due(raising=False)) == 4
        app.breakers.open("payments")
        handle = charge.enqueue()
        assert [type(ran.outcome) for ran in jobs.run_due()] == [Snoozed]
        assert handle.status() == "pending"


def test_everything_is_put_back_after_a_failure_and_in_nested_blocks(shop: Shop) -> None:
    def story() -> None:
        with shop.app.testing():
            shop.welcome.enqueue(1)
            with shop.app.testing():
                assert_nothing_enqueued()
                shop.welcome.enqueue(2)
                assert_enqueued(shop.welcome, user_id=2)
            assert [each.args for each in enqueued()] == [{"user_id": 1}]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        story()
    with pytest.raises(NoSandbox, match="use the fixture fairlane_app"):
        enqueued()


def test_a_closed_application_can_be_used_again_and_keeps_its_jobs(shop: Shop) -> None:
    with shop.app.testing():
        with shop.app:
            shop.welcome.enqueue(1)
        asyncio.run(shop.app.aclose())
        shop.welcome.enqueue(2)
        assert len(enqueued(shop.welcome)) == 2
    shop.app.close()
    with shop.app.testing():
        shop.welcome.enqueue(3)
        assert_enqueued(shop.welcome, user_id=3)


def test_two_applications_under_test_do_not_mix(shop: Shop) -> None:
    other = Shop()
    with shop.app.testing() as jobs, other.app.testing() as others:
        shop.welcome.enqueue(1)
        other.welcome.enqueue(2)
        assert_enqueued(shop.welcome, user_id=1)
        assert_nothing_enqueued(shop.welcome, user_id=2)
        assert [each.args["user_id"] for each in others.enqueued()] == [2]
        assert [each.args["user_id"] for each in jobs.enqueued()] == [1]


def test_waiting_moves_the_clock_and_does_not_wait_for_ever(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        handle, began_at = shop.welcome.enqueue(1), jobs.clock.now()
        with pytest.raises(ResultTimeout):
            handle.result(timeout=30)
        assert abs(jobs.clock.now() - began_at - timedelta(seconds=30)) < timedelta(seconds=1)
        with pytest.raises(RuntimeError, match=r"call run_due\(\) first"):
            handle.result()


def test_a_clock_of_ones_own(shop: Shop) -> None:
    with shop.app.testing(clock=SystemClock()) as jobs:
        shop.welcome.enqueue(1)
        assert len(jobs.run_due()) == 1
        with pytest.raises(InvalidOption, match="a FakeClock"):
            jobs.advance(5)


def test_an_unknown_mode_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidOption, match="one of collect, inline"):
        shop.app.testing("eager")  # type: ignore[arg-type]


class InUnittest(unittest.TestCase):
    """Not run by itself: the test below does."""

    __test__ = False
    shop: Shop

    def setUp(self) -> None:
        self.jobs = self.enterContext(self.shop.app.testing())

    def test_it(self) -> None:
        self.jobs.assert_nothing_enqueued()
        self.shop.welcome.enqueue(7)
        self.jobs.assert_enqueued(self.shop.welcome, user_id=7)

    def test_it_again(self) -> None:
        self.test_it()


def test_it_works_in_unittest(shop: Shop) -> None:
    InUnittest.shop = shop
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(InUnittest).run(result)
    assert (result.testsRun, result.errors, result.failures) == (2, [], [])


def test_due_jobs_run_through_their_retries_by_moving_the_clock(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        handle, began_at = shop.sign_up.enqueue(7, fails=2), jobs.clock.now()
        ran = jobs.run_due()
        assert [each.lease.type for each in ran] == ["shop.sign_up", *["shop.welcome"] * 3]
        assert [each.error is not None for each in ran] == [False, True, True, False]
        assert shop.seen == [1, 2, 3]
        assert timedelta(minutes=2) <= jobs.clock.now() - began_at < timedelta(minutes=5)
        assert handle.result(timeout=0) == 7
        assert jobs.assert_enqueued(shop.welcome).status == "completed"


def test_a_job_that_ends_dead_raises_what_it_died_of(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        other, handle = shop.welcome.enqueue(1), shop.welcome.enqueue(2, fails=9)
        with pytest.raises(ConnectionError, match="unlucky") as raised:
            jobs.run_due()
        assert raised.value.__notes__ == [f"raised by job {handle.id} (shop.welcome), attempt 3"]
        assert other.result(timeout=0) == "hello 1"
        with pytest.raises(JobFailed):
            handle.result(timeout=0)
        shop.welcome.enqueue(3, fails=9)
        assert [type(each.error) for each in jobs.run_due(raising=False)] == [ConnectionError] * 3


def test_delayed_jobs_run_within_the_span_a_test_gives(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        soon, late = (shop.welcome.using(delay=delay).enqueue(1) for delay in (600, 90_000))
        assert jobs.run_due() == ()
        assert len(jobs.run_due(within=timedelta(hours=1))) == 1
        assert (soon.status(), late.status()) == ("completed", "pending")
        jobs.advance(90_000)
        assert len(jobs.run_due()) == 1


def test_on_a_loop_due_jobs_are_run_by_their_async_twin(shop: Shop) -> None:
    async def story(jobs: Sandbox) -> None:
        loops = []

        @shop.app.task(name="where")
        async def where() -> None:
            loops.append(asyncio.get_running_loop())

        await where.aenqueue()
        await shop.sign_up.aenqueue(7, fails=1)
        with pytest.raises(BlocksEventLoop, match=r"await arun_due\(\)"):
            jobs.run_due()
        assert len(await jobs.arun_due()) == 4
        assert loops == [asyncio.get_running_loop()]

    with shop.app.testing() as jobs:
        asyncio.run(story(jobs))


def test_inline_jobs_run_when_they_are_enqueued_and_raise_there(shop: Shop) -> None:
    with shop.app.testing("inline") as jobs:
        assert shop.welcome.enqueue(1).result(timeout=0) == "hello 1"
        shop.sign_up.enqueue(2)
        assert [(each.task, each.status) for each in jobs.enqueued()] == [
            ("shop.welcome", "completed"),
            ("shop.sign_up", "completed"),
            ("shop.welcome", "completed"),
        ]
        with pytest.raises(ConnectionError, match="unlucky"):
            shop.sign_up.enqueue(3, fails=1)
        assert shop.welcome.using(delay=60).enqueue(4).status() == "pending"
        many = shop.app.enqueue_many([shop.welcome.bind(5), shop.welcome.bind(6)])
        assert [handle.status() for handle in many] == ["completed", "completed"]


def test_nodes_let_go_into_another_queue_run_at_once(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        flow = shop.app.workflow("two")
        flow.add(shop.welcome.using(queue="late").bind(2), after=[flow.add(shop.welcome.bind(1))])
        handle = flow.enqueue()
        assert [ran.lease.queue for ran in jobs.run_due()] == ["mail", "late"]
        assert handle.status().status == "completed"


def test_inline_a_workflow_runs_when_it_is_enqueued(shop: Shop) -> None:
    def built() -> WorkflowBuilder:
        flow = shop.app.workflow("two")
        flow.add(shop.welcome.bind(2), after=[flow.add(shop.welcome.bind(1))])
        return flow

    async def story() -> None:
        async with shop.app.testing("inline"):
            assert (await (await built().aenqueue()).astatus()).status == "completed"

    with shop.app.testing("inline"):
        assert built().enqueue().status().status == "completed"
        batch = shop.app.batch("many").add_many([shop.welcome.using(delay=60).bind(3)]).enqueue()
        batch.add(shop.welcome.bind(4))
        assert batch.progress().done == 1
    asyncio.run(story())


def test_inline_jobs_run_on_the_loop_that_enqueues_them(shop: Shop) -> None:
    async def story() -> None:
        async with shop.app.testing("inline"):
            handles = await asyncio.gather(*(shop.sign_up.aenqueue(number) for number in range(5)))
            assert [await handle.aresult() for handle in handles] == list(range(5))
            with pytest.raises(ConnectionError):
                await shop.sign_up.aenqueue(3, fails=1)
            assert shop.sign_up.enqueue(7).status() == "completed"  # without await, as endpoints may
            assert len(enqueued()) == 5 + 5 + 2 + 2

    asyncio.run(story())
