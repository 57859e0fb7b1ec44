"""Draining no-op jobs beside the peers, on one PostgreSQL, on SQLite files and on one Valkey, interleaved; `make bench-peers` installs them first.

Jobs a second from the first to the last, for one and for two worker processes, and the ratio to the fastest peer of the round.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
JOBS = {"fairlane": 20_000, "pgqueuer": 20_000, "procrastinate": 2_000, "chancy": 10_000}
ON_FILES = {"fairlane_sqlite": 20_000, "huey": 5_000}
ON_REDIS = {"fairlane_redis": 20_000, "huey_redis": 5_000, "dramatiq": 5_000, "taskiq": 5_000}
SLOTS, ROUNDS, PATIENCE_S = 100, 5, 60.0
GOAL, GOAL_ON_FILES, GOAL_ON_REDIS = 2.5, 3.0, 5.0
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the diary lies if it can: on a disk, appending to one file from two processes is a good part of what is measured."""


def call(environ: dict[str, str], *words: str) -> None:
    subprocess.run([PYTHON, "-m", "bench.peer_systems", *words], env=environ, check=True)


def drain(dsn: str, system: str, count: int, processes: int) -> float:
    """Jobs a second of one system from an empty place."""
    with tempfile.NamedTemporaryFile(dir=IN_MEMORY) as diary:
        return drain_into(Path(diary.name), dsn, system, count, processes)


def drain_into(diary: Path, dsn: str, system: str, count: int, processes: int) -> float:
    environ = os.environ | {"PEERS_DSN": dsn, "PEERS_DIARY": str(diary)}
    call(environ, system, "install")
    call(environ, system, "fill", str(count))
    work = [PYTHON, "-m", "bench.peer_systems", system, "work", str(SLOTS)]
    # Each in a session of its own: some peers have children that outlive them.
    workers = [
        subprocess.Popen(work, env=environ, stderr=subprocess.DEVNULL, start_new_session=True) for _ in range(processes)
    ]
    try:
        began, first = monotonic(), 0.0
        while (done := diary.stat().st_size) < count and monotonic() - began < PATIENCE_S:
            first = first or (monotonic() if done else 0.0)
            sleep(0.002)
        return done / (monotonic() - first) if first else 0.0
    finally:
        for worker in workers:
            os.killpg(worker.pid, signal.SIGKILL)
            worker.wait()


def on_server(server: PostgresServer, system: str, processes: int, round_: int) -> float:
    name = f"{system}_{processes}_{round_}"
    try:
        return drain(server.create_database(name), system, JOBS[system], processes)
    finally:
        server.drop_database(name)


def on_file(system: str, processes: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        return drain(f"sqlite:///{folder}/jobs.db", system, ON_FILES[system], processes)


def report(what: str, rates: dict[str, list[float]], ours: str, goal: float) -> None:
    middle = {system: median(found) for system, found in rates.items()}
    ratio = middle[ours] / max(rate for system, rate in middle.items() if system != ours)
    listed = ", ".join(f"{system} {rate:,.0f}/s" for system, rate in middle.items())
    print(f"  {what}: {listed}; ratio {ratio:.1f}   goal {goal}   {'met' if ratio >= goal else 'MISSED'}", flush=True)


def on_redis(server: ValkeyServer, system: str, processes: int) -> float:
    try:
        return drain(server.url, system, ON_REDIS[system], processes)
    finally:
        server.call("FLUSHALL")


def on_postgres() -> None:
    with PostgresServer({"max_wal_size": "4GB", "shared_buffers": "512MB"}) as server:
        for processes in (1, 2):
            rates: dict[str, list[float]] = {system: [] for system in JOBS}
            for round_ in range(ROUNDS):
                for system in JOBS:
                    rates[system].append(on_server(server, system, processes, round_))
            report(f"PostgreSQL, {processes} × {SLOTS} slots", rates, "fairlane", GOAL)


def on_files() -> None:
    rates = {system: [on_file(system, 1) for _ in range(ROUNDS)] for system in ON_FILES}
    report(f"SQLite, 1 × {SLOTS} slots", rates, "fairlane_sqlite", GOAL_ON_FILES)


def on_valkey() -> None:
    with ValkeyServer(appendfsync="everysec") as server:
        for processes in (1, 2):
            rates: dict[str, list[float]] = {system: [] for system in ON_REDIS}
            for _ in range(ROUNDS):
                for system in ON_REDIS:
                    rates[system].append(on_redis(server, system, processes))
            report(f"Valkey, {processes} × {SLOTS} slots", rates, "fairlane_redis", GOAL_ON_REDIS)


def main() -> None:
    """All, or those that are named: postgres, files, redis."""
    every = {"postgres": on_postgres, "files": on_files, "redis": on_valkey}
    for name in sys.argv[1:] or every:
        every[name]()


if __name__ == "__main__":
    main()
