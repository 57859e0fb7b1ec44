"""Enqueueing through the client: one call after another, fifty at once, for tenants with a quota, and large payloads.

Rates are of wall time, CPU of this process alone. On PostgreSQL with fsync and on a SQLite file.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from statistics import median
from typing import Any

import psycopg

from fairlane import Fairlane
from fairlane.core.clock import SystemClock
from tests.servers.postgres import PostgresServer

clock = SystemClock()
ROUNDS = 5
SERVER = {"max_wal_size": "8GB", "shared_buffers": "1GB", "track_functions": "all"}


class Run:
    """What one round took."""

    def __init__(self, jobs: int) -> None:
        self._jobs, self._began_s, self._cpu_s = jobs, clock.monotonic(), time.process_time()
        self.waits_ms: list[float] = []

    def end(self) -> Run:
        self.rate = self._jobs / (clock.monotonic() - self._began_s)
        self.cpu_us = (time.process_time() - self._cpu_s) / self._jobs * 1e6
        return self


class Client:
    def __init__(self, app: Fairlane) -> None:
        self.app = app
        self.task = app.task(name="mail.send")(send)
        self.large = app.task(name="mail.large")(send_large)

    def one(self, count: int = 500) -> Run:
        run = Run(count)
        for n in range(count):
            self.task.enqueue(n, template="welcome")
        return run.end()

    async def aone(self, count: int = 500) -> Run:
        run = Run(count)
        for n in range(count):
            await self.task.aenqueue(n, template="welcome")
        return run.end()

    async def at_once(self, callers: int, count: int = 5_000) -> Run:
        run = Run(count)

        async def caller(calls: int) -> None:
            for n in range(calls):
                began_s = clock.monotonic()
                await self.task.aenqueue(n, template="welcome")
                run.waits_ms.append((clock.monotonic() - began_s) * 1e3)

        await asyncio.gather(*(caller(count // callers) for _ in range(callers)))
        return run.end()

    def in_threads(self, callers: int, count: int = 2_000) -> Run:
        run = Run(count)

        def caller(calls: int) -> None:
            for n in range(calls):
                began_s = clock.monotonic()
                self.task.enqueue(n, template="welcome")
                run.waits_ms.append((clock.monotonic() - began_s) * 1e3)

        threads = [threading.Thread(target=caller, args=(count // callers,)) for _ in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return run.end()

    def many(self, count: int = 1_000, calls: int = 10) -> Run:
        run = Run(count * calls)
        for _ in range(calls):
            self.app.enqueue_many([self.task.bind(n, template="welcome") for n in range(count)])
        return run.end()

    def map(self, count: int = 1_000, calls: int = 10) -> Run:
        run = Run(count * calls)
        self.task.enqueue_map(((n, "welcome") for n in range(count * calls)), chunk=count)
        return run.end()


def send(user_id: int, template: str) -> None: ...


def send_large(rows: list[dict[str, Any]]) -> None: ...


def large_payload() -> list[dict[str, Any]]:
    """About 50 KB of JSON, as an export of orders may have it."""
    return [
        {
            "order": n,
            "customer": f"customer-{n:05}",
            "total": "129.95",
            "lines": [n, n + 1],
            "url": f"https://shop.example/o/{n}",
        }
        for n in range(450)
    ]


def show(what: str, runs: list[Run], *, least: float | None = None, p50_ms: float | None = None) -> None:
    rate = median(run.rate for run in runs)
    text = f"  {what:<46}{rate:>9,.0f}/s   {median(run.cpu_us for run in runs):>6.0f} µs"
    met = True
    if waits := sorted(wait for run in runs for wait in run.waits_ms):
        middle = median(waits)
        text += f"   p50 {middle:.2f}, p99 {waits[len(waits) * 99 // 100]:.2f} ms"
        met = p50_ms is None or middle <= p50_ms
    if least is not None:
        goal = f"{least:,.0f}/s" + ("" if p50_ms is None else f", p50 {p50_ms:g} ms")
        text += f"   goal {goal}   {'met' if met and rate >= least else 'MISSED'}"
    print(text, flush=True)


async def rounds(measure: Callable[[], Awaitable[Run]], count: int = ROUNDS) -> list[Run]:
    await measure()
    return [await measure() for _ in range(count)]


def measure(name: str, client: Client, goals: dict[str, tuple[float, float | None]]) -> None:
    def report(what: str, runs: list[Run]) -> None:
        least, p50_ms = goals.get(what, (None, None))
        show(f"{name}: {what}", runs, least=least, p50_ms=p50_ms)

    async def asynchronous() -> None:
        report("aenqueue", await rounds(client.aone))
        report("50 aenqueue at once", await rounds(lambda: client.at_once(50)))
        report("8 aenqueue at once", await rounds(lambda: client.at_once(8)))
        await client.app.aclose()

    report("enqueue", [client.one() for _ in range(ROUNDS + 1)][1:])
    report("enqueue of 16 threads", [client.in_threads(16) for _ in range(ROUNDS + 1)][1:])
    report("enqueue_many of 1,000", [client.many() for _ in range(ROUNDS + 1)][1:])
    report("enqueue_map of 1,000", [client.map() for _ in range(ROUNDS + 1)][1:])
    asyncio.run(asynchronous())


def measure_payloads(client: Client) -> None:
    """The client's part of an enqueue of 50 KB, of a text and of many small objects."""
    for what, rows in (
        ("one text", [{"text": "lorem ipsum dolor sit amet, " * 1_780}]),
        ("450 objects", large_payload()),
    ):
        costs = []
        for _ in range(ROUNDS * 3):
            began_s = time.process_time()
            client.large.bind(rows)
            costs.append((time.process_time() - began_s) * 1e6)
        cost, size = median(costs), len(bytes(client.large.bind(rows).payload))
        print(
            f"  bind of {size:,} bytes, {what}: {cost:.0f} µs   goal 200   {'met' if cost <= 200 else 'MISSED'}",
            flush=True,
        )


def server_us(dsn: str, tenant: str | None, jobs: int = 1_000) -> float:
    """Time the server takes for one enqueue, by its own statistics of functions."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("select pg_stat_reset()")
        app = Fairlane(dsn, profile="isolation")
        task = app.task(name="mail.send")(send)
        task = task if tenant is None else task.using(tenant=tenant)
        for n in range(jobs):
            task.enqueue(n, template="welcome")
        app.close()  # its sessions end, and report
        find = "select total_time from pg_stat_user_functions where funcname = 'enqueue_one_v1'"
        while (found := conn.execute(find).fetchone()) is None:
            time.sleep(0.01)
    return float(found[0]) * 1e3 / jobs


def measure_tenants(dsn: str) -> None:
    """A tenant beyond a limit that only warns, beside the application itself, which has none."""
    found: dict[str | None, list[float]] = {None: [], "acme": []}
    server_us(dsn, "acme")
    for _ in range(ROUNDS):
        for tenant, times in found.items():
            times.append(server_us(dsn, tenant))
    ratio = median(full / free for full, free in zip(found["acme"], found[None], strict=True))
    print(
        f"  PostgreSQL: server time of an enqueue for a tenant over its limit {median(found['acme']):.0f} µs, for the "
        f"application {median(found[None]):.0f} µs: ratio {ratio:.2f}   goal 1.10   {'met' if ratio <= 1.1 else 'MISSED'}",
        flush=True,
    )


def main() -> None:
    measure_payloads(Client(Fairlane("memory://")))
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as folder:
        app = Fairlane(f"sqlite:///{folder}/jobs.db")
        measure(
            "SQLite",
            Client(app),
            {"enqueue": (3_300, None), "aenqueue": (2_500, None), "50 aenqueue at once": (15_000, None)},
        )
    with PostgresServer(SERVER) as server:
        dsn = server.create_database("bench")
        app = Fairlane(dsn)
        migrator = app.runtime.store.migrator()
        assert migrator is not None
        migrator.up()
        measure_tenants(dsn)
        measure("PostgreSQL", Client(app), {"50 aenqueue at once": (25_000, 2.0)})


if __name__ == "__main__":
    main()
