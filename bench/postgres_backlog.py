"""Turns against a growing backlog, and with an old snapshot held: neither may slow them down much."""

from __future__ import annotations

from statistics import median
from time import sleep

import psycopg

from bench.postgres_ground import TYPE, Bench, bench, clock, compare, specs
from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.ops import Enqueue

JOBS = 10_000
SMALL, LARGE = 10_000, 1_000_000
SINGLES, FOUND_S = 20, 0.015
COPIES = """
with more as (
  insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at)
  select gen_random_uuid(), type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at
  from fairlane.job cross join generate_series(2, %s) returning *
)
insert into fairlane.ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped)
select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, false from more
"""


def with_backlog(ground: Bench, backlog: int, tenants: int) -> float:
    ground.fill(SMALL, tenants)
    if backlog > SMALL:
        ground.raw.execute(COPIES, (backlog // SMALL,))
    return ground.drain(5_000)


def with_snapshot_held(ground: Bench) -> float:
    ground.fill(JOBS * 3)
    with psycopg.connect(ground.dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from fairlane.ready")
        ground.drain(JOBS * 2 - 200)
        rate = ground.drain(JOBS - 500)
        holder.rollback()
    return rate


def found_beneath_snapshot(ground: Bench, jobs: int, tenants: int) -> list[float]:
    """How long a woken lane takes to claim a single job, in order, after it has claimed all others while a snapshot was held."""
    ground.fill(SMALL, tenants)
    ground.raw.execute(COPIES, (jobs // SMALL,))
    planner, took_s = ClaimPlanner("general", ("default",), (TYPE,)), []
    with psycopg.connect(ground.dsn) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from fairlane.ready")
        ground.drain(jobs, batch=500, planner=planner)
        for _ in range(SINGLES):
            sleep(0.1)
            while planner.looks_at_s is not None:  # what a worker does meanwhile
                sleep(max(planner.looks_at_s - clock.monotonic(), 0.0))
                ground.drain(1, batch=10, planner=planner, woken=True)
            ground.store.run(Enqueue(jobs=specs(1, tenants)))
            began_s = clock.monotonic()
            ground.drain(1, batch=10, planner=planner, woken=True)
            took_s.append(clock.monotonic() - began_s)
        holder.rollback()
    return sorted(took_s)


def without_snapshot(ground: Bench) -> float:
    ground.fill(JOBS * 3)
    ground.drain(JOBS * 2 - 200)
    return ground.drain(JOBS - 500)


def main() -> None:
    with bench() as ground:
        ground.fill(SMALL)
        ground.drain(SMALL)
        compare(
            "turns with an old snapshot held / without",
            lambda: with_snapshot_held(ground),
            lambda: without_snapshot(ground),
            goal=0.8,
            rounds=3,
        )
        for tenants in (1, 50):
            found_s = found_beneath_snapshot(ground, 20 * SMALL, tenants)
            p50_s = median(found_s)
            print(
                f"  a job claimed and settled after {20 * SMALL:,} of {tenants} tenant(s) beneath a snapshot: p50 {1000 * p50_s:.1f} ms, most {1000 * found_s[-1]:.0f}   "
                f"goal {1000 * FOUND_S:.0f}   {'met' if p50_s <= FOUND_S else 'MISSED'}",
                flush=True,
            )
        for tenants in (1, 10_000):
            compare(
                f"first 5,000 of 1,000,000 / of 10,000, {tenants} tenant(s)",
                lambda n=tenants: with_backlog(ground, LARGE, n),
                lambda n=tenants: with_backlog(ground, SMALL, n),
                goal=0.7,
                rounds=1 if tenants > 1 else 2,
            )


if __name__ == "__main__":
    main()
