"""Rates: never more claims than so many in any span of the period; what never started is given back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fairlane.core.job import Lease
from fairlane.core.limits import NO_LIMIT, Limit, LimitKey, LimitsInForce, Rate
from fairlane.core.ops import ALL_TENANTS, Lapse, Reset, Start, Take
from fairlane.testing.conformance.limits import (
    HERE,
    each_kind,
    got,
    put,
    queue,
    rate,
    set_limit,
    task,
    tenant,
    why,
)
from fairlane.testing.conformance.samples import OUTCOMES, completed, crashed, released
from fairlane.testing.conformance.scene import Scene, wanting

pytestmark = pytest.mark.requirement("I5")

TWO = rate(2, 10)
RATES = each_kind(rate=TWO)
each_rate = pytest.mark.parametrize("limit", RATES.values(), ids=list(RATES))


@each_rate
@pytest.mark.parametrize("by", ["given", "set"])
def test_no_more_are_claimed_in_a_period_than_the_rate_says(scene: Scene, limit: Limit, by: str) -> None:
    jobs = put(scene, 6)
    given = (limit,) if by == "given" else ()
    if by == "set":
        set_limit(scene, limit)
    assert got(scene, *given) == jobs[:2]
    scene.later(9.999999)
    assert got(scene, *given) == []
    scene.later(0.000001)
    assert got(scene, *given) == jobs[2:4]


@pytest.mark.parametrize("by", ["given", "set"])
def test_a_spread_rate_claims_one_at_a_time(scene: Scene, by: str) -> None:
    limit, jobs = each_kind(rate=Rate(5, 1, spread=True))["queue"], put(scene, 3)
    given = (limit,) if by == "given" else ()
    if by == "set":
        set_limit(scene, limit)
    for job in jobs:
        assert got(scene, *given) == [job]
        scene.later(0.199999)
        assert got(scene, *given) == []
        scene.later(0.000001)


@each_rate
def test_the_period_slides_with_each_claim(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 6)
    assert got(scene, limit, limit=1) == jobs[:1]
    scene.later(4)
    assert got(scene, limit) == jobs[1:2]
    scene.later(6)
    assert got(scene, limit) == jobs[2:3]
    scene.later(3.9)
    assert got(scene, limit) == []
    scene.later(0.1)
    assert got(scene, limit) == jobs[3:4]


@pytest.mark.parametrize("kind", [kind for kind in OUTCOMES if kind != "released"])
def test_the_end_of_an_attempt_gives_no_token_back(scene: Scene, kind: str) -> None:
    put(scene, 4)
    limit = RATES["queue"]
    worker = scene.hire(6000)
    for lease in scene.prefetch(worker, 9, queues=("bulk",), limits=(limit,)):
        scene.settle(worker, OUTCOMES[kind](lease))
    assert got(scene, limit) == []


GIVEN_BACK: dict[str, Callable[[Scene, object, Lease], object]] = {
    "released": lambda scene, worker, lease: scene.settle(worker, released(lease)),  # type: ignore[arg-type]
    "retired": lambda scene, worker, lease: scene.retire(worker),  # type: ignore[arg-type]
    "lapsed": lambda scene, worker, lease: (scene.later(4), scene.reclaim()),
    "lapsed, found by a turn": lambda scene, worker, lease: (scene.later(4), scene.turn(scene.hire())),
    "seen dead by its foreman": lambda scene, worker, lease: scene.run(Lapse(worker=worker)),  # type: ignore[arg-type]
    "past its start-by": lambda scene, worker, lease: (scene.later(3), scene.reclaim()),
    "reset by hand": lambda scene, worker, lease: scene.run(Reset(scope=ALL_TENANTS, id=lease.id, by="ada")),
}
each_way_back = pytest.mark.parametrize("way", GIVEN_BACK)


def lease_one(scene: Scene, limit: Limit, *, started: bool) -> tuple[object, Lease]:
    """Under a rate of two: one claimed before by somebody else, this one last."""
    assert len(got(scene, limit, limit=1)) == 1
    worker = scene.hire(4)
    want = wanting(9, start=int(started), queues=("bulk",), start_by_s=3, timeout_s=1.5)
    [lease] = scene.turn(worker, want, limits=(limit,)).leases
    assert got(scene, limit) == []
    return worker, lease


@each_way_back
@pytest.mark.parametrize("kind", ["tenant", "named"])
def test_an_attempt_that_never_started_gives_its_token_back(scene: Scene, kind: str, way: str) -> None:
    put(scene, 4)
    limit = RATES[kind]
    worker, lease = lease_one(scene, limit, started=False)
    GIVEN_BACK[way](scene, worker, lease)
    assert got(scene, limit) == [lease.id]
    assert got(scene, limit) == []


@each_way_back
@pytest.mark.parametrize("kind", ["tenant", "named"])
def test_an_attempt_that_had_started_gives_nothing_back(scene: Scene, kind: str, way: str) -> None:
    put(scene, 4)
    limit = RATES[kind]
    worker, lease = lease_one(scene, limit, started=True)
    GIVEN_BACK[way](scene, worker, lease)
    assert got(scene, limit) == []


@pytest.mark.parametrize("way", ["released", "retired", "lapsed", "reset by hand"])
def test_a_start_reported_later_counts_as_started(scene: Scene, way: str) -> None:
    put(scene, 4)
    limit = RATES["queue"]
    worker, lease = lease_one(scene, limit, started=False)
    scene.start(worker, lease)  # type: ignore[arg-type]
    GIVEN_BACK[way](scene, worker, lease)
    assert got(scene, limit) == []


@pytest.mark.parametrize("outcome", [lambda lease: released(lease, ran_s=0.5), crashed], ids=["ran a while", "crashed"])
def test_a_start_that_only_the_outcome_tells_of_gives_nothing_back(
    scene: Scene, outcome: Callable[[Lease], object]
) -> None:
    put(scene, 4)
    limit = RATES["type"]
    worker, lease = lease_one(scene, limit, started=False)
    scene.settle(worker, outcome(lease))  # type: ignore[arg-type]
    assert got(scene, limit) == []


def test_a_start_that_only_the_foreman_knows_of_gives_nothing_back(scene: Scene) -> None:
    put(scene, 4)
    limit = RATES["tenant"]
    worker, lease = lease_one(scene, limit, started=False)
    start = Start(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, timeout_s=5)
    scene.run(Lapse(worker=worker, starts=(start,)))  # type: ignore[arg-type]
    assert got(scene, limit) == []


@pytest.mark.parametrize("way", ["released", "retired", "lapsed", "past its start-by", "reset by hand"])
def test_a_token_comes_back_though_the_job_ends_cancelled(scene: Scene, way: str) -> None:
    put(scene, 4)
    limit = RATES["queue"]
    worker, lease = lease_one(scene, limit, started=False)
    scene.cancel(lease.id)
    GIVEN_BACK[way](scene, worker, lease)
    assert scene.status(lease.id) == "cancelled"
    assert len(got(scene, limit)) == 1


def test_what_is_given_back_comes_back_under_every_key(scene: Scene) -> None:
    put(scene, 4)
    every = tuple(RATES.values())
    worker = scene.hire(6000)
    leases = scene.prefetch(worker, 9, queues=("bulk",), limits=every)
    assert len(leases) == 2
    scene.settle(worker, *(released(lease) for lease in leases))
    for limit in every:
        again = scene.hire(6000)
        leases = scene.prefetch(again, 9, queues=("bulk",), limits=(limit,))
        assert len(leases) == 2
        scene.retire(again)


def test_a_token_is_given_back_once_however_often_it_is_reported(scene: Scene) -> None:
    put(scene, 6)
    limit = RATES["queue"]
    worker, lease = lease_one(scene, limit, started=False)
    for _ in range(3):
        assert scene.settle(worker, released(lease)).refused == ()  # type: ignore[arg-type]
    assert len(got(scene, limit)) == 1


def test_a_late_release_gives_back_nothing_of_the_next_attempt(scene: Scene) -> None:
    put(scene, 3)
    limit = RATES["queue"]
    worker, lease = lease_one(scene, limit, started=False)
    scene.settle(worker, released(lease))  # type: ignore[arg-type]
    assert got(scene, limit) == [lease.id]
    scene.settle(worker, released(lease))  # type: ignore[arg-type]
    assert got(scene, limit) == []


@each_rate
def test_an_attempt_from_before_the_rate_gives_back_nothing_of_the_others(scene: Scene, limit: Limit) -> None:
    put(scene, 6)
    worker = scene.hire(6000)
    [lease] = scene.prefetch(worker, 1, queues=("bulk",))
    assert len(got(scene, limit)) == 2
    scene.settle(worker, released(lease))
    assert got(scene, limit) == []


def test_a_repeated_turn_takes_no_more_tokens(scene: Scene) -> None:
    jobs = put(scene, 6)
    limit = queue("bulk", rate=rate(3, 10))
    worker, want = scene.hire(6000), wanting(2, queues=("bulk",))
    leases = scene.turn(worker, want, claim_no=7, limits=(limit,)).leases
    assert scene.turn(worker, want, claim_no=7, limits=(limit,)).leases == leases
    assert got(scene, limit) == jobs[2:3]


@each_rate
def test_a_rate_of_nothing_lets_nothing_through(scene: Scene, limit: Limit) -> None:
    put(scene)
    none = Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, rate=rate(0, 10))
    assert got(scene, none) == []
    scene.later(100)
    assert got(scene, none) == []


@each_rate
def test_no_limit_said_by_a_person_frees_from_the_rate_of_the_code(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 4)
    set_limit(scene, Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, rate=rate(NO_LIMIT)))
    assert got(scene, limit) == jobs


@each_rate
def test_a_raised_rate_counts_what_was_claimed_before(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 6)
    assert got(scene, limit) == jobs[:2]
    set_limit(scene, Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, rate=rate(3, 10)))
    assert got(scene, limit) == jobs[2:3]


@each_rate
def test_a_lowered_rate_waits_until_enough_is_over(scene: Scene, limit: Limit) -> None:
    jobs = put(scene, 6)
    assert got(scene, limit, limit=1) == jobs[:1]
    scene.later(5)
    assert got(scene, limit) == jobs[1:2]
    set_limit(scene, Limit(kind=limit.kind, name=limit.name, queue=limit.queue, types=limit.types, rate=rate(1, 10)))
    scene.later(9)
    assert got(scene, limit) == []
    scene.later(1)
    assert got(scene, limit) == jobs[2:3]


def test_claims_from_before_there_was_a_rate_do_not_count(scene: Scene) -> None:
    jobs = put(scene, 6)
    assert got(scene, limit=2) == jobs[:2]
    assert got(scene, RATES["queue"]) == jobs[2:4]


def test_each_tenant_has_the_rate_of_every_tenant_for_itself(scene: Scene) -> None:
    acme, bolt = put(scene, 3), put(scene, 3, tenant="bolt")
    assert got(scene, RATES["every tenant"]) == [acme[0], bolt[0], acme[1], bolt[1]]


def test_a_tenants_own_rate_wins_over_that_of_every_tenant(scene: Scene) -> None:
    acme, bolt = put(scene, 3), put(scene, 3, tenant="bolt")
    assert got(scene, RATES["every tenant"], tenant("bolt", rate=rate(1))) == [acme[0], bolt[0], acme[1]]


def test_tasks_under_one_name_share_its_rate(scene: Scene) -> None:
    [report], [printed] = put(scene), put(scene, type="report.print")
    put(scene)
    [other] = put(scene, type="other")
    assert got(scene, RATES["named"]) == [report, printed, other]


def test_the_slowest_of_several_rates_decides(scene: Scene) -> None:
    jobs = put(scene, 6)
    limits = (queue("bulk", rate=rate(4, 10)), task("report.make", rate=rate(1, 1)), tenant("acme", running=2))
    assert got(scene, *limits) == jobs[:1]
    scene.later(1)
    assert got(scene, *limits) == jobs[1:2]
    scene.later(1)
    assert got(scene, *limits) == []


def test_a_rate_reached_by_the_first_want_holds_for_the_second(scene: Scene) -> None:
    jobs = put(scene, 4)
    wants = (wanting(1, lane="fast", queues=("bulk",)), wanting(9, lane="general", queues=("bulk",)))
    result = scene.turn(scene.hire(), *wants, limits=(RATES["type"],))
    assert [(lease.lane, lease.id) for lease in result.leases] == [("fast", jobs[0]), ("general", jobs[1])]


def test_takes_heed_rates(scene: Scene) -> None:
    jobs = put(scene, 4)
    take = Take(queue="bulk", band=5, tenant="acme", limit=9)
    assert got(scene, RATES["queue"], takes=(take,), discover=False) == jobs[:2]
    assert got(scene, RATES["queue"], takes=(take,), discover=False) == []


def test_in_any_span_of_the_period_there_are_never_more_than_the_rate_says(scene: Scene) -> None:
    limit, claims = queue("bulk", rate=rate(3, 5)), []
    scene.enqueue(*(scene.job(**HERE) for _ in range(40)))
    for step in (0.5, 0.7, 1.1, 0.2, 3.0, 0.1, 2.2, 0.4, 0.9, 1.3) * 2:
        claims += [scene.now] * len(got(scene, limit, limit=2))
        scene.later(step)
    for at in claims:
        span = [other for other in claims if 0 <= (other - at).total_seconds() < 5]
        assert len(span) <= 3
    assert len(claims) >= 3 * int(sum((0.5, 0.7, 1.1, 0.2, 3.0, 0.1, 2.2, 0.4, 0.9, 1.3)) * 2 / 5)


def test_a_turn_hints_at_when_a_rate_lets_the_next_one_through(scene: Scene) -> None:
    put(scene, 4)
    limit, first = RATES["queue"], scene.now
    got(scene, limit, limit=1)
    scene.later(4)
    got(scene, limit, limit=1)
    result = scene.turn(scene.hire(), wanting(1, queues=("bulk",)), limits=(limit,))
    assert result.limited_until == first + (scene.at(10) - scene.now)


def test_a_worker_that_settles_in_the_turn_still_waits_for_the_rate(scene: Scene) -> None:
    put(scene, 4)
    worker = scene.hire(6000)
    leases = scene.claim(worker, 9, queues=("bulk",), limits=(RATES["tenant"],))
    done = tuple(completed(lease) for lease in leases)
    result = scene.turn(worker, wanting(9, queues=("bulk",)), outcomes=done, limits=(RATES["tenant"],))
    assert result.leases == ()


def test_the_rate_in_force_is_the_one_shown_by_why(scene: Scene) -> None:
    [job] = put(scene)
    limit = RATES["tenant"]
    [state] = why(scene, job, limit).limits
    assert state.rate == LimitsInForce([limit]).rate(LimitKey("tenant", "acme"))


def test_a_claim_that_meets_tenants_in_several_lots_counts_each_job_once(scene: Scene) -> None:
    limit = queue("bulk", rate=rate(4, 10))
    for other in ("aa", "ab", "ac"):
        put(scene, tenant=other, type="not.known.here")
    jobs = put(scene, 6)
    assert got(scene, limit, limit=2, types=("report.make",)) == jobs[:2]
    assert got(scene, limit, types=("report.make",)) == jobs[2:4]


def test_the_rate_of_one_queue_counts_no_job_of_the_next_in_the_same_claim(scene: Scene) -> None:
    limit = queue("bulk", running=1, rate=rate(3, 10))
    jobs = put(scene, 4)
    others = put(scene, 3, queue="default")
    worker = scene.hire(6000)
    first, *rest = scene.turn(worker, wanting(9, queues=("bulk", "default")), limits=(limit,)).leases
    assert [first.id, *(lease.id for lease in rest)] == jobs[:1] + others
    scene.settle(worker, completed(first))
    assert got(scene, limit) == jobs[1:2]
    assert why(scene, jobs[2], limit).limits[0].starts == 2
