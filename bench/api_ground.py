"""A database full of finished and waiting jobs, and the API in a process of its own in front of it.

python -m bench.api_ground DSN   serves the API until its input ends, and prints where and with which token
"""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from bench.postgres_ground import Bench

JOBS = int(os.environ.get("BENCH_JOBS", "1000000"))
"""Finished ones; a tenth as many wait."""

FINISHED = """
with made as (
  insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, category, correlation_id,
                            created_by, enqueued_at, due_at)
  select gen_random_uuid(), 'task.' || n %% 20, 'tenant-' || n %% 200, 'queue' || n %% 5, 50, 0, '{"user_id":7,"template":"welcome"}', 1, 3,
         case n %% 3 when 0 then 'mail' when 1 then 'billing' else 'maintenance' end, 'order-' || n / 3,
         case when n %% 10 = 0 then 'shop' end, at, at
  from (select n, now() - (%(count)s - n) * (interval '7 days' / %(count)s) as at from generate_series(1, %(count)s) n) g returning *
), ended as (
  insert into fairlane.done (seq, status, finished_at, due_at, attempt, attempts, crashes, outcome, worker, leased_at, deadline_at, started_at,
                             error_class, error_type, error_message)
  select seq, fate, due_at + interval '3 s', due_at, 1, 0, 0, case fate when 'dead' then 'dead' else fate end, gen_random_uuid(),
         due_at + interval '1 s', due_at + interval '1 h', due_at + interval '1 s',
         case fate when 'dead' then 'non_retryable' end, case fate when 'dead' then 'ValueError' end, case fate when 'dead' then 'no such user' end
  from (select m.*, case when seq %% 50 = 0 then 'dead' when seq %% 50 = 1 then 'cancelled' else 'completed' end as fate from made m) f
  returning *
)
insert into fairlane.dead_letter (seq, reason, error_class, error_type, fingerprint, died_at, status)
select seq, 'no such user ' || seq, 'non_retryable', 'ValueError', 'f' || seq / 50 %% 100, finished_at,
       case seq / 50 %% 4 when 0 then 'resolved' when 1 then 'discarded' else 'pending_review' end
from ended where status = 'dead'
"""
WAITING = """
with made as (
  insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, category, enqueued_at, due_at)
  select gen_random_uuid(), 'task.' || n %% 20, 'tenant-' || n %% 200, 'queue' || n %% 5, 50, 0, '{"user_id":7}', 1, 3, 'mail', now(), now()
  from generate_series(1, %(count)s) n returning *
), later as (
  insert into fairlane.scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, failed)
  select seq, queue, band, tenant, rank, due_at + interval '1 day', type, 0, 0, 0, false, false, seq %% 20 = 0 from made where seq %% 10 = 0
)
insert into fairlane.ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped)
select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, false from made where seq %% 10 <> 0
"""
MINUTES = """
insert into fairlane.stat_minute (minute, type, queue, tenant, enqueued, completed, failed, dead, cancelled, wait_us, run_us, wait_buckets, run_buckets)
select date_trunc('minute', now()) - m * interval '1 minute', 'task.' || k %% 20, 'queue' || k %% 5, 'tenant-' || k, 9, 7, 1, 1, 0, 900000, 4000000,
       '{"7":9}', '{"8":6,"12":3}'
from generate_series(0, 1439) m cross join generate_series(0, 19) k
"""
HALF_HOURS = """
insert into fairlane.stat_half_hour
select date_bin('30 minutes', minute, 'epoch'), type, queue, tenant, sum(enqueued), sum(completed), sum(failed), sum(dead), sum(cancelled),
       sum(wait_us), sum(run_us), jsonb_build_object('7', 9 * count(*)), jsonb_build_object('8', 6 * count(*), '12', 3 * count(*))
from fairlane.stat_minute group by 1, 2, 3, 4
"""
TENANTS = """
insert into fairlane.tenant (name, seen_at) select 'tenant-' || n, now() from generate_series(0, 199) n on conflict do nothing
"""
AUDIT = """
insert into fairlane.audit (at, by, action, tenant, target)
select now(), 'ada', 'job_cancel', 'tenant-' || n %% 200, 'job:' || gen_random_uuid() from generate_series(1, %(count)s) n
"""


def load(ground: Bench, finished: int, waiting: int | None = None) -> None:
    """So many finished jobs over the last week, a tenth as many waiting (or `waiting`), and a day of figures for each minute."""
    ground.raw.execute(
        "truncate fairlane.dead_letter, fairlane.stat_minute, fairlane.stat_half_hour, fairlane.idempotency_key"
    )
    ground.empty()
    for first in range(0, finished, 100_000):
        ground.raw.execute(FINISHED, {"count": min(100_000, finished - first)})
    add_waiting(ground, finished // 10 if waiting is None else waiting)
    ground.raw.execute(MINUTES, {})
    ground.raw.execute(HALF_HOURS)
    ground.raw.execute(TENANTS)
    ground.raw.execute(AUDIT, {"count": 10_000})
    ground.raw.execute("vacuum analyze")


def add_waiting(ground: Bench, count: int) -> None:
    for first in range(0, count, 100_000):
        ground.raw.execute(WAITING, {"count": min(100_000, count - first)})


@contextmanager
def served(dsn: str) -> Iterator[tuple[str, str]]:
    """Where the API listens, and a token with every role."""
    command = [sys.executable, "-m", "bench.api_ground", dsn]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        place, token = server.stdout.readline().split()
        yield place, token
        server.stdin.close()


def serve(dsn: str) -> None:
    import uvicorn

    from fairlane import Fairlane
    from fairlane.web import create_dashboard

    app = Fairlane(dsn)

    @app.task(name="mail.send")
    def send(user_id: int, template: str = "") -> None: ...

    secret = app.tokens.create("bench", ("operator", "staff", "manager"), by="bench").secret
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_dashboard(app), log_level="warning", access_log=False))

    def until_the_input_ends() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=until_the_input_ends, daemon=True).start()
    print(f"http://127.0.0.1:{listening.getsockname()[1]} {secret}", flush=True)
    gc.collect()
    gc.freeze()
    server.run(sockets=[listening])
    app.close()


if __name__ == "__main__":
    serve(sys.argv[1])
