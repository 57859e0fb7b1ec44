"""Claim and settle no-op jobs on `memory://`, beside a loop over the same jobs without any store.

    python bench/memory.py [jobs]

The empty loop does what is left of a worker when claiming and settling cost nothing: decode the payload, call the task, note
that it completed.
"""

from __future__ import annotations

import gc
import sys
from time import perf_counter

from msgspec import Raw
from msgspec.json import Decoder

from fairlane.core.chance import FixedChance
from fairlane.core.ids import JobId, Seq, WorkerId, uuid7
from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import Enqueue, Renew, Turn, Want
from fairlane.core.outcome import Completed, Outcome
from fairlane.stores.sqlite import MemoryStore

BATCH = 100
ROUNDS = 5
CHANCE = FixedChance(1)


def new_id() -> JobId:
    return JobId(uuid7(1, CHANCE.entropy(10)))


decode = Decoder(dict[str, int]).decode


def noop(user_id: int) -> None:
    return None


def execute(payload: str, seq: Seq, attempt: int, claim_no: int) -> Outcome:
    noop(**decode(payload))
    return Completed(seq=seq, attempt=attempt, claim_no=claim_no, ran_s=0.0)


def make_jobs(count: int, tenants: int) -> list[JobSpec]:
    names = [f"tenant-{n}" for n in range(tenants)]
    return [
        JobSpec(id=new_id(), type="noop", payload=Raw(b'{"user_id":7}'), tenant=names[n % tenants])
        for n in range(count)
    ]


def time_empty_loop(payloads: list[str]) -> float:
    began = perf_counter()
    for start in range(0, len(payloads), BATCH):
        tuple([execute(payload, Seq(1), 1, 1) for payload in payloads[start : start + BATCH]])
    return perf_counter() - began


def time_enqueue(store: MemoryStore, jobs: list[JobSpec]) -> float:
    began = perf_counter()
    for start in range(0, len(jobs), BATCH):
        store.run(Enqueue(jobs=tuple(jobs[start : start + BATCH])))
    return perf_counter() - began


LIMITS = (
    Limit(kind="queue", name="default", running=1_000_000, rate=Rate(1_000_000, 60.0)),
    Limit(kind="tenant", name="*", running=1_000_000),
    Limit(kind="type", name="noop", running=1_000_000),
)
"""None of them ever reached: what is measured is the counting."""


def time_turns(store: MemoryStore, count: int, limits: tuple[Limit, ...] = ()) -> float:
    """Claim and settle them all in Turns of a batch; running them between the Turns is not counted."""
    worker = WorkerId(new_id())
    store.run(Renew(worker=worker, lease_s=3600))
    want = Want(lane="general", queues=("default",), limit=BATCH, start=BATCH, types=("noop",))
    outcomes: tuple[Outcome, ...] = ()
    claimed, claim_no, spent = 0, 0, 0.0
    while True:
        claim_no += 1
        turn = Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(want,), limits=limits)
        began = perf_counter()
        answer = store.run(turn)
        spent += perf_counter() - began
        if not answer.leases:
            assert claimed == count
            return spent
        claimed += len(answer.leases)
        outcomes = tuple([execute(lease.payload, *lease.key) for lease in answer.leases])


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    payloads = ['{"user_id":7}'] * count
    print(f"{count} jobs, batches of {BATCH}, best of {ROUNDS}")
    for tenants in (1, 10, 1_000):
        empty, enqueued, turned, limited = [], [], [], []
        for _ in range(ROUNDS):
            jobs, store = make_jobs(count, tenants), MemoryStore()
            gc.collect()
            empty.append(time_empty_loop(payloads))
            enqueued.append(time_enqueue(store, jobs))
            turned.append(time_turns(store, count))
            store = MemoryStore()
            time_enqueue(store, jobs)
            gc.collect()
            limited.append(time_turns(store, count, LIMITS))
        rows = {"empty loop": empty, "enqueue": enqueued, "claim + settle": turned, "… under limits": limited}
        for what, spent in rows.items():
            each, ratio = min(spent) / count * 1e6, min(spent) / min(empty)
            print(f"{tenants:>6} tenants  {what:<16}{each:8.3f} µs a job{ratio:8.1f} × the empty loop")


if __name__ == "__main__":
    main()
