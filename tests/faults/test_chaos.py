"""Everything at once, for as long as it is given (FAIRLANE_CHAOS_S): kills, halts, cuts, crashes, pauses, hang-ups.

What really ran is known from a file outside the store. Nothing acknowledged is lost, no two attempts of a job overlap,
no limit is exceeded, no schedule fires twice, and jobs begin again within the lease and two seconds.
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import signal
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fairlane import Fairlane
from fairlane.core.ids import JobId
from fairlane.errors import FairlaneError
from fairlane.stores.postgres import PostgresStore
from tests.faults import chaos_site
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import BLACKHOLE, PASS, Proxy
from tests.worker.foreman.crew import Crew, ForemanProcess

CHAOS_S = float(os.environ.get("FAIRLANE_CHAOS_S", "40"))
SEED = int(os.environ.get("FAIRLANE_CHAOS_SEED", "13"))
LEASE_S = 4.0
FOREMEN = 3
TENANTS = ("acme", "globex", "initech")
BUSY_S = 0.04
"""Between two enqueues."""


class Line(NamedTuple):
    event: str
    type: str
    job: str
    attempt: int
    pid: int
    at_s: float


class Chaos:
    """A server, foremen behind proxies of their own, and what happens to them."""

    def __init__(self, server: PostgresServer, crew: Crew, app: Fairlane, proxies: list[Proxy]) -> None:
        self.server, self.crew, self.app, self.proxies = server, crew, app, proxies
        self.chance = random.Random(SEED)
        self.foremen = [self._start(number) for number in range(FOREMEN)]
        self.done: Counter[str] = Counter()
        self.story: list[tuple[float, str]] = []
        """What was done, and when."""
        self.outages: list[tuple[float, float]] = []
        self.acknowledged: dict[JobId, str] = {}
        self._undo: list[tuple[float, Callable[[], None]]] = []

    def run(self, seconds: float) -> None:
        ends_s, next_s, server_s = time.monotonic() + seconds, time.monotonic() + 5.0, time.monotonic() + 12.0
        while (now_s := time.monotonic()) < ends_s:
            self._enqueue()
            self._undo_due(now_s)
            if now_s > server_s:
                self._restart_server()
                server_s = time.monotonic() + 20.0
            elif now_s > next_s:
                self._act()
                next_s = now_s + self.chance.uniform(0.3, 1.5)
            time.sleep(BUSY_S)
        self._undo_due(float("inf"))

    def _act(self) -> None:
        """Do something to one host, as long as another one is well, or to all."""
        on_one: list[Callable[[int], None]] = [
            self._kill_worker,
            self._kill_worker,
            self._kill_foreman,
            self._halt_worker,
            self._halt_foreman,
            self._cut_connections,
            self._black_hole,
            self._hang_up,
        ]
        on_all: list[Callable[[], None]] = [self._pause_tenant, self._crash, self._crash, self._noise]
        chosen = self.chance.randrange(len(on_one) + len(on_all))
        if chosen >= len(on_one):
            name = on_all[chosen - len(on_one)].__name__
            self._did(name)
            on_all[chosen - len(on_one)]()
        else:
            number = self.chance.randrange(FOREMEN)
            if not any(self._is_well(other) for other in range(FOREMEN) if other != number):
                return
            self._did(on_one[chosen].__name__, number)
            on_one[chosen](number)

    def _did(self, act: str, number: int | None = None) -> None:
        self.done[act.strip("_")] += 1
        on = "" if number is None else f" of host {number}"
        self.story.append((time.monotonic(), f"{act.strip('_')}{on}"))

    def _is_well(self, number: int) -> bool:
        """Its workers are registered and its store answers, as its own probe says."""
        found = re.search(r"http://127\.0\.0\.1:(\d+)/livez", self.foremen[number].log())
        if found is None or self.proxies[number].plan is not PASS:
            return False
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}/readyz", timeout=0.5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def _start(self, number: int) -> ForemanProcess:
        url = self.server.dsn("chaos", port=self.proxies[number].port)
        flags = ("-p", "1", "-s", "6", "--lease", f"{LEASE_S:g}s", "--grace", "1s", "--probe-port", "0")
        return self.crew.start(*flags, app="tests.faults.chaos_site:app", YARD_URL=url)

    def _enqueue(self) -> None:
        name = self.chance.choice(("work", "work", "block", "limited"))
        tenant = self.chance.choice(TENANTS)
        with contextlib.suppress(FairlaneError):
            seconds = self.chance.choice((0.0, 0.05, 0.2, 1.0))
            handle = self.app.tasks[f"site.{name}"].using(tenant=tenant).enqueue(seconds)
            self.acknowledged[handle.id] = name

    def _later(self, after_s: float, act: Callable[[], None]) -> None:
        self._undo.append((time.monotonic() + after_s, act))

    def _undo_due(self, now_s: float) -> None:
        due = [act for at_s, act in self._undo if at_s <= now_s]
        self._undo = [(at_s, act) for at_s, act in self._undo if at_s > now_s]
        for act in due:
            act()

    def _worker(self, number: int) -> int | None:
        workers = self.foremen[number].workers()
        return self.chance.choice(workers) if workers else None

    def _signal(self, pid: int | None, number: signal.Signals) -> None:
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _kill_worker(self, number: int) -> None:
        self._signal(self._worker(number), signal.SIGKILL)

    def _halt_worker(self, number: int) -> None:
        pid = self._worker(number)
        self._signal(pid, signal.SIGSTOP)
        self._later(self.chance.uniform(0.5, 2 * LEASE_S), lambda: self._signal(pid, signal.SIGCONT))

    def _kill_foreman(self, number: int) -> None:
        self.foremen[number].signal(signal.SIGKILL)
        self.foremen[number].process.wait()
        self.foremen[number] = self._start(number)

    def _halt_foreman(self, number: int) -> None:
        foreman = self.foremen[number]
        self._signal(foreman.pid, signal.SIGSTOP)
        self._later(self.chance.uniform(0.5, 2 * LEASE_S), lambda: self._signal(foreman.pid, signal.SIGCONT))

    def _cut_connections(self, number: int) -> None:
        self.proxies[number].cut_all("reset")

    def _black_hole(self, number: int) -> None:
        proxy = self.proxies[number]
        proxy.plan = BLACKHOLE
        proxy.cut_all("silent")

        def end() -> None:
            proxy.plan = PASS
            proxy.cut_all("reset")

        self._later(self.chance.uniform(0.5, 2 * LEASE_S), end)

    def _pause_tenant(self) -> None:
        tenant = self.chance.choice(TENANTS)

        def resume() -> None:
            for _ in range(100):
                with contextlib.suppress(FairlaneError):
                    self.app.tenants.resume(tenant, by="chaos")
                    return
                time.sleep(0.1)

        with contextlib.suppress(FairlaneError):
            self.app.tenants.pause(tenant, by="chaos")
        self._later(self.chance.uniform(0.2, 2.0), resume)

    def _hang_up(self, number: int) -> None:
        self.foremen[number].signal(signal.SIGHUP)

    def _crash(self) -> None:
        with contextlib.suppress(FairlaneError):
            handle = self.app.tasks["site.crash"].using(tenant=self.chance.choice(TENANTS)).enqueue()
            self.acknowledged[handle.id] = "crash"

    def _noise(self) -> None:
        with contextlib.suppress(FairlaneError):
            handle = self.app.tasks["site.noise"].enqueue()
            self.acknowledged[handle.id] = "noise"

    def _restart_server(self) -> None:
        self._did("restart_server")
        began_s = time.monotonic()
        if self.chance.random() < 0.5:
            self.server.kill9()
        else:
            self.server.stop()
        self.server.start()
        self.outages.append((began_s, time.monotonic()))


def recorded(path: Path) -> list[Line]:
    lines = []
    for text in path.read_text().splitlines():
        event, task, job, attempt, pid, at_s = text.split()
        lines.append(Line(event, task, job, int(attempt), int(pid), float(at_s)))
    return lines


def overlaps(lines: list[Line]) -> list[Line]:
    """Signs of life of an attempt after a later attempt of the same job has begun."""
    began_s: dict[str, list[tuple[int, float]]] = {}
    for line in lines:
        if line.event == "began":
            began_s.setdefault(line.job, []).append((line.attempt, line.at_s))
    return [
        line
        for line in lines
        if any(attempt > line.attempt and at_s < line.at_s for attempt, at_s in began_s.get(line.job, ()))
    ]


def most_at_once(lines: list[Line], task: str) -> int:
    spans: dict[tuple[str, int], list[float]] = {}
    for line in lines:
        if line.type == task:
            spans.setdefault((line.job, line.attempt), []).append(line.at_s)
    steps = [step for seen in spans.values() for step in ((min(seen), 1), (max(seen), -1))]
    return max(accumulate(step for _, step in sorted(steps)), default=0)


def longest_gap(lines: list[Line], outages: list[tuple[float, float]]) -> tuple[float, float, float]:
    """The longest time in which nothing began although jobs were enqueued, without the server's own outages: how long,
    from when, until when."""
    began = sorted(line.at_s for line in lines if line.event == "began")
    gaps = [
        (after - before - sum(max(min(after, up) - max(before, down), 0.0) for down, up in outages), before, after)
        for before, after in pairwise(began)
    ]
    return max(gaps)


@pytest.fixture
def chaos(tmp_path: Path) -> Iterator[Chaos]:
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(PostgresServer())
        url = server.create_database("chaos")
        store = PostgresStore(url)
        store.migrator().up()
        store.close()
        proxies = [stack.enter_context(Proxy(server.port)) for _ in range(FOREMEN)]
        app = stack.enter_context(Fairlane(url, profile="production"))
        app.runtime.tasks.update(
            {name: type(task)(task.definition, app.runtime.enqueuer) for name, task in chaos_site.app.tasks.items()}
        )
        crew = Crew(url, tmp_path)
        stack.callback(crew.close)
        yield Chaos(server, crew, app, proxies)


@pytest.mark.requirement("Q17", "I14")
@pytest.mark.long
@pytest.mark.timeout(0)
def test_under_everything_at_once_nothing_is_lost_overlaps_or_stops(chaos: Chaos, tmp_path: Path) -> None:
    began_at = chaos.app.runtime.clock.now()
    chaos.crew.eventually(lambda: any("is ready" in foreman.log() for foreman in chaos.foremen), 60)
    chaos.run(CHAOS_S)
    final = {"completed", "dead"}
    statuses: dict[JobId, Any] = {}

    def all_ended() -> bool:
        for job in chaos.acknowledged:
            if job not in statuses:
                record = chaos.app.jobs.get(job)
                if record.status not in final:
                    return False
                statuses[job] = record
        return True

    ended_s = time.monotonic()
    chaos.crew.eventually(all_ended, 60 + CHAOS_S)
    drained_s = time.monotonic() - ended_s
    lines = recorded(tmp_path / "diary")
    dead = Counter((chaos.acknowledged[job], r.error_type) for job, r in statuses.items() if r.status == "dead")
    minutes = chaos.app.jobs.list(type="site.minute").jobs
    (gap_s, from_s, until_s), at_once = longest_gap(lines, chaos.outages), most_at_once(lines, "site.limited")
    print(
        f"\nchaos for {CHAOS_S:g} s (seed {SEED}), lease {LEASE_S:g} s: {dict(chaos.done)}\n"
        f"{len(chaos.acknowledged)} jobs acknowledged, {sum(line.event == 'began' for line in lines)} attempts began, "
        f"drained {drained_s:.1f} s after the end; dead: { {' '.join(map(str, k)): n for k, n in dead.items()} }\n"
        f"longest time without a start {gap_s:.2f} s, besides {sum(up - down for down, up in chaos.outages):.1f} s without "
        f"a server; {at_once} of {chaos_site.LIMIT} at once; {len(minutes)} minutes fired"
    )
    ended = {line.job for line in lines if line.event == "ended"}
    useful = {str(job) for job, name in chaos.acknowledged.items() if name in {"work", "block", "limited"}}
    completed = {str(job) for job, record in statuses.items() if record.status == "completed"}
    lost = completed & useful - ended
    assert lost == set(), "completed without having run to the end"
    assert {error for (name, error) in dead if name in {"work", "block", "limited"}} <= {"Crashed"}
    assert overlaps(lines) == []
    assert at_once <= chaos_site.LIMIT
    assert len(minutes) <= (chaos.app.runtime.clock.now() - began_at).total_seconds() / 60 + 1
    before = [f"{at_s - from_s:+.1f} s {what}" for at_s, what in chaos.story if from_s - 15 < at_s < until_s]
    assert gap_s <= LEASE_S + 2.0, f"nothing began for {until_s - from_s:.1f} s after {before}"
