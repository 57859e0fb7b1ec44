"""What one racer does, by the store's own clock, as fast as it can."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

from msgspec import Raw

from fairlane.core.ids import JobId, Seq, WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import (
    ALL_TENANTS,
    Cancel,
    Emit,
    Enqueue,
    Fail,
    Reclaim,
    Renew,
    Reprocess,
    Retire,
    TakeSignal,
    Turn,
    TurnResult,
)
from fairlane.core.outcome import Outcome, Suspension
from fairlane.stores.base import Store
from fairlane.testing.conformance.samples import Making, completed, released, retried, snoozed
from fairlane.testing.conformance.scene import wanting
from tests.races.limits import LIMITING
from tests.races.records import KEEPING

TENANTS = ("acme", "bolt", "coil")


def enqueue_keys(store: Store, number: int, *, key: str, keys: int, rounds: int, batch: int) -> Any:
    """Enqueue a job for every key again and again, in an order of one's own; tells which job stands for each key."""
    making, order = Making(1000 + number), random.Random(number)
    names = [f"key-{n}" for n in range(keys)]
    stands: dict[str, set[str]] = {name: set() for name in names}
    dispositions: Counter[str] = Counter()
    for _ in range(rounds):
        order.shuffle(names)
        for begin in range(0, keys, batch):
            some = names[begin : begin + batch]
            jobs = tuple(making.job(**{key: name}) for name in some)
            for name, receipt in zip(some, store.run(Enqueue(jobs=jobs)).receipts, strict=True):
                stands[name].add(str(receipt.id))
                dispositions[receipt.disposition] += 1
    return {"stands": {name: sorted(ids) for name, ids in stands.items()}, "dispositions": dispositions}


def enqueue_same_jobs(store: Store, number: int, *, jobs: int) -> Any:
    """Enqueue the very jobs everyone else enqueues, as a client does whose replies are lost."""
    making = Making(77)
    specs = [making.job(tenant=TENANTS[n % 3], idempotency_key=f"k{n}") for n in range(jobs)]
    random.Random(number).shuffle(specs)
    receipts = [receipt for spec in specs for receipt in store.run(Enqueue(jobs=(spec,))).receipts]
    return Counter(receipt.disposition for receipt in receipts)


class Hand:
    """A worker of one racer."""

    def __init__(self, store: Store, making: Making, lease_s: float) -> None:
        self.store, self.worker, self.claim_no = store, making.worker_id(), 0
        store.run(Renew(worker=self.worker, lease_s=lease_s))

    def turn(self, limit: int, *outcomes: Outcome, start: int | None = None) -> TurnResult:
        self.claim_no += 1
        wants = (wanting(limit, start=start),) if limit else ()
        return self.store.run(Turn(worker=self.worker, claim_no=self.claim_no, outcomes=outcomes, wants=wants))


def claim_and_complete(store: Store, number: int, *, batch: int) -> Any:
    """Claim and complete until nothing is left; tells every job claimed and every outcome refused."""
    hand = Hand(store, Making(2000 + number), lease_s=600)
    claimed: list[str] = []
    refused = 0
    leases: tuple[Lease, ...] = ()
    while True:
        result = hand.turn(batch, *map(completed, leases))
        refused += len(result.refused)
        leases = result.leases
        claimed += [str(lease.id) for lease in leases]
        if not leases:
            return {"claimed": claimed, "refused": refused, "worker": str(hand.worker)}


def live_dangerously(store: Store, number: int, *, jobs: list[list[Any]], steps: int) -> Any:
    """Claim, settle, die, cancel, fail and reclaim at random; tells which completions were accepted."""
    making, chance = Making(3000 + number), random.Random(number)
    hand = Hand(store, making, lease_s=600)
    held: list[Lease] = []
    accepted: list[list[Any]] = []
    for _ in range(steps):
        die = chance.random()
        job = JobId(UUID(chance.choice(jobs)[0]))
        if die < 0.5:
            outcomes = [chance.choice((completed, completed, released, lambda one: retried(one, 0.0)))(x) for x in held]
            result = hand.turn(chance.choice((1, 3)), *outcomes, start=chance.choice((0, 3)))
            lost = {(refusal.seq, refusal.attempt) for refusal in result.refused}
            accepted += [
                [outcome.seq, outcome.attempt]
                for outcome in outcomes
                if type(outcome).__name__ == "Completed" and (outcome.seq, outcome.attempt) not in lost
            ]
            held = list(result.leases)
        elif die < 0.7:
            # It goes on as if nothing had happened while everyone may take its jobs.
            store.run(Renew(worker=hand.worker, lease_s=0.0))
        elif die < 0.8:
            hand, held = Hand(store, making, lease_s=600), []
        elif die < 0.85:
            store.run(Cancel(scope=ALL_TENANTS, id=job, by=f"racer {number}"))
        elif die < 0.9:
            store.run(Fail(scope=ALL_TENANTS, id=job, by=f"racer {number}", reason="race", retry_delay_s=0.0))
        elif die < 0.95:
            store.run(Reclaim(limit=3))
        else:
            store.run(Renew(worker=hand.worker, lease_s=600))
    store.run(Retire(worker=hand.worker))
    return accepted


def send_one_turn(store: Store, number: int, *, worker: str, limit: int) -> Any:
    """Send the same Turn as everyone else."""
    turn = Turn(worker=WorkerId(UUID(worker)), claim_no=1, wants=(wanting(limit),))
    return [str(lease.id) for lease in store.run(turn).leases]


def reprocess(store: Store, number: int, *, letters: list[int]) -> Any:
    """Reprocess the same dead letters as everyone else; tells the job that stands for each."""
    making = Making(4000 + number)
    stands = []
    for letter in letters:
        by = f"racer {number}"
        act = store.run(Reprocess(scope=ALL_TENANTS, id=Seq(letter), by=by, new_job_id=making.job_id()))
        stands.append([str(act.new_job.id) if act.new_job else None, act.repeated])
    return stands


def use_one_key(store: Store, number: int, *, rounds: int) -> Any:
    """Enqueue under one dedup key and work it off, over and over; tells how many jobs were created here."""
    making = Making(5000 + number)
    hand = Hand(store, making, lease_s=600)
    created = 0
    for _ in range(rounds):
        [receipt] = store.run(Enqueue(jobs=(making.job(dedup_key="only one"),))).receipts
        created += receipt.disposition == "created"
        hand.turn(0, *map(completed, hand.turn(2).leases))
    return created


def wait_or_emit(store: Store, number: int, *, seqs: list[int], emitters: int) -> Any:
    """The first racers emit one signal for each job; the others claim jobs and let each wait for its own signal."""
    making = Making(9000 + number)
    if number < emitters:
        for seq in seqs[number::emitters]:
            own_id, deliver = making.job_id(), seq % 2 == 0
            store.run(Emit(id=own_id, tenant="acme", name="paid", key=str(seq), data=Raw(b"%d" % seq), deliver=deliver))
        return 0
    hand, waits, idle = Hand(store, making, lease_s=600), 0, 0
    while idle < 3:
        leases = hand.turn(2).leases
        idle = 0 if leases else idle + 1
        for lease in leases:
            attempt = {"worker": hand.worker, "seq": lease.seq, "attempt": lease.attempt, "claim_no": lease.claim_no}
            answer = store.run(TakeSignal(**attempt, n=1, name="paid", key=str(lease.seq)))
            if answer.step is None:
                waits += 1
                suspension = Suspension(n=1, name="paid", signal=True, key=str(lease.seq))
                hand.turn(0, snoozed(lease, 3600.0, suspension=suspension))
            else:
                hand.turn(0, completed(lease))
    return waits


STORIES: dict[str, Callable[..., Any]] = (
    {
        story.__name__: story
        for story in (
            enqueue_keys,
            enqueue_same_jobs,
            claim_and_complete,
            live_dangerously,
            send_one_turn,
            reprocess,
            use_one_key,
            wait_or_emit,
        )
    }
    | KEEPING
    | LIMITING
)
