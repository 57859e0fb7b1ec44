"""Lanes of several workers at work on one memory store, on a clock that jumps from event to event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from heapq import heappop, heappush

from fairlane.core.chance import FixedChance
from fairlane.core.clock import FakeClock
from fairlane.core.ids import JobId, WorkerId, uuid7
from fairlane.core.job import JobSpec, Lease
from fairlane.core.limits import Limit
from fairlane.core.ops import Enqueue, Renew, Turn, TurnResult, Want
from fairlane.core.outcome import Completed, Outcome
from fairlane.core.profiles import Lane
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import Raw
from fairlane.worker.lanes import LaneState

TURN_S = 0.002
POLL_S = 0.05


class FairWorks:
    """Jobs of a tenant take as long as `takes_s` says. What every tenant had of the slots is counted in time and in starts."""

    def __init__(
        self, *, workers: int = 1, slots: int = 10, takes_s: Callable[[str], float], batch: int | None = None
    ) -> None:
        self.clock, self.chance = FakeClock(), FixedChance(3)
        self.store, self.takes_s = MemoryStore(clock=self.clock), takes_s
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.number = 0
        self.ran_s: defaultdict[str, float] = defaultdict(float)
        self.started: Counter[str] = Counter()
        self.waited_s: defaultdict[str, list[float]] = defaultdict(list)
        self.since_s = 0.0
        self.crew = [SimulatedWorker(self, slots, batch) for _ in range(workers)]

    def put(self, tenant: str, count: int, priority: int = 5, type: str = "noop") -> None:
        self.store.run(
            Enqueue(
                jobs=tuple(
                    JobSpec(
                        id=JobId(uuid7(1, self.chance.entropy(10))),
                        type=type,
                        payload=Raw(b"{}"),
                        tenant=tenant,
                        priority=priority,
                    )
                    for _ in range(count)
                )
            )
        )

    def at(self, after_s: float, act: Callable[[], None]) -> None:
        self.number += 1
        heappush(self.events, (self.clock.monotonic() + after_s, self.number, act))

    def run(self, for_s: float) -> None:
        """Let so much time go by. Time spent in jobs still running at the end counts, too."""
        until_s = self.clock.monotonic() + for_s
        while self.events and self.events[0][0] <= until_s:
            at_s, _, act = heappop(self.events)
            self.clock.advance(at_s - self.clock.monotonic())
            act()
        self.clock.advance(until_s - self.clock.monotonic())

    def forget(self) -> None:
        """Count from now on."""
        self.ran_s.clear()
        self.started.clear()
        self.waited_s.clear()
        self.since_s = self.clock.monotonic()

    def time_had(self) -> dict[str, float]:
        """By tenant: slot time since `forget`."""
        had, now_s = defaultdict(float, self.ran_s), self.clock.monotonic()
        for worker in self.crew:
            for tenant, began_s in worker.running.values():
                had[tenant] += now_s - max(began_s, self.since_s)
        return dict(had)


class SimulatedWorker:
    def __init__(self, works: FairWorks, slots: int, batch: int | None) -> None:
        self.works, self.batch = works, batch
        self.id = WorkerId(uuid7(2, works.chance.entropy(10)))
        works.store.run(Renew(worker=self.id, lease_s=1e6))
        self.state = LaneState(Lane("general", slots), ("urgent", "default"), ("noop",))
        self.limits: tuple[Limit, ...] = ()
        self.running: dict[int, tuple[str, float]] = {}
        self.outcomes: list[Outcome] = []
        self.claim_no = 0
        self.looks = self.turns = 0
        self.limited = False
        works.at(0.0, self.turn)

    def turn(self) -> None:
        works, state = self.works, self.state
        room = state.free_slots() if self.limited else state.room()
        limit = room if self.batch is None else min(room, self.batch)
        if limit <= 0 and not self.outcomes:
            works.at(TURN_S / 4, self.turn)
            return
        now_s = works.clock.monotonic()
        wants = (state.planner.want(limit, now_s),) if limit > 0 else ()
        self.claim_no += 1
        self.turns += 1
        self.looks += state.planner._is_look
        answer = works.store.run(
            Turn(
                worker=self.id,
                claim_no=self.claim_no,
                outcomes=tuple(self.outcomes),
                wants=wants,
                limits=self.limits,
            )
        )
        self.outcomes = []
        works.at(TURN_S, lambda: self.answered(wants, answer))

    def answered(self, wants: tuple[Want, ...], answer: TurnResult) -> None:
        works, now_s = self.works, self.works.clock.monotonic()
        self.limited = answer.limited
        for want in wants:
            self.state.planner.learn(want, answer, TURN_S, now_s)
            self.state.give(answer.leases, now_s + 50.0, now_s)
        self.fill()
        works.at(0.0 if answer.leases or self.outcomes else TURN_S, self.turn)

    def fill(self) -> None:
        while self.state.held and self.state.running < self.state.config.slots:
            self.begin(self.state.next(self.works.clock.monotonic()))

    def begin(self, lease: Lease) -> None:
        works, now_s = self.works, self.works.clock.monotonic()
        self.state.begin(lease, now_s)
        self.running[lease.seq] = lease.tenant, now_s
        works.started[lease.tenant] += 1
        works.waited_s[lease.tenant].append((works.clock.now() - lease.due_at).total_seconds())
        works.at(works.takes_s(lease.tenant), lambda: self.end(lease, now_s))

    def end(self, lease: Lease, began_s: float) -> None:
        works, now_s = self.works, self.works.clock.monotonic()
        self.state.end(lease, began_s, now_s - began_s)
        del self.running[lease.seq]
        works.ran_s[lease.tenant] += now_s - max(began_s, works.since_s)
        self.outcomes.append(
            Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=now_s - began_s)
        )
        self.fill()


def jain(shares: list[float]) -> float:
    """1: all have the same; 1/n: one has everything."""
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))
