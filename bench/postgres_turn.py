"""A Turn of 100 beside bare statements: one that writes the same rows, and one that only finishes and claims."""

from __future__ import annotations

from bench.postgres_ground import Bench, bench, clock, compare

JOBS, BATCH = 10_000, 100

SAME_TABLES = """
drop table if exists raw_job, raw_ready, raw_lease, raw_done;
create table raw_job as select * from fairlane.job;
alter table raw_job add primary key (seq);
create table raw_ready as select * from fairlane.ready;
alter table raw_ready add primary key (seq);
create index on raw_ready (queue, band, tenant, rank, due_at, seq);
create table raw_lease (like fairlane.lease including all);
create table raw_done (like fairlane.done including all);
vacuum analyze raw_ready; vacuum analyze raw_job;
"""
# What a Turn writes, without what it decides: no tenants, types, fences, replays, promotion or reclaiming.
SAME_ROWS = """
with ended as (
  delete from raw_lease where seq = any(%(done)s) returning *
), filed as (
  insert into raw_done (seq, status, finished_at, due_at, attempt, attempts, crashes, outcome, worker, leased_at, deadline_at, started_at)
  select seq, 'completed', now(), due_at, attempt, attempts, crashes, 'completed', worker, leased_at, deadline_at, started_at from ended
), next as (
  select ctid from raw_ready where queue = 'default' and band = 5 order by queue, band, tenant, rank, due_at, seq
  limit %(limit)s for update skip locked
), taken as (
  delete from raw_ready r using next where r.ctid = next.ctid returning r.*
), leased as (
  insert into raw_lease (seq, worker, claim_no, nth, lane, leased_at, started_at, deadline_at, queue, band, tenant, rank, due_at, type,
                         attempt, attempts, crashes, suspect, deduped)
  select seq, '00000000-0000-7000-8000-000000000000', 1, 1, 'general', now(), now(), now(), queue, band, tenant, rank, due_at, type,
         attempt + 1, attempts, crashes, suspect, deduped from taken
)
select j.seq, j.id, j.type, j.payload::text from taken join raw_job j using (seq)
"""
BARE_TABLES = """
drop table if exists raw_bare;
create table raw_bare (id bigserial primary key, queue text not null default 'q', state smallint not null default 0,
  priority int not null default 0, run_at timestamptz not null default now(), attempts int not null default 0, worker int, payload jsonb not null);
create index on raw_bare (queue, priority, id) where state = 0;
insert into raw_bare (payload) select '{"user_id": 7}' from generate_series(1, %d);
vacuum analyze raw_bare;
"""
BARE = """
with done as (delete from raw_bare where id = any(%(done)s))
update raw_bare set state = 1, attempts = attempts + 1, worker = 1 where id in (
  select id from raw_bare where queue = 'q' and state = 0 order by priority, id for update skip locked limit %(limit)s)
returning id, payload::text
"""


def run_script(ground: Bench, script: str) -> None:
    for statement in script.split(";"):
        if statement.strip():
            ground.raw.execute(statement.encode())


def ours(ground: Bench, tenants: int) -> float:
    ground.fill(JOBS, tenants)
    return ground.drain(JOBS, batch=BATCH)


def raw(ground: Bench, statement: str) -> float:
    done: list[int] = []
    settled, began = 0, clock.monotonic()
    while True:
        rows = ground.raw.execute(statement.encode(), {"done": done, "limit": BATCH}, prepare=True).fetchall()
        settled += len(done)
        done = [row[0] for row in rows]
        if not done:
            return settled / (clock.monotonic() - began)


def same_rows(ground: Bench) -> float:
    ground.fill(JOBS)
    run_script(ground, SAME_TABLES)
    return raw(ground, SAME_ROWS)


def bare(ground: Bench) -> float:
    run_script(ground, BARE_TABLES % JOBS)
    return raw(ground, BARE)


def main() -> None:
    with bench() as ground:
        ours(ground, 1)
        compare(
            "turn of 100, history kept / one statement, same rows",
            lambda: ours(ground, 1),
            lambda: same_rows(ground),
            goal=0.7,
        )
        compare(
            "turn of 100, history kept / bare finish and claim", lambda: ours(ground, 1), lambda: bare(ground), goal=0.4
        )
        compare(
            "turn of 100 over 100 tenants / bare finish and claim",
            lambda: ours(ground, 100),
            lambda: bare(ground),
            goal=None,
        )


if __name__ == "__main__":
    main()
