"""Claimers beside each other on PostgreSQL: what a job costs the server with 1, 2, 4, 8 and 16 processes, over 1, 50 and 1,000 tenants, with and
without limits; and beside it a job of pgqueuer, which has neither tenants nor such limits, where `make bench-peers` has installed it.

Each process settles its last batch and claims the next with every Turn, as a busy worker does. A job may cost the server little more
with 16 processes than with 2: claimers must not read what the others are taking again and again.
"""

from __future__ import annotations

import multiprocessing
import subprocess
from collections.abc import Iterator
from itertools import chain
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Barrier
from time import sleep
from typing import NamedTuple

import psutil
import psycopg

from bench import peers
from bench.postgres_ground import TYPE, clock, new_id
from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import Renew, Turn
from fairlane.core.outcome import Completed
from fairlane.stores.postgres import PostgresStore
from fairlane.worker.turns import ASK_AGAIN_S
from tests.servers.postgres import PostgresServer

PROCESSES, TENANTS = (1, 2, 4, 8, 16), (1, 50, 1000)
JOBS, BATCH, SECONDS, WARM = 150_000, 500, 1.5, 3
GOAL = 1.3
"""What a job may cost the server with 16 processes, by what it costs with 2."""
PEER = "pgqueuer"
UNRELATED = (Limit(kind="type", name="unrelated", running=3),)
WIDE = (Limit(kind="tenant", name="*", running=1_000_000, rate=Rate(1_000_000, 1.0)),)
"""In force for every job, and never without room."""

JOB_ROWS = """
insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at)
select gen_random_uuid(), %s, 'tenant-' || lpad((n %% %s)::text, 5, '0'), 'default', 5, 0, '{"user_id":7}', 1, 5, at, at
from generate_series(1, %s) n cross join lateral (select now() + n * interval '1 microsecond' as at) t
"""
READY_ROWS = """
insert into fairlane.ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped)
select seq, queue, band, tenant, rank, due_at, type, 0, 0, 0, false, false from fairlane.job order by seq
"""
READ = """
select idx_tup_read from pg_stat_user_indexes where schemaname = 'fairlane' and indexrelname = 'ready_line'
"""


class Round(NamedTuple):
    jobs: int
    turns: int
    seconds: float
    server_s: float
    rows: int

    @property
    def cost_us(self) -> float:
        return self.server_s / self.jobs * 1e6

    def __str__(self) -> str:
        return (
            f"{self.jobs / self.seconds:>8,.0f} jobs/s,{self.cost_us:>6.1f} us of the server and {self.rows / self.jobs:>5.1f} index rows a job, "
            f"{self.jobs / self.turns:>4.0f} jobs a Turn"
        )


class PeerRound(NamedTuple):
    jobs: int
    seconds: float
    server_s: float
    ended: int
    """With those before the measured time."""

    def __str__(self) -> str:
        return f"{self.jobs / self.seconds:>8,.0f} jobs/s,{self.server_s / max(self.jobs, 1) * 1e6:>6.1f} us of the server a job"


def claim_on(
    dsn: str, go: Barrier, stop: Barrier, limits: tuple[Limit, ...], batch: int, held: int, answer: Connection
) -> None:
    """One process: Turns until the time is over, or nothing is left. It holds `held` leases and ends the oldest of them, a batch at a time."""
    store = PostgresStore(dsn, max_connections=1, statement_timeout_s=300)
    worker, planner = WorkerId(new_id()), ClaimPlanner("general", ("default",), (TYPE,))
    store.run(Renew(worker=worker, lease_s=3600))
    outcomes: tuple[Completed, ...] = ()
    leases: list[Lease] = []
    settled = claim_no = 0
    end_s = clock.monotonic() + 3600.0
    while (sent_s := clock.monotonic()) < end_s:
        if claim_no == WARM:  # plans are made
            go.wait()
            end_s, settled = clock.monotonic() + SECONDS, 0
        claim_no += 1
        want = planner.want(batch, sent_s)
        turn = Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(want,), limits=limits)
        result = store.run(turn)
        planner.learn(want, result, clock.monotonic() - sent_s, clock.monotonic())
        settled += len(outcomes)
        leases += result.leases
        ended = min(batch, max(len(leases) + batch - held, 0)) if result.leases else min(batch, len(leases))
        outcomes = tuple(
            [
                Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, ran_s=0.001)
                for lease in leases[:ended]
            ]
        )
        del leases[:ended]
        if not outcomes and result.limited_until is not None:
            sleep(max((result.limited_until - result.now).total_seconds(), ASK_AGAIN_S))  # as a worker does
    answer.send((settled, claim_no - WARM))
    stop.wait()
    stop.wait()
    store.close()


class Claimers:
    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._dsn = server.create_database("bench")
        store = PostgresStore(self._dsn)
        store.migrator().up()
        store.close()
        self._conn = psycopg.connect(self._dsn, autocommit=True)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["bench.claimers"])
        self.alone: dict[int, Round] = {}
        """By processes: one tenant without limits."""

    def fill(self, tenants: int) -> None:
        self._conn.execute("truncate fairlane.job")
        self._conn.execute(JOB_ROWS, (TYPE, tenants, JOBS))
        self._conn.execute("vacuum analyze fairlane.job")

    def round(self, processes: int, limits: tuple[Limit, ...] = (), *, batch: int = BATCH, held: int = BATCH) -> Round:
        self._conn.execute(
            "truncate fairlane.ready, fairlane.lease, fairlane.done, fairlane.worker, fairlane.claim_made"
        )
        self._conn.execute(READY_ROWS)
        self._conn.execute("vacuum analyze fairlane.ready")
        go, stop = self._context.Barrier(processes + 1), self._context.Barrier(processes + 1)
        pipes = [self._context.Pipe(duplex=False) for _ in range(processes)]
        children = [
            self._context.Process(target=claim_on, args=(self._dsn, go, stop, limits, batch, held, answer))
            for _, answer in pipes
        ]
        for child in children:
            child.start()
        rows = self._rows_read()
        go.wait()
        before_s, began_s = self.backends_s(), clock.monotonic()
        stop.wait()
        server_s, took_s = self.backends_s() - before_s, clock.monotonic() - began_s
        counts = [pipe.recv() for pipe, _ in pipes]
        stop.wait()
        for child in children:
            child.join()
        jobs, turns = (sum(column) for column in zip(*counts, strict=True))
        return Round(jobs, turns, took_s, server_s, self._rows_read() - rows)

    def _rows_read(self) -> int:
        sleep(0.1)  # sessions that ended have reported what they read
        self._conn.execute("select pg_stat_clear_snapshot()")
        row = self._conn.execute(READ).fetchone()
        assert row is not None
        return int(row[0])

    def backends_s(self, database: str = "bench") -> float:
        """CPU time of the sessions of a database but this one."""
        own = self._conn.info.backend_pid
        spent = 0.0
        for process in psutil.Process(self._server.pid).children():
            if process.pid != own and f" {database} " in " ".join(process.cmdline()):
                times = process.cpu_times()
                spent += times.user + times.system
        return spent

    def peer_round(self, place: peers.Place, processes: int) -> PeerRound:
        """As many processes of pgqueuer, each claiming and ending a batch at a time."""
        with peers.workers(place, PEER, processes, BATCH, "claim") as diary:
            until_s = clock.monotonic() + peers.PATIENCE_S
            while diary.stat().st_size < 8 * WARM * BATCH * processes and clock.monotonic() < until_s:
                sleep(0.01)
            before, before_s, began_s = diary.stat().st_size, self.backends_s("peers"), clock.monotonic()
            sleep(SECONDS)
            done, server_s = (diary.stat().st_size - before) // 8, self.backends_s("peers") - before_s
            return PeerRound(done, clock.monotonic() - began_s, server_s, diary.stat().st_size // 8)

    def close(self) -> None:
        self._conn.close()


def table(claimers: Claimers) -> Iterator[str]:
    for tenants in TENANTS:
        claimers.fill(tenants)
        claimers.round(2)
        for limits, under in (((), "no limits"), (WIDE, "limits")):
            measured = {processes: claimers.round(processes, limits) for processes in PROCESSES}
            for processes, one in measured.items():
                yield f"{tenants:>5,} tenant(s), {under}, {processes:>2} process(es): {one}"
            ratio = measured[16].cost_us / measured[2].cost_us
            yield f"{tenants:>5,} tenant(s), {under}, 16 processes / 2: {ratio:.2f}   goal {GOAL}   {'met' if ratio <= GOAL else 'MISSED'}"
            if not limits:
                free = measured[2].cost_us
                claimers.alone = claimers.alone or measured
        ratio = free / claimers.round(2, UNRELATED).cost_us
        yield f"{tenants:>5,} tenant(s), without limits / under one that is not theirs: {ratio:.2f}   goal 0.80   {'met' if ratio >= 0.8 else 'MISSED'}"


def beside(claimers: Claimers, server: PostgresServer) -> Iterator[str]:
    """The peer that claims quickest, and what our single tenant does by it."""
    if subprocess.run(
        [peers.PYTHON, "-c", "import asyncpg, pgqueuer, uvloop"], capture_output=True, check=False
    ).returncode:
        yield f"{PEER} beside it: not installed; run `make bench-peers` once"
        return
    place = peers.Place(server.create_database("peers"))
    peers.call(place, PEER, "install")
    missing = JOBS
    for processes in PROCESSES:
        peers.call(place, PEER, "fill", str(missing))
        one, ours = claimers.peer_round(place, processes), claimers.alone[processes]
        missing = one.ended
        ratio = ours.jobs / ours.seconds / (max(one.jobs, 1) / one.seconds)
        met = "met" if ratio >= 1 else "MISSED"
        yield f"{PEER}, {processes:>2} process(es): {one}   ours by it {ratio:.2f}   goal 1.00   {met}"


def in_use(claimers: Claimers) -> Iterator[str]:
    """A wide limit of which most is in use: claims need it alone."""
    claimers.fill(1)
    wide = Limit(kind="queue", name="default", running=32 * 20)
    free = claimers.round(8, batch=20, held=60)
    yield f"8 processes, 20 jobs a Turn, no limit: {free}"
    for share in (0.4, 0.6, 0.8, 0.95):
        used = claimers.round(8, (wide,), batch=20, held=round(share * 32 * 20 / 8))
        yield f"8 processes, 20 jobs a Turn, a limit of {wide.running}, {share:.0%} in use: {used}"


def main() -> None:
    with PostgresServer({"max_wal_size": "8GB", "shared_buffers": "1GB"}) as server:
        claimers = Claimers(server)
        try:
            for line in chain(table(claimers), beside(claimers, server), in_use(claimers)):
                print(f"  {line}", flush=True)
        finally:
            claimers.close()


if __name__ == "__main__":
    main()
