"""A limit of three over worker processes on PostgreSQL: how near it comes to three jobs running all the time, left alone and under kill -9."""

from __future__ import annotations

import os
import signal
import tempfile
from itertools import product
from pathlib import Path
from random import Random
from time import monotonic, sleep

import psycopg

from bench.worker import Scene
from tests.servers.postgres import PostgresServer

LIMIT, JOBS, TENANTS = 3, 600, 5
SCENES = ((4, 0.1), (6, 0.02))
"""Processes, and how long a job takes."""
KILL_EVERY_S = 5.0
GOAL = 0.90

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


def main() -> None:
    with PostgresServer() as server, tempfile.TemporaryDirectory() as folder:
        scene = Scene(server.create_database("bench"), Path(folder))
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
