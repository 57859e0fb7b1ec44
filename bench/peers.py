"""Draining no-op jobs beside the peers, on one PostgreSQL, interleaved; `make bench-peers` installs them first.

Jobs a second from the first to the last, for one and for two worker processes, and the ratio to the fastest peer of the round.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from time import monotonic, sleep

from bench.peer_systems import SYSTEMS
from tests.servers.postgres import PostgresServer

PYTHON = os.environ.get("PEERS_PYTHON", sys.executable)
JOBS = {"fairlane": 20_000, "pgqueuer": 20_000, "procrastinate": 2_000}
SLOTS, ROUNDS, PATIENCE_S = 100, 3, 60.0
GOAL = 2.5


def call(environ: dict[str, str], *words: str) -> None:
    subprocess.run([PYTHON, "-m", "bench.peer_systems", *words], env=environ, check=True)


def drain(server: PostgresServer, system: str, processes: int, name: str) -> float:
    """Jobs a second of one system from an empty database."""
    with tempfile.TemporaryDirectory() as folder:
        diary, count = Path(folder) / "diary", JOBS[system]
        diary.touch()
        environ = os.environ | {"PEERS_DSN": server.create_database(name), "PEERS_DIARY": str(diary)}
        call(environ, system, "install")
        call(environ, system, "fill", str(count))
        work = [PYTHON, "-m", "bench.peer_systems", system, "work", str(SLOTS)]
        workers = [subprocess.Popen(work, env=environ, stderr=subprocess.DEVNULL) for _ in range(processes)]
        try:
            began, first = monotonic(), 0.0
            while (done := diary.stat().st_size) < count and monotonic() - began < PATIENCE_S:
                first = first or (monotonic() if done else 0.0)
                sleep(0.002)
            return done / (monotonic() - first)
        finally:
            for worker in workers:
                worker.kill()
                worker.wait()
            server.drop_database(name)


def main() -> None:
    with PostgresServer({"max_wal_size": "4GB", "shared_buffers": "512MB"}) as server:
        for processes in (1, 2):
            rates: dict[str, list[float]] = {system: [] for system in SYSTEMS}
            for round_ in range(ROUNDS):
                for system in SYSTEMS:
                    rates[system].append(drain(server, system, processes, f"{system}_{processes}_{round_}"))
            middle = {system: median(found) for system, found in rates.items()}
            fastest = max(rate for system, rate in middle.items() if system != "fairlane")
            ratio = middle["fairlane"] / fastest
            listed = ", ".join(f"{system} {rate:,.0f}/s" for system, rate in middle.items())
            print(
                f"  {processes} × {SLOTS} slots: {listed}; ratio {ratio:.1f}   goal {GOAL}   {'met' if ratio >= GOAL else 'MISSED'}",
                flush=True,
            )


if __name__ == "__main__":
    main()
