"""A real foreman with one worker process on PostgreSQL: how soon a job starts, what idling costs, how soon a killed worker's jobs run again."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

import psutil
import psycopg

from fairlane import Fairlane
from tests.servers.postgres import PostgresServer

SAMPLES, APART_S, IDLE_S, KILLS = 300, 0.02, 30.0, 3
P50_MS, P99_MS, IDLE_SHARE, IDLE_TRANSACTIONS, RSS_MB, RECOVERY_S = 4.4, 10.0, 0.005, 2.0, 50.0, 1.0


class Scene:
    def __init__(self, dsn: str, folder: Path) -> None:
        self.dsn, self.diary = dsn, folder / "diary"
        self.diary.touch()
        os.environ |= {"BENCH_URL": dsn, "BENCH_DIARY": str(self.diary)}
        worker_app = importlib.reload(importlib.import_module("bench.worker_app"))
        self.app: Fairlane = worker_app.app
        self.note, self.nothing = worker_app.note, worker_app.nothing
        migrator = self.app.runtime.store.migrator()
        assert migrator is not None
        migrator.up()

    def lines(self) -> list[list[str]]:
        return [line.split() for line in self.diary.read_text().splitlines()]

    def until(self, condition: Callable[[], bool], within_s: float = 60.0) -> None:
        ends_s = monotonic() + within_s
        while not condition():
            if monotonic() > ends_s:
                raise TimeoutError
            sleep(0.002)

    @contextmanager
    def workers(self, *flags: str) -> Iterator[psutil.Process]:
        command = [sys.executable, "-m", "fairlane", "worker", "bench.worker_app:app", *flags]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        try:
            yield psutil.Process(process.pid)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
            self.diary.write_text("")

    @contextmanager
    def foreman(self, *flags: str) -> Iterator[psutil.Process]:
        """The same, once a first job has run."""
        with self.workers(*flags) as process:
            self.note.enqueue(monotonic())
            self.until(lambda: bool(self.lines()))
            sleep(2.0)
            yield process


def latency(scene: Scene) -> None:
    with scene.foreman("-p", "1", "-s", "10"):
        before = len(scene.lines())
        for _ in range(SAMPLES):
            scene.note.enqueue(monotonic())
            sleep(APART_S)
        scene.until(lambda: len(scene.lines()) == before + SAMPLES)
        waits = sorted(1000 * (float(began) - float(sent)) for _, _, sent, began, _ in scene.lines()[before:])
    p50, p99 = waits[len(waits) // 2], waits[int(len(waits) * 0.99)]
    told("enqueue to start, p50", f"{p50:.1f} ms", f"{P50_MS} ms", p50 <= P50_MS)
    told("enqueue to start, p99", f"{p99:.1f} ms", f"{P99_MS} ms", p99 <= P99_MS)


def idling(scene: Scene) -> None:
    with scene.foreman("-p", "1", "-s", "10") as foreman, psycopg.connect(scene.dsn, autocommit=True) as conn:
        [worker] = foreman.children()
        scene.note.enqueue(monotonic())
        sleep(20.0)  # what follows a start is no idling
        began = {p.pid: sum(p.cpu_times()[:2]) for p in (foreman, worker)}
        committed = transactions(conn)
        sleep(IDLE_S)
        for name, process in (("foreman", foreman), ("worker", worker)):
            share = (sum(process.cpu_times()[:2]) - began[process.pid]) / IDLE_S
            told(f"idle {name}, share of a core", f"{100 * share:.2f} %", f"{100 * IDLE_SHARE} %", share <= IDLE_SHARE)
            rss = process.memory_info().rss / 2**20
            told(f"idle {name}, memory", f"{rss:.0f} MB", f"{RSS_MB:g} MB", rss <= RSS_MB)
        rate = (transactions(conn) - committed) / IDLE_S
        told("idle, transactions", f"{rate:.1f}/s", f"{IDLE_TRANSACTIONS:g}/s", rate <= IDLE_TRANSACTIONS)


def transactions(conn: psycopg.Connection) -> int:
    conn.execute("select pg_stat_force_next_flush()")
    row = conn.execute(
        "select xact_commit + xact_rollback from pg_stat_database where datname = current_database()"
    ).fetchone()
    assert row is not None
    return int(row[0])


def recovery(scene: Scene) -> None:
    spans = []
    for _ in range(KILLS):
        with scene.foreman("-p", "2", "-s", "10/process"):
            handles = scene.app.enqueue_many([scene.note.bind(monotonic(), 0.05) for _ in range(400)])
            scene.until(lambda: len(scene.lines()) > 100)
            killed_s = monotonic()
            os.kill(int(scene.lines()[-1][4]), signal.SIGKILL)
            scene.until(lambda: any(int(attempt) > 1 for _, attempt, *_ in scene.lines()))
            spans.append(min(float(began) for _, attempt, _, began, _ in scene.lines() if int(attempt) > 1) - killed_s)
            scene.until(
                lambda: not any(queue.ready + queue.processing for queue in scene.app.statistics.counts().queues)
            )
            sleep(0.5)
            if any(handle.status() != "completed" for handle in handles):
                raise AssertionError("a job was lost")
    told(
        "kill -9 of a worker to its jobs running again",
        f"{max(spans):.2f} s",
        f"{RECOVERY_S} s",
        max(spans) < RECOVERY_S,
    )


def told(what: str, found: str, goal: str, is_met: bool) -> None:
    print(f"  {what}: {found}   goal ≤ {goal}   {'met' if is_met else 'MISSED'}", flush=True)


def main() -> None:
    # What the server does for its own upkeep, some transactions a second, is no worker's.
    with PostgresServer({"autovacuum": "off"}) as server, tempfile.TemporaryDirectory() as folder:
        scene = Scene(server.create_database("bench"), Path(folder))
        latency(scene)
        idling(scene)
        recovery(scene)
        scene.app.close()


if __name__ == "__main__":
    main()
