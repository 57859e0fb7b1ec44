"""Failover drills on PostgreSQL and Valkey: every job that was acknowledged is there afterwards, once, and runs once."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from msgspec import Raw

from fairlane import Fairlane, current_job
from fairlane.core.ops import ALL_TENANTS, AddNodes, Check, Emit, Enqueue, EnqueueWorkflow
from fairlane.core.workflows import NodeSpec, WorkflowId, WorkflowSpec
from fairlane.errors import StoreUnavailable
from fairlane.stores import open_store
from fairlane.stores.base import Store
from fairlane.stores.failover import CameBack, Failover, News, RefusesJobs, Replayed, Spool, WentAway
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.samples import Making, completed
from fairlane.testing.conformance.scene import Scene
from tests.faults.conftest import Stores
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.servers.postgres import PostgresServer
from tests.servers.proxy import BLACKHOLE, PASS, Plan, Proxy
from tests.servers.valkey import ValkeyServer
from tests.support.stores import COLOURS, Face

PATIENCE_S = 30.0


@contextmanager
def failover(store: Store, spool: Spool, **options: object) -> Iterator[Failover]:
    found = Failover(store, spool, **options)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.close()


class Drill:
    """Processes that enqueue through one spool directory, some of which are killed and replaced."""

    def __init__(self, url: str, directory: Path, writers: int) -> None:
        self._url, self._directory, self._writers = url, directory, writers
        self.spool = directory / "spool"
        self._files: list[Path] = []
        self._processes: list[subprocess.Popen[bytes]] = []

    def start_missing(self) -> None:
        while len(self._processes) < self._writers:
            number = len(self._files)
            file = self._directory / f"acknowledged-{number}"
            file.touch()
            self._files.append(file)
            command = [sys.executable, "-m", "tests.faults.failover_process", self._url, str(self.spool)]
            self._processes.append(subprocess.Popen([*command, str(number), str(file)]))

    def kill_one(self, random: Random) -> None:
        victim = self._processes.pop(random.randrange(len(self._processes)))
        victim.kill()
        victim.wait()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def acknowledged(self) -> set[str]:
        # Only whole lines: a writer may have been killed in the middle of one.
        return {line for file in self._files for line in file.read_text().split("\n")[:-1]}

    def wait_for_more(self, more: int) -> None:
        goal = len(self.acknowledged()) + more
        eventually(lambda: len(self.acknowledged()) >= goal, 60)


def drill(
    server: PostgresServer | ValkeyServer, url: str, directory: Path, *, writers: int, rounds: int, seed: int
) -> None:
    random, drill = Random(seed), Drill(url, directory, writers)
    try:
        for round_ in range(rounds):
            drill.start_missing()
            drill.wait_for_more(20)
            time.sleep(random.random() * 0.2)  # the random point at which the server dies
            server.kill9()
            drill.wait_for_more(20)
            if round_ % 2:
                drill.kill_one(random)
            server.start()
            time.sleep(random.random() * 0.2)  # a replay may be at any point when the next round begins
            if round_ % 3 == 1:
                drill.kill_one(random)
        drill.wait_for_more(20)
    finally:
        drill.end()
        server.start()
    with failover(open_store(url), Spool(drill.spool, owner="drill")) as store:
        store.run(Enqueue(jobs=()))
        eventually(lambda: store.spool.depth().jobs == 0, 60)
    acknowledged = drill.acknowledged()
    ran = run_all(url, acknowledged)
    lost = acknowledged - set(ran)
    assert not lost, f"{len(lost)} of {len(acknowledged)} acknowledged jobs did not run, as {min(lost)} (seed {seed})"
    assert set(ran.values()) == {1}, f"some ran more than once (seed {seed})"


def run_all(url: str, expected: set[str]) -> Counter[str]:
    """Run the jobs that are there, until those expected have run and none is left; how often each ran.

    However many they are: it fails if none has ended for PATIENCE_S.
    """
    ran: Counter[str] = Counter()

    async def note(n: int) -> None:
        ran[str(current_job().id)] += 1

    async def run() -> None:
        async with Fairlane(url) as app:
            app.task(name="t")(note)
            async with app.running(slots=8):
                seen, until_s = (-1, -1), 0.0
                while missing := len(expected - set(ran)) + (depth := (await app.asnapshot())["depth"]):
                    if (len(ran), depth) != seen:
                        seen, until_s = (len(ran), depth), time.monotonic() + PATIENCE_S
                    counts = (await app.statistics.acounts()).queues
                    assert time.monotonic() < until_s, f"{len(ran)} ran, {missing} did not: {counts}"
                    await asyncio.sleep(0.05)

    asyncio.run(run())
    return ran


@pytest.fixture(params=["postgres", "valkey"])
def killable(request: pytest.FixtureRequest) -> Iterator[tuple[PostgresServer | ValkeyServer, str]]:
    """A server of the test's own, and the address of an empty store on it."""
    if request.param == "valkey":
        with ValkeyServer() as server:
            yield server, server.url
        return
    place: Place = request.getfixturevalue("own_place")
    yield place.server, place.dsn


@pytest.mark.timeout(300)
@pytest.mark.requirement("Q5", "Q17")
def test_a_server_that_is_killed_and_restarted_while_processes_enqueue_and_die_loses_and_doubles_nothing(
    killable: tuple[PostgresServer | ValkeyServer, str], tmp_path: Path
) -> None:
    drill(*killable, tmp_path, writers=3, rounds=2, seed=1)


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(2))
def test_many_drills_in_a_row_lose_and_double_nothing(
    killable: tuple[PostgresServer | ValkeyServer, str], tmp_path: Path, seed: int
) -> None:
    drill(*killable, tmp_path, writers=8, rounds=25, seed=seed)


class Primary(NamedTuple):
    """An empty store behind a proxy."""

    url: str
    """Past the proxy."""
    proxy: Proxy
    open: Callable[[int, float], Store]
    """Through the proxy: within how many seconds it has to connect, and to answer."""
    jobs: Callable[[], int]


@pytest.fixture(scope="module")
def shared_valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer(appendfsync="everysec") as server:
        yield server


@pytest.fixture(params=["postgres", "valkey"])
def primary(request: pytest.FixtureRequest) -> Iterator[Primary]:
    if request.param == "postgres":
        place: Place = request.getfixturevalue("place")
        stores: Stores = request.getfixturevalue("stores")
        proxy: Proxy = request.getfixturevalue("proxy")

        def open_postgres(connect_s: int, answer_s: float) -> Store:
            return stores.open(place.through(proxy.port, f"connect_timeout={connect_s}"), statement_timeout_s=answer_s)

        yield Primary(place.dsn, proxy, open_postgres, place.jobs)
        return
    server: ValkeyServer = request.getfixturevalue("shared_valkey")
    server.call("FLUSHALL")
    with Proxy(server.port) as proxy, ExitStack() as opened:

        def open_valkey(connect_s: int, answer_s: float) -> Store:
            url = f"redis://127.0.0.1:{proxy.port}/0"
            store = RedisStore(url, connect_timeout_s=connect_s, answer_within_s=answer_s)
            opened.callback(store.close)
            return store

        yield Primary(server.url, proxy, open_valkey, lambda: int(server.call("HLEN", "{fairlane}:id")))


@pytest.mark.requirement("Q5")
@pytest.mark.parametrize("spool", ["memory", "directory"])
def test_a_server_that_goes_silent_costs_the_timeout_once_and_its_jobs_come_once(
    primary: Primary, tmp_path: Path, spool: str
) -> None:
    news: list[News] = []
    store, proxy = primary.open(2, 1.0), primary.proxy
    kept = Spool("memory" if spool == "memory" else tmp_path / "spool")
    making = Making(7)
    with failover(store, kept, timeout_s=0.3, on_news=news.append) as both:
        assert not both.run(Enqueue(jobs=(making.job(),))).spooled
        proxy.plan = BLACKHOLE
        proxy.cut_all("silent")
        for _ in range(20):
            assert both.run(Enqueue(jobs=(making.job(),))).spooled
        assert [one.why for one in news if isinstance(one, WentAway)] == ["no answer within 0.3 s"]
        with pytest.raises(StoreUnavailable):
            both.run(Check())
        proxy.plan = PASS
        proxy.cut_all()
        eventually(lambda: both.spool.depth().jobs == 0)
    assert primary.jobs() == 21


@pytest.mark.parametrize("colour", COLOURS)
def test_workflows_added_nodes_and_signals_wait_no_longer_for_a_silent_server_than_an_enqueue(
    primary: Primary, colour: str
) -> None:
    proxy, making, job_id = primary.proxy, Making(7), Making(8).job_id()
    spec = WorkflowSpec(id=WorkflowId(job_id), name="onboard", tenant="acme")
    parts: dict[str, Any] = {"jobs": (making.job(tenant="acme"),), "nodes": (NodeSpec(name="first"),)}
    for op in (
        EnqueueWorkflow(workflow=spec, **parts),
        AddNodes(scope=ALL_TENANTS, workflow=spec.id, **parts),
        Emit(id=job_id, tenant="acme", name="paid", data=Raw(b"{}")),
    ):
        proxy.plan = PASS
        face = Face(Failover(primary.open(20, 20.0), Spool(), timeout_s=0.3), colour)
        face.run(Check())
        proxy.plan = BLACKHOLE
        proxy.cut_all("silent")
        since_s = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"no answer within 0\.30?1? s"):
            face.run(op)
        assert time.monotonic() - since_s < 3
        proxy.plan = PASS
        proxy.cut_all()
        face.close()


@pytest.mark.requirement("Q5")
def test_a_job_whose_reply_was_lost_is_spooled_and_there_once(
    stores: Stores, place: Place, proxy: Proxy, tmp_path: Path
) -> None:
    making = Making(3)

    def jobs() -> Enqueue:
        return Enqueue(jobs=tuple(making.job() for _ in range(3)))

    done_unseen = calls = 0
    while done_unseen < 3 and calls < 20:  # the proxy counts a moment after it has delivered: a measure may be short
        cut, calls = (1, 5, 30)[calls % 3], calls + 1
        measured = stores.open(place.through(proxy.port))
        measured.run(jobs())
        measured.close()
        whole = proxy.received[-1]
        store = stores.open(place.through(proxy.port))
        with failover(store, Spool(tmp_path / f"spool{calls}"), timeout_s=10.0) as both:
            proxy.plan = Plan(cut_received=whole - cut, how="reset")
            before = place.jobs()
            assert both.run(jobs()).spooled
            done_unseen += place.jobs() - before
            proxy.plan = PASS
            eventually(lambda both=both: both.spool.depth().jobs == 0 and both.state().reachable)
    assert done_unseen >= 3, "the server never did what the client could not know"
    assert place.jobs() == 6 * calls


@pytest.mark.requirement("Q5")
def test_a_server_that_refuses_only_jobs_is_used_for_everything_else(stores: Stores, place: Place) -> None:
    news: list[News] = []
    everything = "all on all {} in schema fairlane"
    place.rows("create role clerk login")
    place.rows("grant usage on schema fairlane to clerk")
    for kind in ("tables", "sequences", "functions"):
        place.rows(f"grant {everything.format(kind)} to clerk")
    try:
        store = stores.open(place.dsn.replace("postgres@", "clerk@"))
        with failover(store, Spool(), on_news=news.append) as both:
            scene = Scene(both)
            worker, first = scene.hire(), scene.put()
            place.rows("revoke insert on fairlane.job from clerk")
            late = [scene.job() for _ in range(3)]
            assert all(both.run(Enqueue(jobs=(job,))).spooled for job in late)
            [lease] = scene.claim(worker)
            assert lease.id == first.id
            assert not scene.settle(worker, completed(lease)).refused
            assert (both.state().reachable, both.spool.depth().jobs) == (True, 3)
            place.rows("grant insert on fairlane.job to clerk")
            eventually(lambda: both.spool.depth().jobs == 0 and both.state().why is None)
            assert scene.list_jobs() == [*(job.id for job in reversed(late)), first.id]
    finally:
        place.rows("drop owned by clerk")
        place.rows("drop role clerk")
    assert [type(one) for one in news] == [RefusesJobs, Replayed, CameBack]


KILLED = """
import os, signal, sys
from fairlane.core.ops import Enqueue
from fairlane.stores import open_store
from fairlane.stores.failover import Failover, Spool
class Dying(Spool):
    def remove(self, jobs):
        os.kill(os.getpid(), signal.SIGKILL)
store = Failover(open_store(sys.argv[1]), Dying(sys.argv[2]))
store.run(Enqueue(jobs=()))
signal.pause()
"""


@pytest.mark.requirement("Q5")
def test_a_replay_that_is_killed_before_it_removes_the_jobs_doubles_none(primary: Primary, tmp_path: Path) -> None:
    spool, making = Spool(tmp_path), Making(5)
    spool.add(Enqueue(jobs=tuple(making.job() for _ in range(5))))
    spool.close()
    ended = subprocess.run([sys.executable, "-c", KILLED, primary.url, str(tmp_path)], timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert primary.jobs() == 5
    with failover(primary.open(2, 10.0), Spool(tmp_path)) as both:
        assert both.spool.depth().jobs == 5
        both.run(Enqueue(jobs=()))
        eventually(lambda: both.spool.depth().jobs == 0)
    assert primary.jobs() == 5


def test_one_process_replays_at_a_time(tmp_path: Path) -> None:
    first, second = Spool(tmp_path), Spool(tmp_path)
    with first.replaying() as ours:
        assert ours
        pid = os.fork()
        if pid == 0:
            with second.replaying() as theirs:
                os._exit(theirs)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        with second.replaying() as theirs:
            assert not theirs
    with second.replaying() as theirs:
        assert theirs
    first.close(), second.close()
