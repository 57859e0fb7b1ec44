"""The tenant in force, the current job, and what children inherit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fairlane import SYSTEM, CurrentJob, Fairlane, FakeClock, InvalidOption, all_tenants, current_job, tenant
from fairlane.client.enqueue.quotas import LOOK_EVERY_S
from fairlane.errors import NoCurrentJob
from fairlane.testing import run_due


@pytest.mark.requirement("W2")
def test_jobs_enqueued_in_a_tenants_block_are_that_tenants(app: Fairlane) -> None:
    task = app.task(name="t")(lambda: None)
    with tenant(123):
        inside = task.enqueue().job()
        with tenant("other"):
            nested = task.enqueue().job()
        named = task.using(tenant="third").enqueue().job()
        again = task.enqueue().job()
    outside = task.enqueue().job()
    tenants = [job.tenant for job in (inside, nested, named, again, outside)]
    assert tenants == ["123", "other", "third", "123", "system"]


def test_the_default_tenant_is_a_setting(make_app: Callable[..., Fairlane]) -> None:
    assert make_app(default_tenant="acme").task(name="t")(lambda: None).enqueue().job().tenant == "acme"


def test_a_customer_called_system_is_not_the_application(app: Fairlane) -> None:
    """No text from outside names the application itself, whose context sees every tenant; its own code can."""
    task, slug = app.task(name="t")(lambda: None), "system"
    refused: list[Callable[[], Any]] = [
        lambda: task.using(tenant=slug),
        lambda: app.tasks.enqueue("t", {}, rules=app.runtime, tenant=slug),
        lambda: app.tokens.create("ci", ["viewer"], tenant=slug),
        lambda: app.tokens.create_link("ci", ["viewer"], tenant=slug),
        lambda: tenant(slug).__enter__(),
    ]
    for call in refused:
        with pytest.raises(InvalidOption, match="tenant = 'system': expected another name"):
            call()
    assert app.jobs.list().jobs == ()
    with tenant(SYSTEM) as own:
        inside = task.enqueue().job()
    with tenant("acme"):
        named = task.using(tenant=SYSTEM).enqueue().job()
    assert {own, inside.tenant, named.tenant} == {"system"}


def test_none_instead_of_a_tenant_is_refused_where_tenants_are_used(make_app: Callable[..., Fairlane]) -> None:
    app = make_app()
    task = app.task(name="t")(lambda: None)
    nobody = task.using(tenant=None)  # type: ignore[arg-type]
    assert nobody.enqueue().job().tenant == "system", "where no tenant is known, nothing can go to the wrong one"
    task.using(tenant="acme").enqueue()
    calls: list[Callable[[], Any]] = [
        nobody.enqueue,
        lambda: asyncio.run(nobody.aenqueue()),
        lambda: app.enqueue_many([nobody.bind()]),
    ]
    for call in calls:
        with pytest.raises(InvalidOption, match=r"tenant = None: expected the tenant .* or SYSTEM"):
            call()
    assert task.enqueue().job().tenant == "system", "a call that says nothing of tenants is the application's own"
    with tenant("acme"):
        assert nobody.enqueue().job().tenant == "acme"


def test_tenants_that_only_the_store_knows_count_as_used(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/shared.db"
    with Fairlane(url) as first:
        first.task(name="t")(lambda: None).using(tenant="acme").enqueue()
    with Fairlane(url) as app:
        task = app.task(name="t")(lambda: None).using(tenant=None)  # type: ignore[arg-type]
        for call in (task.enqueue, lambda: app.enqueue_many([task.bind()])):
            with pytest.raises(InvalidOption, match="tenant = None"):
                call()


def test_that_there_are_no_tenants_is_remembered_for_a_while(tmp_path: Path) -> None:
    url, clock = f"sqlite:///{tmp_path}/shared.db", FakeClock()
    with Fairlane(url) as other, Fairlane(url, clock=clock) as app:
        nobody = app.task(name="t")(lambda: None).using(tenant=None)  # type: ignore[arg-type]
        nobody.enqueue()
        other.tenants.set("acme", weight=2.0)
        nobody.enqueue()
        clock.advance(LOOK_EVERY_S)
        with pytest.raises(InvalidOption, match="tenant = None"):
            nobody.enqueue()


def test_require_tenant_is_a_setting(make_app: Callable[..., Fairlane]) -> None:
    strict = make_app(require_tenant=True)
    task = strict.task(name="t")(lambda: None)
    for without in (task, task.using(tenant=None)):  # type: ignore[arg-type]
        with pytest.raises(InvalidOption, match="require_tenant"):
            without.enqueue()
    assert task.using(tenant=SYSTEM).enqueue().job().tenant == "system"
    with tenant("acme"):
        assert task.enqueue().job().tenant == "acme"
    loose = make_app(require_tenant=False)
    task = loose.task(name="t")(lambda: None)
    task.using(tenant="acme").enqueue()
    assert task.using(tenant=None).enqueue().job().tenant == "system"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["", None, 1.5, "a\x00", "x" * 200, "*", "system"])
def test_a_bad_tenant_is_refused_before_the_block_begins(name: Any) -> None:
    with pytest.raises(InvalidOption, match="tenant"), tenant(name):
        raise AssertionError


def test_the_block_ends_also_on_an_error(app: Fairlane) -> None:
    task = app.task(name="t")(lambda: None)
    with pytest.raises(ZeroDivisionError), tenant("acme"):
        raise ZeroDivisionError
    assert task.enqueue().job().tenant == "system"


def test_tenants_of_concurrent_async_code_do_not_mix(app: Fairlane) -> None:
    task = app.task(name="t")(lambda: None)

    async def enqueue(name: str) -> str:
        with tenant(name):
            await asyncio.sleep(0)
            return (await (await task.aenqueue()).ajob()).tenant

    async def all_of_them() -> list[str]:
        return await asyncio.gather(*(enqueue(f"t{n}") for n in range(20)))

    assert asyncio.run(all_of_them()) == [f"t{n}" for n in range(20)]


@pytest.mark.requirement("L16", "W2")
def test_children_inherit_tenant_correlation_and_parent(app: Fairlane) -> None:
    @app.task(name="child")
    def child() -> None: ...

    @app.task(name="parent")
    async def parent() -> None:
        await child.aenqueue()
        with all_tenants():
            app.enqueue_many([child.using(tenant="other").bind()])

    top = parent.using(tenant="acme", correlation_id="order-7").enqueue()
    run_due(app)
    children = app.jobs.list(parent=top).jobs
    assert {job.tenant for job in children} == {"acme", "other"}
    assert {job.correlation_id for job in children} == {"order-7"}
    assert {job.type for job in app.jobs.list(correlation_id="order-7").jobs} == {"parent", "child"}
    lone = parent.enqueue()
    run_due(app)
    assert {job.correlation_id for job in app.jobs.list(parent=lone).jobs} == {str(lone.id)}


@pytest.mark.requirement("I10")
@pytest.mark.parametrize("other", ["globex", SYSTEM])
def test_a_job_does_not_step_into_the_context_of_another_tenant(app: Fairlane, other: Any) -> None:
    @app.task(name="step", max_attempts=1)
    def step() -> None:
        with tenant("acme"):
            app.jobs.list()
        with tenant(other):
            app.jobs.list()

    handle = step.using(tenant="acme").enqueue()
    run_due(app)
    assert handle.job().error_type == "PermissionDenied"


@pytest.mark.requirement("I10")
def test_a_job_of_the_application_itself_steps_into_the_context_of_each_tenant(app: Fairlane) -> None:
    @app.task(name="rounds", max_attempts=1)
    def rounds() -> list[str]:
        names = []
        for name in ("acme", "globex"):
            with tenant(name) as own:
                names.append(own)
        return names

    handle = rounds.enqueue()
    run_due(app)
    assert handle.job().status == "completed"


def test_the_current_job_is_known_inside_its_code_and_nowhere_else(app: Fairlane) -> None:
    seen: list[CurrentJob] = []

    @app.task(name="look", max_attempts=3)
    def look() -> None:
        seen.append(current_job())
        raise ConnectionError

    handle = look.using(tenant="acme", created_by="ada", refs={"user": 1}, headers={"h": "1"}).enqueue()
    run_due(app)
    [job] = seen
    assert (job.id, job.type, job.tenant, job.queue) == (handle.id, "look", "acme", "default")
    assert (job.attempt, job.attempts, job.max_attempts, job.fence[1]) == (1, 0, 3, 1)
    assert (job.created_by, job.refs, job.headers, job.parent_id) == ("ada", {"user": 1}, {"h": "1"}, None)
    assert job.correlation_id == job.idempotency_key == str(handle.id)
    assert job.deadline_at > handle.job().enqueued_at
    assert "attempt 1" in repr(job)
    with pytest.raises(NoCurrentJob, match="no job runs here"):
        current_job()
