"""Fairlane beside the peers, by turns, on one PostgreSQL, on SQLite files and on one Valkey; `make bench-peers` installs them first.

    python -m bench.peers                        # everything: takes half an hour
    python -m bench.peers postgres one many      # these works alone, on these stores: postgres, files, redis
    python -m bench.peers one floor pgqueuer     # beside these systems alone

Each figure is the median of the rounds, with the least and the most in brackets, and the CPU of client and server for a job where that
was measured. The ratio is that of Fairlane's median to the best of its peers. `floor` is no library: the least code that keeps jobs in PostgreSQL.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import NamedTuple

import psutil

from bench.peer_systems import SYSTEMS
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer

_APART = Path(__file__).parent.parent / ".venv-peers/bin/python"
PYTHON = os.environ.get("PEERS_PYTHON") or str(_APART if _APART.exists() else sys.executable)
ROUNDS, PATIENCE_S = int(os.environ.get("PEERS_ROUNDS", "5")), 20.0
LATENCIES, PAUSE_S = 200, 0.02
SLOW = {
    "procrastinate": 10,
    "chancy": 4,
    "huey": 4,
    "huey_redis": 4,
    "dramatiq": 4,
    "taskiq": 4,
    "saq": 6,
    "streaq": 6,
    "arq": 10,
    "rq": 40,
    "celery": 10,
}
"""By how much fewer jobs a peer is given, so that a round does not take minutes."""
IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None
"""Where the diary lies if it can: on a disk, appending to one file from two processes is a good part of what is measured."""


class Store(NamedTuple):
    ours: str
    peers: tuple[str, ...]
    goals: dict[str, float]
    """Of each work: how many times the rate of the best peer, and what part of its latency."""


class Place(NamedTuple):
    """An empty place for the jobs of one system, and the processes of its server."""

    dsn: str
    server: tuple[int, ...] = ()


STORES = {
    "postgres": Store(
        "fairlane",
        ("pgqueuer", "procrastinate", "chancy", "floor"),
        {"one": 1.15, "many": 1.3, "start": 0.8, "drain_1x10": 4.0, "drain_1x100": 3.0, "drain_2x100": 2.7},
    ),
    "files": Store("fairlane_sqlite", ("huey",), {"one": 1.15, "drain_1x100": 3.0}),
    "redis": Store(
        "fairlane_redis",
        ("huey_redis", "dramatiq", "taskiq", "saq", "streaq", "arq", "rq", "celery"),
        {"one": 1.0, "many": 5.0, "drain_1x100": 5.0, "drain_2x100": 5.0},
    ),
}


class Measured(NamedTuple):
    figure: float
    """Jobs a second; of `start` milliseconds."""
    client_us: float = 0.0
    server_us: float = 0.0


def environ(place: Place, diary: str = "") -> dict[str, str]:
    return os.environ | {"PEERS_DSN": place.dsn, "PEERS_DIARY": diary}


def call(place: Place, *words: str) -> str:
    command = [PYTHON, "-m", "bench.peer_systems", *words]
    return subprocess.run(command, env=environ(place), check=True, stdout=subprocess.PIPE, text=True).stdout


def cpu_s(place: Place) -> float:
    """What the server's processes have used so far, those that have ended too."""
    used = 0.0
    for pid in place.server:
        own = psutil.Process(pid)
        times = [own.cpu_times(), *(child.cpu_times() for child in own.children(recursive=True))]
        used += sum(one.user + one.system for one in times) + times[0].children_user + times[0].children_system
    return used


def enqueue(place: Place, system: str, how: str, count: int) -> Measured:
    before_s = cpu_s(place)
    found = json.loads(call(place, system, how, str(count)))
    return Measured(count / found["wall_s"], found["cpu_s"] / count * 1e6, (cpu_s(place) - before_s) / count * 1e6)


@contextmanager
def workers(place: Place, system: str, processes: int, slots: int, act: str = "work") -> Iterator[Path]:
    """Running workers, and the file that their jobs write to."""
    with tempfile.NamedTemporaryFile(dir=IN_MEMORY) as diary:
        work = [PYTHON, "-m", "bench.peer_systems", system, act, str(slots)]
        # Each in a session of its own: some peers have children that outlive them.
        started = [
            subprocess.Popen(
                work,
                env=environ(place, diary.name),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            for _ in range(processes)
        ]
        try:
            yield Path(diary.name)
        finally:
            for worker in started:
                with suppress(ProcessLookupError):
                    os.killpg(worker.pid, signal.SIGKILL)
                worker.wait()


def drain(place: Place, system: str, processes: int, slots: int, count: int) -> Measured:
    """Jobs a second from the first to the last."""
    call(place, system, "fill", str(count))
    with workers(place, system, processes, slots) as diary:
        began, first = monotonic(), 0.0
        while (done := diary.stat().st_size // 8) < count and monotonic() - began < PATIENCE_S:
            first = first or (monotonic() if done else 0.0)
            sleep(0.002)
        return Measured(done / (monotonic() - first) if first else 0.0)


def start(place: Place, system: str, count: int) -> Measured:
    """From the call to the start of its job, where a worker has nothing else to do: the middle, in ms."""
    with workers(place, system, 1, 10) as diary:
        call(place, system, "single", "5")  # until it has started, and once more
        until = monotonic() + PATIENCE_S
        while diary.stat().st_size < 40 and monotonic() < until:
            sleep(0.05)
        call(place, system, "single", str(count))
        sleep(0.5)
        waits = [wait for (wait,) in struct.iter_unpack("<d", diary.read_bytes())][5:]
        return Measured(median(waits) * 1e3) if waits else Measured(float("inf"))


WORKS: dict[str, tuple[int, Callable[[Place, str, int], Measured]]] = {
    "one": (2_000, lambda place, system, count: enqueue(place, system, "one", count)),
    "at_once": (10_000, lambda place, system, count: enqueue(place, system, "at_once", count)),
    "many": (50_000, lambda place, system, count: enqueue(place, system, "many", count)),
    "start": (LATENCIES, start),
    "drain_1x10": (10_000, lambda place, system, count: drain(place, system, 1, 10, count)),
    "drain_1x100": (20_000, lambda place, system, count: drain(place, system, 1, 100, count)),
    "drain_2x100": (20_000, lambda place, system, count: drain(place, system, 2, 100, count)),
}
TITLES = {
    "one": "enqueue one",
    "at_once": "50 enqueues at once",
    "many": "enqueue many, 1,000 a call",
    "start": "enqueue to start, idle, ms",
    "drain_1x10": "drain, one process of 10 slots",
    "drain_1x100": "drain, one process of 100 slots",
    "drain_2x100": "drain, two processes of 100 slots",
}


@contextmanager
def emptied(server: PostgresServer | ValkeyServer | None) -> Iterator[Place]:
    if isinstance(server, PostgresServer):
        yield Place(server.create_database("peers"), (server.pid,))
        server.drop_database("peers")
    elif isinstance(server, ValkeyServer):
        yield Place(server.url, (server.pid,))
        server.call("FLUSHALL")
    else:
        with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
            yield Place(f"sqlite:///{folder}/jobs.db")


def measure(store: str, server: PostgresServer | ValkeyServer | None, words: list[str]) -> None:
    ours, peers, goals = STORES[store]
    peers = tuple(peer for peer in peers if peer in words) or peers
    for work in [work for work in WORKS if work in words] or WORKS:
        found: dict[str, list[Measured]] = {}
        for _ in range(ROUNDS):
            for system in (ours, *peers):
                if work not in SYSTEMS[system].works():
                    continue
                count, run = WORKS[work]
                count = max(count // SLOW.get(system, 1), 100)
                with emptied(server) as place:
                    call(place, system, "install")
                    found.setdefault(system, []).append(run(place, system, count))
        if found:
            report(store, work, found, ours, goals.get(work))


def report(store: str, work: str, found: dict[str, list[Measured]], ours: str, goal: float | None) -> None:
    print(f"\n{store}: {TITLES[work]}", flush=True)
    for system, runs in found.items():
        figures = [run.figure for run in runs]
        cpu = [median(run.client_us for run in runs), median(run.server_us for run in runs)]
        used = f"   {cpu[0]:,.0f} + {cpu[1]:,.0f} µs" if cpu[0] else ""
        digits = 1 if work == "start" else 0
        spread = f"({min(figures):,.{digits}f}–{max(figures):,.{digits}f})"
        print(f"  {system:<18}{median(figures):>10,.{digits}f}   {spread:<22}{used}", flush=True)
    others = [median(run.figure for run in runs) for system, runs in found.items() if system not in (ours, "floor")]
    if others:
        is_less = work == "start"
        ratio = median(run.figure for run in found[ours]) / (min(others) if is_less else max(others))
        met = "" if goal is None else "met" if (ratio <= goal if is_less else ratio >= goal) else "MISSED"
        aim = "" if goal is None else f"   goal {goal:g}   {met}"
        print(f"  ratio to the best peer {ratio:.2f}{aim}", flush=True)


def main() -> None:
    words = sys.argv[1:]
    stores = [word for word in words if word in STORES] or list(STORES)
    for store in stores:
        if store == "postgres":
            with PostgresServer({"max_wal_size": "4GB", "shared_buffers": "512MB"}) as server:
                measure(store, server, words)
        elif store == "redis":
            with ValkeyServer(appendfsync="everysec") as valkey:
                measure(store, valkey, words)
        else:
            measure(store, None, words)


if __name__ == "__main__":
    main()
