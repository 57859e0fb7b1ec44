"""Shares between tenants: by count where jobs are alike, by time where they are not, at any batch size and over many workers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from fairlane.core.fairness.accounts import Accounts
from fairlane.core.fairness.plan import just_before
from tests.unit.fair_works import FairWorks, jain

FIFTY_MS = 0.05


def weigh(works: FairWorks, **weights: float) -> None:
    for worker in works.crew:
        worker.state.planner.accounts.weigh(weights)


def share(had: dict[str, float], tenant: str) -> float:
    return had.get(tenant, 0.0) / sum(had.values())


@pytest.mark.requirement("W14")
@given(
    takes_ms=st.lists(st.integers(min_value=5, max_value=200), min_size=2, max_size=8),
    slots=st.sampled_from([1, 3, 10]),
    workers=st.sampled_from([1, 3]),
    batch=st.sampled_from([None, 1, 5]),
)
@settings(max_examples=10, deadline=None)
def test_tenants_of_equal_weight_get_equal_time_however_long_their_jobs_are(
    takes_ms: list[int], slots: int, workers: int, batch: int | None
) -> None:
    takes = {f"tenant-{n}": ms / 1000 for n, ms in enumerate(takes_ms)}
    works = FairWorks(workers=workers, slots=slots, takes_s=takes.__getitem__, batch=batch)
    for tenant, s in takes.items():
        works.put(tenant, int(2 * workers * slots / s / len(takes)) + 50)
    works.run(2.0)
    had = works.time_had()
    # What one job makes out cannot be shared: with slots to spare for a round of each it is little.
    granularity = max(takes.values()) * len(takes) / (2.0 * slots)
    assert jain([had.get(tenant, 0.0) for tenant in takes]) >= 0.95 - granularity


@pytest.mark.requirement("W14")
@pytest.mark.parametrize(("slots", "workers", "batch"), [(10, 1, None), (1, 1, None), (10, 1, 1), (1, 4, None)])
def test_weights_of_three_to_one_share_three_to_one_by_count_when_jobs_are_of_equal_length(
    slots: int, workers: int, batch: int | None
) -> None:
    works = FairWorks(workers=workers, slots=slots, takes_s=lambda _: FIFTY_MS, batch=batch)
    weigh(works, big=3.0)
    for tenant in ("big", "small"):
        works.put(tenant, 1500)
    works.run(20.0 / slots + 2.0)
    total = sum(works.started.values())
    assert works.started["big"] / total == pytest.approx(0.75, rel=0.05)


@pytest.mark.requirement("W14")
@pytest.mark.parametrize(("slots", "workers", "batch"), [(10, 1, None), (4, 3, None), (10, 1, 1)])
def test_weights_of_three_to_one_share_three_to_one_by_time_when_lengths_differ(
    slots: int, workers: int, batch: int | None
) -> None:
    works = FairWorks(workers=workers, slots=slots, takes_s={"big": 0.02, "small": 0.15}.__getitem__, batch=batch)
    weigh(works, big=3.0)
    for tenant in ("big", "small"):
        works.put(tenant, 6_000)
    works.run(8.0)
    assert share(works.time_had(), "big") == pytest.approx(0.75, rel=0.05)


@pytest.mark.requirement("W14")
@pytest.mark.parametrize(
    ("slots", "workers", "batch", "quick_s"), [(10, 1, None, FIFTY_MS), (10, 1, 1, 0.25), (5, 2, None, 0.25)]
)
def test_jobs_of_half_a_minute_leave_half_the_slots_to_quick_ones(
    slots: int, workers: int, batch: int | None, quick_s: float
) -> None:
    works = FairWorks(workers=workers, slots=slots, takes_s={"slow": 30.0, "quick": quick_s}.__getitem__, batch=batch)
    works.put("slow", 200)
    works.put("quick", 10_000)
    works.run(75.0)
    had = works.time_had()
    assert jain([had["slow"], had["quick"]]) >= 0.95


@pytest.mark.requirement("W14")
def test_jobs_nobody_has_seen_the_end_of_do_not_take_every_slot() -> None:
    works = FairWorks(slots=10, takes_s={"slow": 30.0, "quick": FIFTY_MS}.__getitem__)
    works.put("slow", 200)
    works.put("quick", 2_000)
    works.run(1.0)
    assert 4 <= sum(tenant == "slow" for tenant, _ in works.crew[0].running.values()) <= 7
    assert works.started["quick"] >= 60


@pytest.mark.requirement("W14")
def test_a_tenant_alone_gets_everything() -> None:
    works = FairWorks(takes_s=lambda _: 0.005)
    works.put("acme", 5_000)
    works.run(2.0)
    assert works.time_had()["acme"] / (2.0 * 10) >= 0.98


@pytest.mark.requirement("W14")
def test_fifty_tenants_with_one_job_each_start_at_once_beside_a_flood() -> None:
    works = FairWorks(takes_s=lambda _: 0.005)
    works.put("flood", 10_000)
    works.run(1.0)
    for n in range(50):
        works.put(f"tenant-{n:02}", 1)
    works.run(0.2)
    waits = [wait for tenant, spans in works.waited_s.items() if tenant != "flood" for wait in spans]
    assert len(waits) == 50
    assert max(waits) < 0.05


@pytest.mark.requirement("W14")
def test_a_newcomer_has_no_credit_for_the_time_before_it_came() -> None:
    works = FairWorks(takes_s=lambda _: FIFTY_MS)
    works.put("old", 5_000)
    works.run(10.0)
    works.forget()
    works.put("new", 2_000)
    works.run(3.0)
    assert share(works.time_had(), "new") == pytest.approx(0.5, abs=0.03)


@pytest.mark.requirement("W14")
def test_a_tenant_that_comes_back_has_saved_nothing_and_owes_nothing_for_others() -> None:
    works = FairWorks(takes_s=lambda _: FIFTY_MS)
    works.put("steady", 10_000)
    works.put("moody", 200)
    works.run(10.0)
    works.forget()
    works.put("moody", 2_000)
    works.put("fresh", 2_000)
    works.run(3.0)
    assert jain(list(works.time_had().values())) >= 0.99


@pytest.mark.requirement("W14")
def test_what_one_tenant_does_not_use_goes_to_the_others_at_once() -> None:
    works = FairWorks(takes_s=lambda _: FIFTY_MS)
    weigh(works, small=9.0)
    works.put("small", 30)
    works.put("large", 5_000)
    works.run(3.0)
    assert sum(works.time_had().values()) / (3.0 * 10) >= 0.97


def test_a_tenant_whose_jobs_nobody_here_knows_keeps_no_other_from_its_share() -> None:
    works = FairWorks(takes_s=lambda _: FIFTY_MS)
    works.put("foreign", 1_500, type="unknown")
    works.put("foreign", 5)
    for tenant in ("acme", "beta"):
        works.put(tenant, 1_000)
    works.run(2.0)
    assert works.started["foreign"] == 5
    assert sum(works.time_had().values()) / (2.0 * 10) >= 0.95
    works.forget()
    works.put("new", 1_000)
    works.run(2.0)
    assert works.started["new"] == pytest.approx(works.started["acme"], rel=0.1)


@given(st.text(min_size=1, max_size=8), st.text(max_size=8))
def test_a_look_begins_with_the_tenant_it_is_meant_for(tenant: str, other: str) -> None:
    if any(ord(letter) < 32 or 0xD800 <= ord(letter) <= 0xDFFF for letter in tenant + other):
        return
    cursor = just_before(tenant)
    assert cursor < tenant
    assert not cursor < other < tenant or "\U0010ffff" in other


def test_accounts_of_tenants_long_gone_are_forgotten() -> None:
    accounts = Accounts()
    for n in range(12_000):
        tenant = f"tenant-{n}"
        accounts.claim(tenant, 1, 0.0)
        accounts.begin(tenant, 0.0)
        accounts.end(tenant, 0.0, 0.01)
        accounts.leave((tenant,))
    assert sum(accounts.of(f"tenant-{n}") is not None for n in range(12_000)) <= 10_000
