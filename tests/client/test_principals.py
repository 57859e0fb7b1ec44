"""Who a job acts as, found by the application's hook."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from fairlane import Fairlane, FakeClock, InvalidOption, current_job, tenant
from fairlane.core.outcome import Snoozed
from fairlane.testing import run_due

ADMINS = {"acme": "anna@acme"}


@pytest.fixture
def acting(app: Fairlane) -> tuple[Fairlane, list[Any]]:
    asked: list[Any] = []

    @app.tenants.find_principal
    def active_admin(name: str) -> str | None:
        asked.append(name)
        return ADMINS.get(name)

    return app, asked


@pytest.mark.requirement("I10")
def test_a_job_acts_as_its_tenant_s_admin_who_is_found_once(acting: tuple[Fairlane, list[Any]]) -> None:
    app, asked = acting
    seen: list[Any] = []

    @app.task(name="work")
    def work() -> None:
        seen.extend([app.tenants.principal(), app.tenants.principal()])

    work.using(tenant="acme").enqueue()
    run_due(app)
    assert (seen, asked) == (["anna@acme"] * 2, ["acme"])


@pytest.mark.requirement("I10")
def test_without_an_admin_the_job_is_put_off_uncharged_by_default(
    acting: tuple[Fairlane, list[Any]], clock: FakeClock
) -> None:
    app, _ = acting

    @app.task(name="work")
    def work() -> None:
        app.tenants.principal()

    handle = work.using(tenant="globex", max_attempts=1).enqueue()
    waited_s = 0.0
    while waited_s < 2 * 86_400:
        [ran] = run_due(app)
        assert isinstance(ran.outcome, Snoozed)
        job = handle.job()
        assert (job.status, job.attempts, job.error_type) == ("pending", 0, "MissingPrincipal")
        assert job.run_at > clock.now()
        assert ran.outcome.delay_s <= 1_800
        clock.advance(ran.outcome.delay_s)
        waited_s += ran.outcome.delay_s
    [reason, *_] = app.jobs.why(handle).reasons
    assert reason.says.startswith("it needs a principal and has been put off, uncharged, for 48")
    ADMINS["globex"] = "gus@globex"
    try:
        run_due(app)
    finally:
        del ADMINS["globex"]
    job = handle.job()
    assert (job.status, job.attempts) == ("completed", 0)
    outcomes = [attempt.outcome for attempt in app.jobs.detail(handle).attempts]
    assert outcomes == ["snoozed", "completed"], "one record of all the waiting"


@pytest.mark.requirement("I10")
def test_an_admin_who_is_appointed_at_once_is_found_at_once(
    acting: tuple[Fairlane, list[Any]], clock: FakeClock
) -> None:
    app, _ = acting
    app.task(name="work")(app.tenants.principal)
    app.tasks["work"].using(tenant="globex").enqueue()
    [ran] = run_due(app)
    assert isinstance(ran.outcome, Snoozed)
    assert ran.outcome.delay_s < 2


@pytest.mark.requirement("I10")
def test_an_application_may_let_jobs_run_without_anybody(make_app: Callable[..., Fairlane]) -> None:
    app = make_app(require_principal=False)
    app.tenants.find_principal(lambda name: None)
    with tenant("globex"):
        assert app.tenants.principal() is None


@pytest.mark.requirement("I10")
def test_the_context_is_restored_whatever_a_job_does(acting: tuple[Fairlane, list[Any]]) -> None:
    app, _ = acting

    @app.task(name="work", max_attempts=1)
    async def work() -> None:
        assert await app.tenants.aprincipal() == "anna@acme"
        raise RuntimeError(current_job().tenant)

    work.using(tenant="acme").enqueue()
    with tenant("globex"):
        run_due(app)
        assert app.jobs.list().jobs == ()
    assert app.tenants.principal() is None


def test_an_async_hook_is_awaited(app: Fairlane) -> None:
    @app.tenants.find_principal
    async def find(name: str) -> str:
        return f"admin of {name}"

    with tenant("acme"):
        assert asyncio.run(app.tenants.aprincipal()) == "admin of acme"
        with pytest.raises(InvalidOption, match="aprincipal"):
            app.tenants.principal()
    with pytest.raises(InvalidOption, match="one hook"):
        app.tenants.find_principal(lambda name: name)
