"""Enqueueing beside a bare insert with the same columns, fsync on, one connection each."""

from __future__ import annotations

from bench.postgres_ground import PAYLOAD, TYPE, Bench, bench, clock, compare, new_id, specs
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Enqueue, Renew, Turn

ONE = 400
MANY, CALLS = 1000, 10

RAW = """
drop table if exists raw_job;
create table raw_job (like fairlane.job including defaults including identity);
alter table raw_job add primary key (seq);
"""
COLUMNS = "id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at"
INSERT = f"""with added as (
  insert into raw_job ({COLUMNS}) values (%s, %s, 'tenant-00000', 'default', 5, 0, %s, 1, 5, clock_timestamp(), clock_timestamp()) returning seq
) select seq, pg_notify('raw', '') from added"""
UNNEST = f"""with added as (
  insert into raw_job ({COLUMNS})
  select id, type, tenant, 'default', 5, 0, payload::json, 1, 5, clock_timestamp(), clock_timestamp()
  from unnest(%s::uuid[], %s::text[], %s::text[], %s::text[]) as u (id, type, tenant, payload) returning seq
) select array_agg(seq), pg_notify('raw', '') from added"""


def ours_one(ground: Bench) -> float:
    calls = [Enqueue(jobs=specs(1)) for _ in range(ONE)]
    began = clock.monotonic()
    for call in calls:
        ground.store.run(call)
    return ONE / (clock.monotonic() - began)


def raw_one(ground: Bench) -> float:
    rows = [(str(new_id()), TYPE, PAYLOAD.decode()) for _ in range(ONE)]
    began = clock.monotonic()
    for row in rows:
        ground.raw.execute(INSERT, row, prepare=True).fetchone()
    return ONE / (clock.monotonic() - began)


def ours_many(ground: Bench) -> float:
    ground.empty()
    wait_for_enqueues(ground)
    calls = [Enqueue(jobs=specs(MANY)) for _ in range(CALLS)]
    began = clock.monotonic()
    for call in calls:
        ground.store.run(call)
    return MANY * CALLS / (clock.monotonic() - began)


def raw_many(ground: Bench) -> float:
    ground.raw.execute(RAW)
    calls = [
        ([str(new_id()) for _ in range(MANY)], [TYPE] * MANY, ["tenant-00000"] * MANY, [PAYLOAD.decode()] * MANY)
        for _ in range(CALLS)
    ]
    began = clock.monotonic()
    for call in calls:
        ground.raw.execute(UNNEST, call, prepare=True).fetchone()
    return MANY * CALLS / (clock.monotonic() - began)


def wait_for_enqueues(ground: Bench) -> None:
    """A worker that waits: every enqueue has to notify it."""
    worker = WorkerId(new_id())
    ground.store.run(Renew(worker=worker, lease_s=3600))
    ground.store.run(Turn(worker=worker, claim_no=1, waiting=True))


def main() -> None:
    with bench() as ground:
        ground.raw.execute(RAW)
        wait_for_enqueues(ground)
        ours_one(ground)
        compare(
            "enqueue one, notifying / one-row insert + notify",
            lambda: ours_one(ground),
            lambda: raw_one(ground),
            goal=0.75,
        )
        compare(
            f"enqueue {MANY} a call / insert from unnest", lambda: ours_many(ground), lambda: raw_many(ground), goal=0.5
        )


if __name__ == "__main__":
    main()
