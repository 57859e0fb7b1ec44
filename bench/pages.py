"""The dashboard in Chromium, in front of a million finished and a hundred thousand waiting jobs (BENCH_JOBS=… for fewer).

First paint is the browser's own measure from the click to the first text; the cost of a live page is the processor time
of the server while one is open and things happen.
"""

from __future__ import annotations

from statistics import median

import httpx
import psutil
from playwright.sync_api import sync_playwright

from bench.api_ground import JOBS, load, served
from bench.postgres_ground import Bench, bench, clock
from tests.web.conftest import CHROMIUM, FLAGS

GOAL_MS = 200.0
GOAL_SHARE = 0.01
ROUNDS = 7
LIVE_S = 30.0
PAGES = {
    "overview": "/",
    "overview, a week": "/?range=7d",
    "overview of a tenant": "/?tenant=tenant-7",
    "jobs": "/jobs",
    "jobs, pending": "/jobs?q=status:pending",
    "jobs of a type that has none": "/jobs?q=type:no.such",
    "job": "/jobs/{job}",
    "failures": "/failures",
    "dead letters": "/failures/letters",
    "charts by tenant": "/charts?by=tenant",
    "charts by task, a day": "/charts?by=type&range=24h",
    "queues": "/queues",
    "tenants": "/tenants",
    "audit": "/audit",
    "workers": "/workers",
}
ELEMENTS = "document.getElementsByTagName('*').length"
FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"


def paint_each(place: str, token: str) -> None:
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=place, headers=headers) as http:
        job = http.get("/api/jobs/?status=completed&limit=1").json()["jobs"][0]["id"]
        paths = {name: path.format(job=job) for name, path in PAGES.items()}
        there = {name: path for name, path in paths.items() if http.get(path).status_code == 200}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_context(extra_http_headers=headers).new_page()
        for name, path in there.items():
            found = []
            for _ in range(ROUNDS):
                answer = page.goto(place + path)
                assert answer is not None
                page.wait_for_function(f"() => {FIRST_PAINT} > 0")
                server_ms = float(answer.headers["server-timing"].partition("dur=")[2])
                found.append((page.evaluate(FIRST_PAINT), server_ms))
            paint_ms, server_ms = median(paint for paint, _ in found), median(server for _, server in found)
            elements = page.evaluate(ELEMENTS)
            verdict = "ok" if paint_ms <= GOAL_MS else f"MISSED: {GOAL_MS:.0f} ms"
            print(
                f"  {name:32} first paint {paint_ms:6.0f} ms   server {server_ms:6.1f} ms   {elements:4} elements   {verdict}",
                flush=True,
            )
        browser.close()


def watch_live(ground: Bench, place: str, token: str) -> None:
    """Processor time of the server with one live overview open, while something happens each second."""
    [server] = [process for process in psutil.Process().children() if "bench.api_ground" in process.cmdline()]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        page = browser.new_context(extra_http_headers={"Authorization": f"Bearer {token}"}).new_page()
        page.goto(place)
        page.wait_for_selector("body[data-stream=open]")

        def used_s() -> float:
            times = server.cpu_times()
            return times.user + times.system

        began_s, used_before_s = clock.monotonic(), used_s()
        while clock.monotonic() - began_s < LIVE_S:
            ground.raw.execute("insert into fairlane.event (at, kind, data) values (now(), 'jobs', '{}')")
            page.wait_for_timeout(1000)
        share = (used_s() - used_before_s) / (clock.monotonic() - began_s)
        browser.close()
    verdict = "ok" if share <= GOAL_SHARE else f"MISSED: {GOAL_SHARE:.0%}"
    print(f"  a live overview takes {share:.2%} of a core on the server   {verdict}")


def main() -> None:
    if CHROMIUM is None:
        print("  needs Chromium: apt install chromium")
        return
    with bench() as ground:
        load(ground, JOBS)
        with served(ground.dsn) as (place, token):
            print(f"  {JOBS:,} finished, {JOBS // 10:,} waiting")
            paint_each(place, token)
            watch_live(ground, place, token)


if __name__ == "__main__":
    main()
