"""Tenants as people know them: seen by their jobs, with weight, tier, limits and counts."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.ops import (
    ALL_TENANTS,
    MAX_PAGE,
    TENANT_COUNT_CAP,
    AddTenants,
    GetTenant,
    HasTenants,
    PageTenants,
    PauseClaims,
    Purge,
    ReadWeights,
    Scope,
    SetTenant,
    TenantRecord,
    TenantsAdded,
    only,
)
from fairlane.testing.conformance.limits import every_tenant, pause_limit, queue, set_limit, tenant
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I3")

UNSEEN: dict[str, Any] = {
    "weight": 1.0,
    "tier": None,
    "seen_at": None,
    "paused": False,
    "limits": (),
    "ready": 0,
    "scheduled": 0,
    "held": 0,
    "leased": 0,
}


def get(scene: Scene, name: str = "acme", scope: Scope = ALL_TENANTS) -> TenantRecord | None:
    return scene.run(GetTenant(scope=scope, name=name))


def setting(scene: Scene, name: str = "acme", **said: Any) -> TenantRecord:
    return scene.run(SetTenant(name=name, **{"by": "ada", **said}))


def names(scene: Scene, scope: Scope = ALL_TENANTS, limit: int = 50, **where: Any) -> list[str]:
    """Page after page."""
    found: list[str] = []
    after = ""
    while True:
        page = scene.run(PageTenants(scope=scope, after=after, limit=limit, **where))
        found += [record.name for record in page.tenants]
        if page.next is None:
            return found
        after = page.next


def add(scene: Scene, after: str = "", limit: int = 500) -> TenantsAdded:
    return scene.run(AddTenants(after=after, limit=limit))


def weights(scene: Scene) -> dict[str, float]:
    return scene.run(ReadWeights()).weights


def test_a_tenant_never_seen_is_shown_with_the_defaults(scene: Scene) -> None:
    assert get(scene) == TenantRecord(name="acme", **UNSEEN)
    assert names(scene) == []


def test_setting_a_tenant_makes_it_known(scene: Scene) -> None:
    seen_at = scene.now
    told = setting(scene, weight=3.0, tier="gold")
    assert told == TenantRecord(name="acme", **UNSEEN | {"weight": 3.0, "tier": "gold", "seen_at": seen_at})
    scene.later(5)
    assert get(scene) == told
    assert names(scene) == ["acme"]


def test_what_is_not_said_stays_as_it_is(scene: Scene) -> None:
    setting(scene, weight=0.25, tier="gold")
    scene.later(5)
    assert setting(scene, tier="silver").weight == 0.25
    told = setting(scene, weight=2.0)
    assert (told.weight, told.tier, told.seen_at) == (2.0, "silver", scene.at(-5))


@pytest.mark.requirement("W12")
def test_setting_a_tenant_is_written_down(scene: Scene) -> None:
    setting(scene, weight=3.0, notes="pays more")
    scene.later(1)
    setting(scene, tier="gold", by="grace")
    second, first = scene.audit()
    assert {(record.action, record.target, record.tenant) for record in (first, second)} == {
        ("tenant_set", "tenant:acme", "acme")
    }
    assert (first.before, first.after) == ({"weight": 1.0, "tier": None}, {"weight": 3.0, "tier": None})
    assert (second.before, second.after) == ({"weight": 3.0, "tier": None}, {"weight": 3.0, "tier": "gold"})
    assert [(record.by, record.notes, record.at) for record in (first, second)] == [
        ("ada", "pays more", scene.at(-1)),
        ("grace", None, scene.now),
    ]


def test_what_changes_nothing_is_not_audited(scene: Scene) -> None:
    setting(scene, weight=1.0)
    assert names(scene) == ["acme"]
    setting(scene, weight=2.0, tier="gold")
    setting(scene, weight=2.0)
    setting(scene, tier="gold")
    setting(scene)
    assert len(scene.audit()) == 1


def test_weights_are_of_tenants_that_have_another_than_one(scene: Scene) -> None:
    assert weights(scene) == {}
    setting(scene, "a", weight=3.0)
    setting(scene, "b", weight=0.5)
    setting(scene, "c", tier="gold")
    assert weights(scene) == {"a": 3.0, "b": 0.5}
    setting(scene, "a", weight=1.0)
    assert weights(scene) == {"b": 0.5}


def test_a_tenants_jobs_are_counted_by_where_they_are(scene: Scene) -> None:
    worker = scene.hire(6000)
    scene.put_many(4, tenant="acme")
    done, *_ = scene.claim(worker, 3)
    scene.settle(worker, completed(done))
    scene.put_many(3, tenant="acme", delay_s=60, queue="bulk")
    scene.enqueue(scene.job(tenant="acme"), limits=(tenant("acme", waiting=0, when_full="hold"),))
    scene.put_many(5, tenant="bolt")
    told = get(scene)
    assert told is not None
    assert (told.ready, told.scheduled, told.held, told.leased, told.seen_at) == (1, 3, 1, 2, None)


def test_counts_of_a_tenant_stop_at_the_cap(scene: Scene) -> None:
    for _ in range(2):
        scene.enqueue(*(scene.job(tenant="acme") for _ in range(TENANT_COUNT_CAP // 2 + 1)))
    told = get(scene)
    assert told is not None
    assert told.ready == TENANT_COUNT_CAP


def test_a_tenant_shows_its_pause_and_the_limits_set_for_it_by_queue(scene: Scene) -> None:
    for limit in (
        tenant("acme", "bulk", running=2),
        tenant("acme", running=1),
        tenant("acme ", running=9),
        every_tenant(running=3),
        queue("acme", running=4),
    ):
        set_limit(scene, limit)
    pause_limit(scene, "tenant", "acme", 30, queue="critical")
    scene.run(PauseClaims(kind="tenant", name="acme", by="ada"))
    scene.run(PauseClaims(kind="queue", name="bolt", by="ada"))
    told, bolt = get(scene), get(scene, "bolt")
    assert told is not None
    assert bolt is not None
    assert [(record.limit.queue, record.limit.running) for record in told.limits] == [
        ("", 1),
        ("bulk", 2),
        ("critical", None),
    ]
    assert told.limits[2].paused_until == scene.at(30)
    assert (told.paused, bolt.paused, bolt.limits) == (True, False, ())


# Seen by their jobs.


def test_tenants_with_jobs_become_known(scene: Scene) -> None:
    for name in ("b", "a", "c"):
        scene.put_many(2, tenant=name)
    assert names(scene) == []
    assert add(scene) == TenantsAdded(added=3, next=None)
    assert names(scene) == ["a", "b", "c"]
    told = get(scene, "b")
    assert told is not None
    assert told.seen_at == scene.now
    assert scene.audit() == ()


def test_a_tenant_seen_before_stays_as_it_was(scene: Scene) -> None:
    setting(scene, "b", weight=2.0)
    seen_at = scene.now
    scene.later(5)
    for name in "abc":
        scene.put(tenant=name)
    assert add(scene) == TenantsAdded(added=2, next=None)
    told = get(scene, "b")
    assert told is not None
    assert (told.weight, told.seen_at) == (2.0, seen_at)
    scene.later(5)
    assert add(scene) == TenantsAdded(added=0, next=None)


def test_tenants_are_added_in_bounded_steps_by_name(scene: Scene) -> None:
    for name in ("e", "a", "d", "b", "c"):
        scene.put_many(3, tenant=name)
    assert add(scene, limit=2) == TenantsAdded(added=2, next="b")
    assert names(scene) == ["a", "b"]
    assert add(scene, after="b", limit=2) == TenantsAdded(added=2, next="d")
    assert add(scene, after="d", limit=2) == TenantsAdded(added=1, next=None)
    assert names(scene) == ["a", "b", "c", "d", "e"]
    assert add(scene, after="c", limit=2) == TenantsAdded(added=0, next=None)
    assert add(scene, after="zzz") == TenantsAdded(added=0, next=None)


def test_tenants_whose_jobs_are_all_finished_or_held_are_seen_too(scene: Scene) -> None:
    scene.finished(tenant="done")
    scene.dead(tenant="dead")
    scene.enqueue(scene.job(tenant="held"), limits=(tenant("held", waiting=0, when_full="hold"),))
    scene.put(tenant="later", delay_s=60)
    scene.leased(tenant="running")
    assert add(scene).added == 5


def test_a_known_tenant_stays_known_without_jobs(scene: Scene) -> None:
    scene.finished(tenant="acme")
    add(scene)
    scene.later(60)
    assert scene.retain(finished_before=scene.now) == 1
    assert names(scene) == ["acme"]


# Paged.


def test_tenants_are_paged_by_name_byte_by_byte(scene: Scene) -> None:
    known = ["b", "A", "é", "a", "Z", "a b", "a-b", "a%", "𝄞", "～"]
    for name in known:
        setting(scene, name, weight=2.0)
    for limit in (1, 3, 10, 50):
        assert names(scene, limit=limit) == sorted(known, key=lambda name: name.encode())


def test_a_page_of_tenants_ends_without_a_next_where_nothing_follows(scene: Scene) -> None:
    for name in "ab":
        setting(scene, name, tier="gold")
    page = scene.run(PageTenants(scope=ALL_TENANTS, limit=2))
    assert ([record.name for record in page.tenants], page.next) == (["a", "b"], None)
    page = scene.run(PageTenants(scope=ALL_TENANTS, limit=1))
    assert ([record.name for record in page.tenants], page.next) == (["a"], "a")


def test_tenants_are_paged_by_tier(scene: Scene) -> None:
    for name, tier in (("a", "gold"), ("b", "free"), ("c", "gold"), ("d", None)):
        setting(scene, name, tier=tier)
    assert names(scene, tier="gold", limit=1) == ["a", "c"]
    assert names(scene, tier="Gold") == []
    assert names(scene) == ["a", "b", "c", "d"]


def test_a_page_holds_at_least_one_and_at_most_so_many(scene: Scene) -> None:
    scene.enqueue(*(scene.job(tenant=f"t{number:04}") for number in range(MAX_PAGE + 1)))
    add(scene)
    assert len(scene.run(PageTenants(scope=ALL_TENANTS, limit=0)).tenants) == 1
    page = scene.run(PageTenants(scope=ALL_TENANTS, limit=10_000))
    assert (len(page.tenants), page.next) == (MAX_PAGE, f"t{MAX_PAGE - 1:04}")


def test_a_page_shows_each_tenant_as_it_is_shown_alone(scene: Scene) -> None:
    scene.put_many(2, tenant="acme")
    scene.put(tenant="bolt", delay_s=9)
    add(scene)
    set_limit(scene, tenant("bolt", running=1))
    page = scene.run(PageTenants(scope=ALL_TENANTS))
    assert list(page.tenants) == [get(scene, name) for name in ("acme", "bolt")]
    assert [(record.ready, record.scheduled) for record in page.tenants] == [(2, 0), (0, 1)]


@pytest.mark.parametrize("name", ["acme", "zebra"])
def test_the_application_itself_is_no_tenant_and_any_other_with_a_job_is(scene: Scene, name: str) -> None:
    assert not scene.run(HasTenants())
    scene.put(tenant="system")
    assert not scene.run(HasTenants())
    add(scene)
    assert not scene.run(HasTenants())
    scene.put(tenant=name)
    assert scene.run(HasTenants()), "before any worker made it known"
    add(scene)
    assert scene.run(HasTenants())


def test_a_tenant_that_was_set_is_known_without_a_job(scene: Scene) -> None:
    scene.put(tenant="system")
    setting(scene, weight=2.0)
    assert scene.run(HasTenants())


# Scope.


@pytest.mark.parametrize("foreign", ["bolt", "", "ACME", "acme ", "acm", "acme%", "%", "*"])
def test_a_foreign_tenant_sees_nothing_of_a_tenant(scene: Scene, foreign: str) -> None:
    scene.put(tenant="acme")
    setting(scene, weight=3.0, tier="gold")
    assert get(scene, "acme", only(foreign)) is None
    assert names(scene, only(foreign)) == []


def test_a_tenant_sees_itself_and_only_that(scene: Scene) -> None:
    for name in ("acme", "bolt"):
        setting(scene, name, tier="gold")
    assert get(scene, "acme", only("acme")) == get(scene, "acme")
    assert names(scene, only("acme")) == ["acme"]
    assert names(scene, only("acme"), tier="free") == []
    assert [record.target for record in scene.audit(only("acme"))] == ["tenant:acme"]


def test_a_purge_forgets_tenants(scene: Scene) -> None:
    setting(scene, weight=3.0)
    scene.run(Purge())
    assert (names(scene), weights(scene)) == ([], {})
