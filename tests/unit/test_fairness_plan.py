"""A lane asks its known lines first, looks round when it should, and shares every claim fairly."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest

from fairlane.core.chance import FixedChance
from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.ids import JobId, WorkerId, uuid7
from fairlane.core.job import JobSpec, PriorityScope
from fairlane.core.limits import Limit
from fairlane.core.ops import Enqueue, Renew, Turn, TurnResult, Want
from fairlane.core.outcome import Completed
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import Raw

CHANCE = FixedChance(7)
WORKER = WorkerId(uuid7(1, CHANCE.entropy(10)))


class Lane:
    """A planner at work on a memory store; every turn takes a hundredth of a second, a look round as long as the test says."""

    def __init__(
        self, look_s: float = 0.01, types: tuple[str, ...] = ("noop",), limits: tuple[Limit, ...] = ()
    ) -> None:
        self.store, self.planner = MemoryStore(), ClaimPlanner("general", ("urgent", "default"), types)
        self.look_s, self.claim_no, self.now_s, self.limits = look_s, 0, 100.0, limits
        self.store.run(Renew(worker=WORKER, lease_s=1e6))

    def put(
        self,
        count: int,
        tenant: str,
        queue: str = "default",
        priority: int = 5,
        type: str = "noop",
        scope: PriorityScope = "queue",
    ) -> None:
        jobs = tuple(
            JobSpec(
                id=JobId(uuid7(1, CHANCE.entropy(10))),
                type=type,
                payload=Raw(b"{}"),
                tenant=tenant,
                queue=queue,
                priority=priority,
                priority_scope=scope,
            )
            for _ in range(count)
        )
        self.store.run(Enqueue(jobs=jobs))

    def turn(self, limit: int, *, woken: bool = False, settle: bool = True) -> tuple[Want, TurnResult]:
        self.claim_no += 1
        want = self.planner.want(limit, self.now_s, woken=woken)
        answer = self.store.run(Turn(worker=WORKER, claim_no=self.claim_no, wants=(want,), limits=self.limits))
        took_s = self.look_s if is_look(want) else 0.01
        self.now_s += took_s
        self.planner.learn(want, answer, took_s, self.now_s)
        self.now_s += 0.0001
        if not settle:
            return want, answer
        self.claim_no += 1
        ended = tuple(
            Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no) for lease in answer.leases
        )
        self.store.run(Turn(worker=WORKER, claim_no=self.claim_no, outcomes=ended))
        return want, answer


def is_look(want: Want) -> bool:
    """From the heads of the lines, with something left for discovery."""
    return sum(take.limit for take in want.takes) < want.limit and all(take.after is None for take in want.takes)


def test_after_a_full_batch_it_goes_on_from_the_marks_of_its_lines() -> None:
    lane = Lane()
    lane.put(50, "acme")
    assert is_look(lane.turn(10)[0])
    want, answer = lane.turn(10)
    assert not is_look(want)
    assert [take.tenant for take in want.takes] == ["acme"]
    assert len(answer.leases) == 10


def test_a_short_batch_or_a_wake_up_makes_it_look_round() -> None:
    lane = Lane(look_s=0.015)
    lane.put(15, "acme")
    lane.turn(10)
    assert len(lane.turn(10)[1].leases) == 5
    assert is_look(lane.turn(10)[0])
    lane.put(50, "acme")
    lane.turn(10)
    assert not is_look(lane.turn(10)[0])
    assert is_look(lane.turn(10, woken=True)[0])


def slow_lane(*tenants: str) -> Lane:
    """A lane that has claimed all jobs of these tenants, and whose looks take long."""
    lane = Lane(look_s=0.1)
    for tenant in tenants:
        lane.put(30, tenant)
    while lane.turn(10)[1].leases or lane.planner.is_searching or lane.planner.looks_at_s is not None:
        lane.now_s = max(lane.now_s, lane.planner.looks_at_s or 0.0)
    lane.turn(10, woken=True)
    return lane


@pytest.mark.requirement("W5")
def test_where_looks_are_slow_a_job_at_the_end_of_a_line_claimed_before_is_found_without_one() -> None:
    lane = slow_lane("acme", "umbrella", "zeta")
    for tenant in ("zeta", "acme", "umbrella"):
        lane.put(1, tenant)
        want, answer = lane.turn(10, woken=True)
        assert not want.discover
        assert [lease.tenant for lease in answer.leases] == [tenant]


@pytest.mark.requirement("W5")
def test_where_looks_are_slow_a_lane_woken_after_a_while_asks_behind_its_marks_first_and_then_looks() -> None:
    lane = slow_lane("acme")
    lane.now_s += 60.0
    lane.put(1, "acme")
    lane.put(1, "newcomer")
    want, answer = lane.turn(10, woken=True)
    assert not want.discover
    assert [lease.tenant for lease in answer.leases] == ["acme"]
    assert lane.planner.is_searching
    want, answer = lane.turn(10)
    assert want.discover
    assert [lease.tenant for lease in answer.leases] == ["newcomer"]


@pytest.mark.requirement("W5")
def test_where_looks_are_slow_what_only_a_look_finds_waits_no_longer_than_its_pause() -> None:
    lane = slow_lane("acme")
    lane.put(1, "newcomer")
    lane.put(1, "acme", priority=0)
    assert lane.turn(10, woken=True)[1].leases == ()
    assert lane.planner.looks_at_s is not None
    assert lane.planner.looks_at_s - lane.now_s <= 0.5
    lane.now_s = lane.planner.looks_at_s
    assert len(lane.turn(10, woken=True)[1].leases) == 2
    assert lane.planner.looks_at_s is None


@pytest.mark.requirement("W5", "I3")
def test_where_looks_are_slow_what_a_limit_held_back_is_claimed_as_soon_as_there_is_room() -> None:
    lane = Lane(look_s=0.1, limits=(Limit(kind="type", name="noop", running=2),))
    lane.put(100, "acme")
    began_s = lane.now_s
    got = [lane.turn(10, woken=True)[1].leases for _ in range(50)]
    assert [len(leases) for leases in got] == [2] * 50
    assert lane.now_s - began_s < 50 * 0.1


@pytest.mark.requirement("W5")
def test_where_looks_are_slow_a_line_that_ends_leaves_its_share_to_the_others() -> None:
    lane = slow_lane("acme", "umbrella")
    lane.put(8, "acme")
    lane.put(100, "umbrella")
    lane.now_s += 1.0
    got = [len(lane.turn(10, woken=True)[1].leases)]
    while got[-1] == 10 or lane.planner.is_searching:
        got.append(len(lane.turn(10)[1].leases))
    assert sum(got) == 108
    assert len(got) <= 14


def test_a_look_that_the_store_broke_off_goes_on_from_there() -> None:
    lane = Lane()
    want = lane.planner.want(5, lane.now_s)
    answer = msgspec.structs.replace(
        lane.store.run(Turn(worker=WORKER, claim_no=1, wants=(want,))), cursors={"general": "t255"}
    )
    lane.planner.learn(want, answer, 0.01, lane.now_s + 0.01)
    assert lane.planner.want(5, lane.now_s + 0.02, woken=True).cursor == "t255"


def test_looking_round_stays_within_a_fifth_of_the_time() -> None:
    lane = Lane(look_s=0.05)
    lane.put(5_000, "acme")
    began_s, looks = lane.now_s, sum(is_look(lane.turn(5)[0]) for _ in range(500))
    assert 0.1 <= looks * 0.04 / (lane.now_s - began_s) <= 0.2


def test_a_look_that_costs_nothing_more_than_a_plain_claim_is_taken_every_time() -> None:
    lane = Lane(look_s=0.01)
    lane.put(1_000, "acme")
    assert sum(is_look(lane.turn(5)[0]) for _ in range(100)) >= 95


def test_under_limits_a_full_claim_is_followed_by_a_look_every_50_ms_and_a_wake_up_or_a_short_one_at_once() -> None:
    lane = Lane(limits=(Limit(kind="type", name="noop", running=9),))
    lane.put(60, "acme")
    for _ in range(10):
        lane.turn(1)
    assert 3 <= sum(is_look(lane.turn(1)[0]) for _ in range(20)) <= 5  # in 0.2 s
    assert is_look(lane.turn(1, woken=True)[0])
    assert not is_look(lane.turn(1)[0])
    lane.put(1, "urban", priority=0)
    served = [lane.turn(1)[1].leases[0].tenant for _ in range(5)]
    assert "urban" in served
    lane.turn(60)
    assert is_look(lane.turn(1)[0])


def test_where_hundreds_are_claimed_at_a_time_most_claims_go_on_from_the_marks() -> None:
    lane = Lane(look_s=0.01)
    lane.put(10_000, "acme")
    assert 4 <= sum(is_look(lane.turn(500)[0]) for _ in range(20)) <= 8


@pytest.mark.requirement("W14")
def test_a_tenant_that_comes_while_a_flood_is_served_waits_half_a_second_at_most_however_slow_a_look_is() -> None:
    lane = Lane(look_s=3.0)
    lane.put(5_000, "acme")
    lane.turn(10)
    lane.put(1, "zeta")
    came_s, lane.look_s = lane.now_s, 0.01
    while not any(lease.tenant == "zeta" for lease in lane.turn(10)[1].leases):
        assert lane.now_s - came_s < 0.6


@pytest.mark.requirement("W14")
def test_known_lines_share_each_claim_fairly() -> None:
    lane = Lane()
    for tenant in ("acme", "beta", "corp"):
        lane.put(200, tenant)
    served: Counter[str] = Counter()
    for _ in range(30):
        served.update(lease.tenant for lease in lane.turn(10)[1].leases)
    assert max(served.values()) - min(served.values()) <= 1


@pytest.mark.requirement("W14")
def test_claims_of_one_job_go_round_the_tenants() -> None:
    lane = Lane(look_s=0.001)
    for tenant in ("acme", "beta", "corp"):
        lane.put(20, tenant)
    order = [lane.turn(1)[1].leases[0].tenant for _ in range(9)]
    assert Counter(order) == {"acme": 3, "beta": 3, "corp": 3}
    assert all(order[i : i + 3].count(order[i]) == 1 for i in range(7))


def test_the_most_urgent_known_lines_come_first() -> None:
    lane = Lane()
    lane.put(5, "acme", priority=0)
    lane.put(50, "acme", priority=5)
    lane.put(5, "acme", queue="urgent", priority=9)
    leases = lane.turn(8)[1].leases
    assert [(lease.queue, lease.band) for lease in leases] == [("urgent", 9)] * 5 + [("default", 0)] * 3


def test_nothing_is_left_behind_whatever_the_marks() -> None:
    lane = Lane(look_s=0.05)
    for tenant in ("acme", "beta"):
        lane.put(37, tenant)
    done = 0
    for _ in range(60):
        done += len(lane.turn(4)[1].leases)
    assert done == 74


def test_one_lane_never_searches_the_queues_of_another() -> None:
    lane = Lane()
    lane.put(10, "acme", queue="elsewhere")
    fast = lane.planner.want(10, lane.now_s)
    other = Want(lane="other", queues=("elsewhere",), limit=3, types=("unknown",))
    lane.planner.learn(fast, lane.store.run(Turn(worker=WORKER, claim_no=1, wants=(fast, other))), 0.01, lane.now_s)
    assert not lane.planner.is_searching
    assert lane.turn(10)[0].takes == ()
