"""The Redis store on a Valkey of its own (AOF everysec): enqueueing, Turns of 100, memory and claim time with a long backlog."""

from __future__ import annotations

import gc
import sys

import redis
from msgspec import Raw

from fairlane.core.chance import SystemChance
from fairlane.core.clock import SystemClock
from fairlane.core.ids import JobId, WorkerId, uuid7
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, Purge, Renew, Turn, Want
from fairlane.core.outcome import Completed
from fairlane.stores.redis import RedisStore
from tests.servers.valkey import ValkeyServer

BATCH, JOBS, ONE_BY_ONE = 100, 20_000, 5_000
BACKLOG, TENANTS = 1_000_000, 10_000
ONE_A_S, MANY_A_S, MEMORY_BYTES = 4_300, 36_500, 600
PAYLOAD = Raw(b'{"user_id":7,"name":"somebody","reason":"a payload of about a hundred bytes, as jobs often have"}')

clock, chance = SystemClock(), SystemChance()


def new_id() -> JobId:
    return JobId(uuid7(int(clock.now().timestamp() * 1000), chance.entropy(10)))


def specs(count: int, tenants: int = 1) -> list[JobSpec]:
    return [JobSpec(id=new_id(), type="bench.noop", payload=PAYLOAD, tenant=f"t{n % tenants}") for n in range(count)]


def enqueueing(store: RedisStore) -> None:
    jobs = specs(ONE_BY_ONE)
    began = clock.monotonic()
    for job in jobs:
        store.run(Enqueue(jobs=(job,)))
    one = ONE_BY_ONE / (clock.monotonic() - began)
    print(
        f"  enqueue one by one: {one:,.0f}/s   goal ≥ {ONE_A_S:,}   {'met' if one >= ONE_A_S else 'MISSED'}", flush=True
    )
    jobs = specs(JOBS)
    began = clock.monotonic()
    for first in range(0, JOBS, 1000):
        store.run(Enqueue(jobs=tuple(jobs[first : first + 1000])))
    many = JOBS / (clock.monotonic() - began)
    print(
        f"  enqueue 1,000 at once: {many:,.0f}/s   goal ≥ {MANY_A_S:,}   {'met' if many >= MANY_A_S else 'MISSED'}",
        flush=True,
    )


def turns(store: RedisStore, batch: int) -> None:
    worker = WorkerId(new_id())
    store.run(Renew(worker=worker, lease_s=600))
    done: tuple[Completed, ...] = ()
    count, claim_no, began = 0, 0, clock.monotonic()
    while True:
        claim_no += 1
        want = Want(lane="general", queues=("default",), limit=batch, start=batch)
        answer = store.run(Turn(worker=worker, claim_no=claim_no, outcomes=done, wants=(want,)))
        done = tuple(
            Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=0.001)
            for lease in answer.leases
        )
        count += len(done)
        if not done or count >= JOBS:
            break
    store.run(Turn(worker=worker, claim_no=claim_no + 1, outcomes=done))
    print(f"  Turns of {batch}: {count / (clock.monotonic() - began):,.0f} jobs/s", flush=True)


def claim_ms(store: RedisStore) -> float:
    """The median of claims of 100, one by one."""
    worker = WorkerId(new_id())
    store.run(Renew(worker=worker, lease_s=600))
    spans = []
    for claim_no in range(1, 22):
        want = Want(lane="general", queues=("default",), limit=BATCH, start=BATCH)
        began = clock.monotonic()
        store.run(Turn(worker=worker, claim_no=claim_no, wants=(want,)))
        spans.append(clock.monotonic() - began)
    return 1000 * sorted(spans)[len(spans) // 2]


def backlog(store: RedisStore, server: ValkeyServer, count: int) -> None:
    client = redis.Redis.from_url(server.url)
    before = client.info("memory")["used_memory"]
    for first in range(0, count, 5_000):
        jobs = [
            JobSpec(id=new_id(), type="bench.noop", payload=PAYLOAD, tenant=f"tenant-{(first + n) % TENANTS}")
            for n in range(5_000)
        ]
        store.run(Enqueue(jobs=tuple(jobs)))
    each = (client.info("memory")["used_memory"] - before) / count - len(bytes(PAYLOAD))
    verdict = ""
    if count >= 10 * TENANTS:  # with fewer, what is kept of each tenant counts for more than its jobs
        verdict = f"   goal ≤ {MEMORY_BYTES}   {'met' if each <= MEMORY_BYTES else 'MISSED'}"
    print(
        f"  {count:,} waiting jobs of {TENANTS:,} tenants: {each:.0f} bytes a job beyond the payload{verdict}; "
        f"claim of {BATCH}: {claim_ms(store):.1f} ms",
        flush=True,
    )


def main() -> None:
    sizes = [int(size) for size in sys.argv[1:]] or [10_000, BACKLOG]
    with ValkeyServer(appendfsync="everysec") as server:
        store = RedisStore(server.url)
        gc.disable()
        enqueueing(store)
        for batch in (BATCH, 10, 1):
            store.run(Purge())
            jobs = specs(JOBS if batch > 1 else 3_000)
            for first in range(0, len(jobs), 1000):
                store.run(Enqueue(jobs=tuple(jobs[first : first + 1000])))
            turns(store, batch)
        for size in sizes:
            store.run(Purge())
            backlog(store, server, size)
        store.close()


if __name__ == "__main__":
    main()
