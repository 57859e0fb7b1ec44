"""Noisy neighbours, shares and urgent work, on PostgreSQL with a real worker in this process.

`python -m bench.fairness [--jobs 100000] [--samples 1000] [--share-s 10]`: smaller figures for a quick look.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles

from fairlane import Fairlane
from fairlane.core.clock import SystemClock
from fairlane.core.ops import SetTenant
from fairlane.core.profiles import ANY, Lane
from fairlane.worker.config import WorkerConfig
from fairlane.worker.embedded import EmbeddedWorker
from tests.servers.postgres import PostgresServer

clock = SystemClock()
SLOTS = 10
JOB_S = 0.005
LATE_S = 0.010
CRITICAL_S = 0.050
WARM_S = 4.0
GENERAL = Lane("general", SLOTS, (ANY,))


class Shop:
    """An application whose jobs take as long as they are told, and note when they began."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.app = app = Fairlane(server.create_database(name), profile="production")
        app.runtime.store.migrator().up()
        self.began: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.time_s: Counter[str] = Counter()
        self.count: Counter[str] = Counter()

        @app.task(name="work", queue="default")
        async def work(seconds: float, tenant: str, note: str | None = None) -> None:
            began_s = clock.monotonic()
            if note is not None:
                self.began[note] = began_s
            await asyncio.sleep(seconds)
            now_s = clock.monotonic()
            self.time_s[tenant] += now_s - began_s
            self.count[tenant] += 1
            if note is not None:
                self.ended[note] = now_s

        self.work = work

    def put(self, tenant: str, count: int, seconds: float = JOB_S, queue: str = "default") -> None:
        task = self.work.using(tenant=tenant, queue=queue)
        for first in range(0, count, 5000):
            self.app.enqueue_many([task.bind(seconds, tenant) for _ in range(min(5000, count - first))])

    def start_latency_s(self, note: str, tenant: str, queue: str = "default") -> float:
        """From the enqueue's return to the first line of the job."""
        self.work.using(tenant=tenant, queue=queue).enqueue(JOB_S, tenant, note)
        sent_s = clock.monotonic()
        pause = threading.Event()
        while note not in self.began:
            pause.wait(0.0005)
        return max(self.began[note] - sent_s, 0.0)

    @contextmanager
    def worker(self, *lanes: Lane) -> Iterator[None]:
        config = WorkerConfig(lanes=lanes or (GENERAL,), poll_s=1.0, grace_s=0.0)
        with self.app.running(config=config):
            yield


def p99(samples: list[float]) -> float:
    return quantiles(samples, n=100)[98]


def verdict(name: str, value: str, is_met: bool) -> None:
    print(f"  {name:<72}{value:>22}   {'met' if is_met else 'MISSED'}", flush=True)


def trickle(shop: Shop, name: str, samples: int) -> list[float]:
    pause = threading.Event()
    spans = []
    for n in range(samples):
        spans.append(shop.start_latency_s(f"{name}-{n}", f"{name}-{n % 50}"))
        pause.wait(0.002 + 0.001 * (n % 7))
    return spans


def noisy_neighbour(server: PostgresServer, jobs: int, samples: int) -> None:
    shop = Shop(server, "noisy")
    with shop.worker():
        empty = p99(trickle(shop, "empty", samples))
        shop.put("flood", jobs)
        began_s = clock.monotonic()
        shop.app.enqueue_many(
            [shop.work.using(tenant=f"small-{n}").bind(JOB_S, f"small-{n}", f"small-{n}") for n in range(50)]
        )
        while sum(f"small-{n}" in shop.ended for n in range(50)) < 50:
            threading.Event().wait(0.002)
        took_s = max(shop.ended[f"small-{n}"] for n in range(50)) - began_s
        verdict(
            f"50 tenants of one job each beside {jobs:,} of another: all done within 0.5 s",
            f"{took_s:.3f} s",
            took_s <= 0.5,
        )
        before = shop.count["flood"]
        since_s = clock.monotonic()
        busy = p99(trickle(shop, "busy", samples))
        rate = (shop.count["flood"] - before) / (clock.monotonic() - since_s)
        still_busy = shop.count["flood"] < jobs
        verdict(
            f"start of a trickle, p99 of {samples:,}: at most empty + one job + 10 ms",
            f"{1000 * busy:.1f} / {1000 * empty:.1f} ms",
            busy <= empty + JOB_S + LATE_S and still_busy,
        )
        print(f"  meanwhile the other ran {rate:,.0f} jobs/s, {rate * JOB_S / SLOTS:.0%} of its slots", flush=True)
    shop.app.close()


def time_had(shop: Shop, running: EmbeddedWorker) -> Counter[str]:
    """By tenant: slot time, also of what runs now."""
    engine, had, now_s = running._engine, Counter(shop.time_s), clock.monotonic()
    assert engine is not None
    for slot in engine.state.slots:
        if slot.lease is not None:
            had[slot.lease.tenant] += now_s - slot.began_s  # type: ignore[assignment]
    return had


def shares(server: PostgresServer, for_s: float) -> None:
    for title, lengths, weights, batch in (
        ("equal weights, 20 tenants", [JOB_S] * 20, {}, None),
        ("equal weights, jobs of 2 to 40 ms", [0.002 * (1 + n) for n in range(20)], {}, None),
        ("weights 3:1, equal lengths, by count", [JOB_S] * 2, {"t00": 3.0}, None),
        ("weights 3:1, 5 ms beside 50 ms, by time", [JOB_S, 10 * JOB_S], {"t00": 3.0}, None),
        ("weights 3:1, equal lengths, batch of 1", [JOB_S] * 2, {"t00": 3.0}, 1),
        ("30 s beside 50 ms, by time", [30.0, 0.05], {}, None),
    ):
        shop = Shop(server, f"shares{abs(hash(title))}")
        for tenant, weight in weights.items():
            shop.app.runtime.store.run(SetTenant(name=tenant, weight=weight, by="bench"))
        names = [f"t{n:02}" for n in range(len(lengths))]
        window_s = for_s if max(lengths) < 1 else 90.0
        for tenant, seconds in zip(names, lengths, strict=True):
            shop.put(tenant, min(int((window_s + WARM_S) * SLOTS / seconds) + 100, 30_000), seconds)
        config = WorkerConfig(lanes=(GENERAL,), poll_s=1.0, grace_s=0.0, batch=batch)
        with shop.app.running(config=config) as running:
            threading.Event().wait(WARM_S)  # weights are read by then
            first_time, first_count = time_had(shop, running), Counter(shop.count)
            threading.Event().wait(window_s)
            had, count = time_had(shop, running), Counter(shop.count)
        had.subtract(first_time)
        count.subtract(first_count)
        by = count if "count" in title or "batch" in title else had
        if weights:
            share = by["t00"] / sum(by.values())
            verdict(f"{title}: 0.75 within 5 %", f"{share:.3f}", abs(share - 0.75) <= 0.05 * 0.75)
        else:
            values = [by[tenant] for tenant in names]
            jain = sum(values) ** 2 / (len(values) * sum(value * value for value in values))
            verdict(f"{title}: Jain at least 0.95", f"{jain:.3f}", jain >= 0.95)
        shop.app.close()


def urgent(server: PostgresServer, samples: int) -> None:
    shop = Shop(server, "urgent")
    shop.put("flood", 30_000, 0.02)
    shop.put("flood", 30, 1.0, queue="bulk")
    with shop.worker(Lane("fast", 3, ("critical",), prompt=True), Lane("general", 5, (ANY,))):
        threading.Event().wait(1.0)
        spans = [shop.start_latency_s(f"urgent-{n}", "acme", "critical") for n in range(samples)]
        verdict(
            f"critical jobs while default and bulk are saturated, p99 of {samples:,}: within 50 ms",
            f"{1000 * p99(spans):.1f} ms",
            p99(spans) <= CRITICAL_S,
        )
    shop.app.close()


def main() -> None:
    reading = argparse.ArgumentParser()
    reading.add_argument("--jobs", type=int, default=100_000)
    reading.add_argument("--samples", type=int, default=1_000)
    reading.add_argument("--share-s", type=float, default=10.0)
    chosen = reading.parse_args(sys.argv[1:])
    logging.getLogger("fairlane").setLevel(logging.ERROR)
    with PostgresServer({"max_wal_size": "8GB", "shared_buffers": "1GB"}) as server:
        noisy_neighbour(server, chosen.jobs, chosen.samples)
        urgent(server, max(chosen.samples // 5, 20))
        shares(server, chosen.share_s)


if __name__ == "__main__":
    main()
