"""What failover costs: an enqueue while the store answers, the switch, an enqueue while it is away, and the replay.

    python -m bench failover

A real PostgreSQL is halted, so that it neither answers nor refuses, and killed. Goals: the switch costs the timeout once; then
1 ms an enqueue at most; 100,000 spooled jobs replay at 5,000 a second or more.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable
from statistics import median
from time import perf_counter, sleep

import psutil

from bench.postgres_ground import specs
from fairlane.core.ops import Enqueue
from fairlane.stores.failover import Failover, Spool
from fairlane.stores.postgres import PostgresStore
from tests.servers.postgres import PostgresServer

CALLS, SPOOLED, TIMEOUT_S = 500, 100_000, 2.0
ANSWER_MS, REPLAY_S = 1.0, 5_000
FLAGS = os.O_CREAT | os.O_WRONLY | os.O_APPEND


def timed_ms(act: Callable[[], object]) -> float:
    began = perf_counter()
    act()
    return (perf_counter() - began) * 1000


def line(title: str, shown: str, goal: str, *, is_met: bool) -> None:
    print(f"  {title:<52}{shown:>24}   goal {goal:<16}{'met' if is_met else 'MISSED'}", flush=True)


def synced_write(file: int) -> None:
    os.write(file, b"x" * 600)
    os.fdatasync(file)


def signal_all(server: PostgresServer, what: signal.Signals) -> None:
    postmaster = psutil.Process(server.pid)
    for process in [postmaster, *postmaster.children(recursive=True)]:
        os.kill(process.pid, what)


def main() -> None:
    with PostgresServer() as server, tempfile.TemporaryDirectory(prefix="fairlane-bench-") as directory:
        dsn = server.create_database("bench")
        plain = PostgresStore(dsn)
        plain.migrator().up()
        both = Failover(PostgresStore(dsn), Spool(directory, capacity=2 * SPOOLED), timeout_s=TIMEOUT_S)
        try:
            measure(server, plain, both)
        finally:
            both.close()
            plain.close()


def measure(server: PostgresServer, plain: PostgresStore, both: Failover) -> None:
    def one(store: PostgresStore | Failover) -> float:
        op = Enqueue(jobs=specs(1))
        return timed_ms(lambda: store.run(op))

    pairs = [(one(both), one(plain)) for _ in range(CALLS)]
    with_spool, without = median(a for a, _ in pairs), median(b for _, b in pairs)
    print(f"  {'enqueue while the store answers':<52}{with_spool:>21.3f} ms   without a spool {without:.3f} ms")
    signal_all(server, signal.SIGSTOP)
    switch_ms = one(both)
    spooled = sorted(one(both) for _ in range(CALLS))
    signal_all(server, signal.SIGCONT)
    line(
        "the first enqueue after a server went silent",
        f"{switch_ms:,.0f} ms",
        f"{TIMEOUT_S * 1000:.0f} ms + 50",
        is_met=switch_ms <= TIMEOUT_S * 1000 + 50,
    )
    file = os.open(both.spool.place + "/raw", FLAGS)
    synced = sorted(timed_ms(lambda: synced_write(file)) for _ in range(CALLS))
    os.close(file)
    print(f"  {'a write and fsync alone':<52}{f'p50 {synced[CALLS // 2]:.2f} ms':>24}")
    shown = f"p50 {spooled[CALLS // 2]:.2f} p99 {spooled[CALLS * 99 // 100]:.2f} ms"
    line("an enqueue while it is away", shown, f"p50 {ANSWER_MS:g} ms", is_met=spooled[CALLS // 2] <= ANSWER_MS)
    wait_for_replay(both)
    server.kill9()
    for _ in range(SPOOLED // 1000):
        both.run(Enqueue(jobs=specs(1000, tenants=100)))
    server.start()
    took_s = wait_for_replay(both)
    line(
        f"replay of {SPOOLED:,} jobs",
        f"{SPOOLED / took_s:,.0f}/s",
        f"{REPLAY_S:,}/s",
        is_met=SPOOLED / took_s >= REPLAY_S,
    )


def wait_for_replay(both: Failover) -> float:
    """Seconds from when the replay began until the spool was empty."""
    before = both.state().spool.jobs
    while (left := both.state().spool.jobs) == before and left:
        sleep(0.002)
    began = perf_counter()
    while both.state().spool.jobs or not both.state().reachable:
        sleep(0.01)
    return perf_counter() - began


if __name__ == "__main__":
    main()
