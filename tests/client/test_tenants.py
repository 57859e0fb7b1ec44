"""Tenants as an application sees them, and a tenant's context that sees that tenant alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fairlane import Fairlane, InvalidOption, JobNotFound, PermissionDenied, all_tenants, tenant
from fairlane.core.ops import AddTenants
from fairlane.testing import run_due


@pytest.fixture
def two(app: Fairlane) -> dict[str, Any]:
    """One waiting job of each of two tenants."""

    @app.task(name="work")
    def work() -> None: ...

    return {name: work.using(tenant=name).enqueue() for name in ("acme", "globex")}


def test_tenants_are_known_once_they_have_jobs(app: Fairlane, two: dict[str, Any]) -> None:
    app.runtime.store.run(AddTenants())
    page = app.tenants.list()
    assert [record.name for record in page.tenants] == ["acme", "globex"]
    assert [(record.weight, record.ready, record.paused) for record in page.tenants] == [(1.0, 1, False)] * 2


def test_a_weight_is_set_shown_and_audited(app: Fairlane) -> None:
    assert app.tenants.get("acme").seen_at is None
    record = app.tenants.set("acme", weight=3, tier="gold", by="olga", notes="paid")
    assert (record.weight, record.tier) == (3.0, "gold")
    assert app.tenants.get("acme") == record
    [audit] = app.audit.list(tenant="acme").records
    assert (audit.action, audit.by, audit.before, audit.after) == (
        "tenant_set",
        "olga",
        {"weight": 1.0, "tier": None},
        {"weight": 3.0, "tier": "gold"},
    )


def test_a_ready_job_says_who_takes_turns_with_it(app: Fairlane, two: dict[str, Any]) -> None:
    assert "1 other tenant has ready jobs, too" in app.jobs.why(two["acme"]).reasons[-1].says


@pytest.mark.parametrize("weight", [0, -1, 1001, float("nan"), True, "3"])
def test_a_weight_that_makes_no_sense_is_refused(app: Fairlane, weight: Any) -> None:
    with pytest.raises(InvalidOption, match="weight"):
        app.tenants.set("acme", weight=weight)
    assert app.tenants.get("acme").weight == 1.0


ASKING: list[Callable[[Fairlane, Any], object]] = [
    lambda app, job: app.jobs.get(job, tenant="globex"),
    lambda app, job: app.jobs.detail(job, tenant="globex"),
    lambda app, job: app.jobs.why(job, tenant="globex"),
    lambda app, job: app.jobs.list(tenant="globex"),
    lambda app, job: app.dead_letters.list(tenant="globex"),
    lambda app, job: app.statistics.counts(tenant="globex"),
    lambda app, job: app.audit.list(tenant="globex"),
    lambda app, job: app.tenants.get("globex"),
    lambda app, job: app.tenants.set("globex", weight=2),
    lambda app, job: app.jobs.cancel(job, tenant="globex"),
    lambda app, job: app.jobs.handle(job, tenant="globex").cancel(),
]


@pytest.mark.requirement("I10")
@pytest.mark.parametrize("ask", ASKING)
def test_asking_for_another_tenant_s_data_is_refused_and_changes_nothing(
    app: Fairlane, two: dict[str, Any], ask: Callable[[Fairlane, Any], object]
) -> None:
    with tenant("acme"), pytest.raises(PermissionDenied, match="acme"):
        ask(app, two["globex"])
    assert two["globex"].status() == "pending"
    assert not app.audit.list().records


@pytest.mark.requirement("I10")
def test_inside_a_tenant_s_context_only_its_own_is_there(app: Fairlane, two: dict[str, Any]) -> None:
    with tenant("acme"):
        assert [job.tenant for job in app.jobs.list().jobs] == ["acme"]
        assert app.jobs.get(two["globex"]) is None
        with pytest.raises(JobNotFound):
            app.jobs.cancel(two["globex"])
        with all_tenants():
            assert len(app.jobs.list().jobs) == 2
        assert len(app.jobs.list().jobs) == 1
    assert len(app.jobs.list().jobs) == 2


@pytest.mark.requirement("I10", "I14")
def test_a_job_cannot_reach_into_another_tenant(app: Fairlane) -> None:
    seen: list[str] = []

    @app.task(name="child")
    def child() -> None: ...

    @app.task(name="spy", max_attempts=1)
    def spy(reach: str) -> None:
        if reach == "enqueue":
            child.using(tenant="globex").enqueue()
        elif reach == "list":
            seen.extend(job.tenant for job in app.jobs.list().jobs)
        else:
            app.jobs.list(tenant="globex")

    child.using(tenant="globex").enqueue()
    denied = [spy.using(tenant="acme").enqueue(reach) for reach in ("enqueue", "read")]
    fine = spy.using(tenant="acme").enqueue("list")
    run_due(app)
    assert [handle.job().error_type for handle in denied] == ["PermissionDenied"] * 2
    assert fine.status() == "completed"
    assert set(seen) == {"acme"}
    assert len(app.jobs.list(type="child").jobs) == 1
