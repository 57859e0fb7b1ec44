"""A server, a migrated database and jobs to measure on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from statistics import median

import psycopg
from msgspec import Raw

from fairlane.core.chance import SystemChance
from fairlane.core.clock import SystemClock
from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.ids import JobId, WorkerId, uuid7
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, Renew, Turn
from fairlane.core.outcome import Completed
from fairlane.stores.postgres import PostgresStore
from tests.servers.postgres import PostgresServer

clock, chance = SystemClock(), SystemChance()
PAYLOAD = b'{"user_id":7,"template":"welcome"}'
TYPE = "mail.send"


def new_id() -> JobId:
    return JobId(uuid7(int(clock.now().timestamp() * 1000), chance.entropy(10)))


def specs(count: int, tenants: int = 1) -> tuple[JobSpec, ...]:
    return tuple(
        JobSpec(id=new_id(), type=TYPE, payload=Raw(PAYLOAD), tenant=f"tenant-{n % tenants:05}") for n in range(count)
    )


class Bench:
    """One database with our schema beside raw tables, and a connection for each side."""

    def __init__(self, server: PostgresServer) -> None:
        dsn = server.create_database("bench")
        self.store = PostgresStore(dsn, max_connections=2, statement_timeout_s=300)
        self.store.migrator().up()
        self.raw = psycopg.connect(dsn, autocommit=True)
        self.dsn = dsn

    def empty(self) -> None:
        self.raw.execute(
            "truncate fairlane.job, fairlane.ready, fairlane.scheduled, fairlane.lease, fairlane.attempt, fairlane.done, fairlane.worker, fairlane.claim_made"
        )

    def fill(self, count: int, tenants: int = 1) -> None:
        self.empty()
        for first in range(0, count, 5000):
            self.store.run(Enqueue(jobs=specs(min(5000, count - first), tenants)))
        self.raw.execute("vacuum analyze fairlane.ready, fairlane.job")

    def drain(self, limit: int, *, batch: int = 100, planner: ClaimPlanner | None = None, woken: bool = False) -> float:
        """Jobs turned over a second: each Turn settles the last batch and claims the next."""
        worker = WorkerId(new_id())
        self.store.run(Renew(worker=worker, lease_s=3600))
        planner = planner or ClaimPlanner("general", ("default",), (TYPE,))
        outcomes: tuple[Completed, ...] = ()
        claim_no = settled = 0
        began = clock.monotonic()
        while settled < limit:
            claim_no += 1
            sent = clock.monotonic()
            want = planner.want(batch, sent, woken=woken and claim_no == 1)
            answer = self.store.run(Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(want,)))
            planner.learn(want, answer, clock.monotonic() - sent, clock.monotonic())
            settled += len(outcomes)
            outcomes = tuple(
                [
                    Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=0.001)
                    for lease in answer.leases
                ]
            )
            if not (outcomes or planner.is_searching or planner.looks_at_s):
                break
        return settled / (clock.monotonic() - began)

    def close(self) -> None:
        self.raw.close()
        self.store.close()


@contextmanager
def bench() -> Iterator[Bench]:
    with PostgresServer({"max_wal_size": "8GB", "shared_buffers": "1GB"}) as server:
        ground = Bench(server)
        try:
            yield ground
        finally:
            ground.close()


def compare(
    title: str, ours: Callable[[], float], raw: Callable[[], float], *, goal: float | None, rounds: int = 5
) -> None:
    """Interleave both and print the median of each and of their ratios: machines wander, neighbours in time do not."""
    pairs = [(ours(), raw()) for _ in range(rounds)]
    ratio = median(o / r for o, r in pairs)
    aim = "" if goal is None else f"   goal {goal:.2f}   {'met' if ratio >= goal else 'MISSED'}"
    print(
        f"  {title:<58}{median(o for o, _ in pairs):>10,.0f}/s   raw {median(r for _, r in pairs):>10,.0f}/s   ratio {ratio:.2f}{aim}",
        flush=True,
    )
