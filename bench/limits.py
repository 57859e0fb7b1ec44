"""Limits with real workers on PostgreSQL: how near a limit of three comes to three jobs running all the time, left alone and under kill -9; and what
a limit costs the jobs that are under none."""

from __future__ import annotations

import os
import signal
import tempfile
from itertools import product
from pathlib import Path
from random import Random
from statistics import median
from time import monotonic, sleep
from typing import Any

import psutil
import psycopg

from bench.worker import Scene
from tests.servers.postgres import PostgresServer

LIMIT, JOBS, TENANTS = 3, 600, 5
SCENES = ((4, 0.1), (6, 0.02))
"""Processes, and how long a job takes."""
KILL_EVERY_S = 5.0
GOAL = 0.90

DRAINED, DRAIN_TENANTS, ROUNDS = 40_000, 50, 3
OTHERS = {
    "of a tenant with jobs": {"tenant": "t000", "running": 5},
    "of a tenant without jobs": {"tenant": "nobody", "running": 5},
    "of another task": {"task": "bench.note", "running": 5},
    "of an empty queue": {"queue": "bulk", "running": 5},
}
OTHERS_GOAL = 0.95

ATTEMPTS = """
select extract(epoch from started_at)::float8, extract(epoch from ended_at)::float8, outcome from fairlane.attempt_record where started_at is not null
"""


def drained(scene: Scene, processes: int, seconds: float, *, kills: bool) -> tuple[float, int, int]:
    """Share of the ideal rate, the most that ran at the same time, and how many processes were killed."""
    chance, killed = Random(7), 0
    with psycopg.connect(scene.dsn, autocommit=True) as conn:
        conn.execute("truncate fairlane.job, fairlane.done, fairlane.attempt")
        flags = ("-p", str(processes // 2), "-s", "8/process")
        with scene.foreman(*flags) as one, scene.foreman(*flags) as other:
            tasks = [scene.note.using(tenant=f"tenant-{n % TENANTS}").bind(0.0, seconds) for n in range(JOBS)]
            scene.app.enqueue_many(tasks)
            next_s = monotonic() + KILL_EVERY_S / 2
            while scene.app.statistics.counts().completed < JOBS:
                if kills and monotonic() > next_s:
                    next_s += KILL_EVERY_S
                    victims = [*one.children(), *other.children()]
                    os.kill(chance.choice(victims).pid, signal.SIGKILL)
                    killed += 1
                sleep(0.05)
        attempts = conn.execute(ATTEMPTS).fetchall()
    ran = [(began, ended) for began, ended, outcome in attempts if outcome == "completed"][-JOBS:]
    took_s = max(ended for _, ended in ran) - min(began for began, _ in ran)
    edges = sorted([(began, 1) for began, _, _ in attempts] + [(ended, -1) for _, ended, _ in attempts])
    running = most = 0
    for _, step in edges:
        running += step
        most = max(most, running)
    return JOBS * seconds / LIMIT / took_s, most, killed


def drain(scene: Scene, server: PostgresServer, limit: dict[str, Any] | None) -> tuple[float, float]:
    """Jobs a second, and the server's CPU for one in microseconds, with this limit in force."""
    app = scene.app
    with psycopg.connect(scene.dsn, autocommit=True) as conn:
        conn.execute("truncate fairlane.job, fairlane.ready, fairlane.done, fairlane.attempt, fairlane.lease")
        for n in range(DRAIN_TENANTS):
            scene.nothing.using(tenant=f"t{n:03}").enqueue_map([{}] * (DRAINED // DRAIN_TENANTS))
        conn.execute("vacuum analyze")
        if limit is not None:
            app.limits.set(**limit)
        before_s = server_cpu_s(server)
        with scene.workers("-p", "2", "-s", "200"):
            while conn.execute("select count(*) from fairlane.done").fetchone()[0] < DRAINED:
                sleep(0.02)
        ended = conn.execute(
            "select extract(epoch from max(finished_at) - min(leased_at)) from fairlane.done"
        ).fetchone()
        spent_s = server_cpu_s(server) - before_s
    if limit is not None:
        app.limits.clear(**{name: value for name, value in limit.items() if name != "running"})
    return DRAINED / float(ended[0]), 1e6 * spent_s / DRAINED


def server_cpu_s(server: PostgresServer) -> float:
    processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    return sum(sum(process.cpu_times()) for process in processes)


def drains(scene: Scene, server: PostgresServer) -> None:
    """What a limit that does not concern them costs the jobs of all others."""
    found: dict[str, list[tuple[float, float]]] = {}
    for _ in range(ROUNDS):
        for what, limit in ({"none": None} | OTHERS).items():
            found.setdefault(what, []).append(drain(scene, server, limit))
    rates = {what: median(rate for rate, _ in each) for what, each in found.items()}
    for what, each in found.items():
        share, cost = rates[what] / rates["none"], median(spent for _, spent in each)
        print(
            f"  limit {what}: {rates[what]:,.0f} jobs/s, {share:.2f} of that without, {cost:.1f} us of the server a job",
            flush=True,
        )


def main() -> None:
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder:
        scene = Scene(server.create_database("bench"), Path(folder))
        drains(scene, server)
        scene.app.limits.set(task="bench.note", running=LIMIT)
        for (processes, seconds), kills in product(SCENES, (False, True)):
            share, most, killed = drained(scene, processes, seconds, kills=kills)
            what = (
                f"limit {LIMIT} over {processes} processes, {JOBS:,} jobs of {1000 * seconds:.0f} ms, {killed} killed"
            )
            verdict = "met" if share >= GOAL and most <= LIMIT else "MISSED"
            print(
                f"  {what}: {share:.2f} of the ideal rate, {most} at once at most   goal {GOAL:.2f}, {LIMIT}   {verdict}",
                flush=True,
            )
        scene.app.close()


if __name__ == "__main__":
    main()
