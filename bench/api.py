"""The HTTP API in front of a million finished and a hundred thousand waiting jobs (BENCH_JOBS=… for fewer)."""

from __future__ import annotations

import asyncio
from statistics import median, quantiles

import httpx

from bench.api_ground import JOBS, add_waiting, load, served
from bench.postgres_ground import Bench, bench, clock
from fairlane import Fairlane
from fairlane.metrics import scrape as scraping

GOAL_MS = 100.0
GOAL_ENQUEUES = 500.0
REQUESTS = 60
GOAL_SCRAPE = 1.3
"""How many times as long a scrape may take with many times the jobs."""
SMALL = 10_000
BEYOND = 100_000
"""Jobs that wait in a queue are then more than a scrape counts."""

LISTINGS = {
    "jobs, all": "/api/jobs/",
    "jobs, a page of 200 in the middle": "/api/jobs/?limit=200&cursor={middle}",
    "jobs, pending": "/api/jobs/?status=pending",
    "jobs, completed": "/api/jobs/?status=completed",
    "jobs, cancelled": "/api/jobs/?status=cancelled",
    "jobs, dead and failed": "/api/jobs/?status=dead&status=failed",
    "jobs of a tenant": "/api/jobs/?tenant=tenant-7",
    "jobs of a tenant, pending": "/api/jobs/?tenant=tenant-7&status=pending",
    "jobs of a tenant, dead": "/api/jobs/?tenant=tenant-7&status=dead",
    "jobs of a tenant nobody knows": "/api/jobs/?tenant=nobody",
    "jobs of a queue": "/api/jobs/?queue=queue3",
    "jobs of a queue that has none": "/api/jobs/?queue=nowhere",
    "jobs of a type, pending": "/api/jobs/?type=task.3&status=pending",
    "jobs of a type that has none": "/api/jobs/?type=no.such",
    "jobs of a type that has none, pending": "/api/jobs/?type=no.such&status=pending",
    "jobs of a category that has none": "/api/jobs/?category=nothing",
    "jobs of a creator": "/api/jobs/?created_by=shop",
    "jobs of a creator that has none": "/api/jobs/?created_by=nobody",
    "jobs of a correlation": "/api/jobs/?correlation_id=order-4711",
    "jobs by a key that is not there": "/api/jobs/?idempotency_key=nothing",
    "jobs of an hour, days ago": "/api/jobs/?enqueued_from={hour_from}&enqueued_before={hour_before}",
    "managers' queue": "/api/jobs/admin/queue/",
    "dead letters": "/api/jobs/admin/dlq/",
    "dead letters pending review": "/api/jobs/admin/dlq/?status=pending_review",
    "dead letters of a tenant": "/api/jobs/admin/dlq/?tenant=tenant-50",
    "dead letters of a type": "/api/jobs/admin/dlq/?type=task.10&acknowledged=false",
    "dead letters of an error that is not there": "/api/jobs/admin/dlq/?error_type=Nothing",
    "dead letters, grouped": "/api/jobs/admin/dlq/groups/",
    "tenants": "/api/jobs/tenants/",
    "audit": "/api/jobs/audit/",
    "audit of an act that is not there": "/api/jobs/audit/?action=nothing",
}
STATISTICS = {
    "queues": "/api/jobs/queues/",
    "managers' statistics": "/api/jobs/admin/queue/statistics/",
    "dead letters counted": "/api/jobs/admin/dlq/statistics/",
    "an hour by minute": "/api/jobs/statistics/",
    "an hour by minute and tenant": "/api/jobs/statistics/?by=tenant",
    "a day by quarter of an hour": "/api/jobs/statistics/?since={day_from}&step_s=900",
    "a day of a tenant": "/api/jobs/statistics/?since={day_from}&step_s=900&tenant=tenant-7",
}


def times_ms(client: httpx.Client, path: str) -> list[float]:
    times = []
    for _ in range(REQUESTS):
        began = clock.monotonic()
        answer = client.get(path)
        times.append((clock.monotonic() - began) * 1000)
        assert answer.status_code == 200, f"{path}: {answer.text}"
    return times


def measure(client: httpx.Client, paths: dict[str, str], about: dict[str, str]) -> None:
    for title, path in paths.items():
        times = times_ms(client, path.format(**about))
        p99 = quantiles(times, n=100)[98]
        verdict = "met" if p99 <= GOAL_MS else "MISSED"
        print(
            f"  {title:<46}p50 {median(times):>7.1f} ms   p99 {p99:>7.1f} ms   goal {GOAL_MS:.0f}   {verdict}",
            flush=True,
        )


def about(ground: Bench) -> dict[str, str]:
    [(middle, hour_from, hour_before, day_from)] = ground.raw.execute("""
        select max(seq) / 2, to_char((now() - interval '3 days') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               to_char((now() - interval '71 hours') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"'),
               to_char((now() - interval '1 day') at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"')
        from fairlane.job""").fetchall()
    return {"middle": str(middle), "hour_from": hour_from, "hour_before": hour_before, "day_from": day_from}


def scrapes_ms(ground: Bench) -> tuple[float, float]:
    """The first scrape of a process, and the median of those that follow it."""
    with Fairlane(ground.dsn) as app:
        times = []
        for _ in range(20):
            began = clock.monotonic()
            scraping.exposition(app)
            times.append((clock.monotonic() - began) * 1000)
            for scrape in scraping._scrapes[app].values():
                scrape._read_s = float("-inf")  # what is kept for ten seconds is not asked for again
    return times[0], median(times[1:])


async def enqueue_for(place: str, token: str, seconds: float, at_once: int = 16) -> float:
    """Enqueues a second through one server process, asked by a client that costs next to nothing."""
    host, port = place.removeprefix("http://").split(":")
    done = 0
    began = clock.monotonic()

    async def one_after_the_other(number: int) -> None:
        nonlocal done
        head = "POST /api/jobs/ HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n"
        reader, writer = await asyncio.open_connection(host, int(port))
        while clock.monotonic() - began < seconds:
            tenant = f"enqueuer-{number}-{done // 5000}"  # none comes to its limit
            body = f'{{"type":"mail.send","tenant":"{tenant}","payload":{{"user_id":7,"template":"welcome"}}}}'
            writer.write((head.format(host, token, len(body)) + body).encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            assert answer.startswith(b"HTTP/1.1 201"), answer
            await reader.readexactly(int(answer.lower().partition(b"content-length: ")[2].split(b"\r")[0]))
            done += 1
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one_after_the_other(number) for number in range(at_once)))
    return done / (clock.monotonic() - began)


def main() -> None:
    with bench() as ground:
        load(ground, SMALL)
        small = scrapes_ms(ground)
        load(ground, BEYOND, waiting=BEYOND)
        beyond = scrapes_ms(ground)
        load(ground, JOBS)
        large = scrapes_ms(ground)
        print(f"  {JOBS:,} finished, {JOBS // 10:,} waiting", flush=True)
        with served(ground.dsn) as (place, token):
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(base_url=place, headers=headers, timeout=120) as client:
                client.get("/api/jobs/")
                measure(client, LISTINGS, about(ground))
                measure(client, STATISTICS, about(ground))
            rate = asyncio.run(enqueue_for(place, token, 5.0))
        print(
            f"  scrape at {SMALL:,} / {JOBS:,} finished: first {small[0]:.1f} / {large[0]:.1f} ms, then {small[1]:.1f} / {large[1]:.1f} ms"
        )
        add_waiting(ground, JOBS - JOBS // 10)
        ground.raw.execute("vacuum analyze")
        full = scrapes_ms(ground)
        ratio = full[1] / beyond[1]
        verdict = "met" if ratio <= GOAL_SCRAPE else "MISSED"
        print(
            f"  scrape at {BEYOND:,} / {JOBS:,} finished and as many waiting: {beyond[1]:.1f} / {full[1]:.1f} ms, "
            f"{ratio:.2f} times   goal {GOAL_SCRAPE}   {verdict}"
        )
        verdict = "met" if rate >= GOAL_ENQUEUES else "MISSED"
        print(f"  enqueues through one process: {rate:,.0f}/s   goal {GOAL_ENQUEUES:.0f}   {verdict}", flush=True)


if __name__ == "__main__":
    main()
