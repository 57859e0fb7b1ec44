"""Enqueues while the store is away: kept in the spool, replayed in order, each once."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import apsw
import msgspec
import pytest
from msgspec.structs import replace

from fairlane import ConfigError, Fairlane, FakeClock, QueueFull
from fairlane.client.settings.model import Settings
from fairlane.client.store_access import open_spool
from fairlane.client.task import SyncTask
from fairlane.core.ops import Check, Enqueue, EnqueueResult, Op
from fairlane.errors import SpoolFull, StoreClosed, StoreUnavailable
from fairlane.metrics import exposition
from fairlane.stores import open_store
from fairlane.stores.failover import CameBack, Failover, News, RefusesJobs, Replayed, ReplayFailed, Spool, WentAway
from fairlane.stores.sqlite.memory import MemoryStore
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import Making
from tests.faults.eventually import eventually

T = TypeVar("T")
Task = SyncTask[..., Any]
Open = Callable[..., Fairlane]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def open_app(file: Path, tmp_path: Path) -> Iterator[Open]:
    made: list[Fairlane] = []

    def make(**given: Any) -> Fairlane:
        app = Fairlane(f"sqlite:///{file}", **{"spool": str(tmp_path / "spool"), **given})
        app.task(name="t")(lambda n=0: n)
        made.append(app)
        return app

    yield make
    for app in made:
        app.close()


@pytest.fixture(params=["directory", "memory"])
def app(request: pytest.FixtureRequest, open_app: Open) -> Fairlane:
    """Its store is a file that can be taken away and put back."""
    app = open_app(**({"spool": "memory"} if request.param == "memory" else {}))
    assert app.snapshot()["reachable"]
    return app


@contextmanager
def away(file: Path) -> Iterator[None]:
    hidden = file.with_suffix(".hidden")
    file.rename(hidden)
    try:
        yield
    finally:
        hidden.rename(file)


def task(app: Fairlane) -> Task:
    found: Any = app.tasks["t"]
    return found  # type: ignore[no-any-return]


def failover(app: Fairlane) -> Failover:
    assert app.runtime.access.failover is not None
    return app.runtime.access.failover


def wait_until_replayed(app: Fairlane, left: int = 0) -> None:
    eventually(lambda: failover(app).spool.depth().jobs == left and failover(app).state().reachable)


def numbers(app: Fairlane) -> list[int]:
    """The arguments of all jobs, in the store's order."""
    return [int(job.payload.partition(":")[2].rstrip("}") or 0) for job in reversed(app.jobs.list(limit=200).jobs)]


@pytest.mark.requirement("Q5")
def test_jobs_enqueued_while_the_store_is_away_are_replayed_in_order_and_run_once(app: Fairlane, file: Path) -> None:
    task(app).enqueue(n=1)
    with away(file):
        handles = [task(app).enqueue(n=n) for n in (2, 3)]
        handles += app.enqueue_many([task(app).bind(n=4), task(app).bind(n=5)])
        assert app.snapshot()["spooled"] == 4
    wait_until_replayed(app)
    assert numbers(app) == [1, 2, 3, 4, 5]
    run_due(app)
    assert [handle.result() for handle in handles] == [2, 3, 4, 5]


@pytest.mark.requirement("Q5")
def test_asynchronous_enqueues_are_spooled_too(app: Fairlane, file: Path) -> None:
    async def enqueue() -> None:
        await task(app).aenqueue(n=1)
        await app.aenqueue_many([task(app).bind(n=2)])
        await asyncio.gather(*(task(app).aenqueue(n=n) for n in range(3, 9)))

    with away(file):
        asyncio.run(enqueue())
        assert app.snapshot()["spooled"] == 8
    wait_until_replayed(app)
    assert numbers(app) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_everything_but_an_enqueue_raises_while_the_store_is_away(app: Fairlane, file: Path) -> None:
    with away(file):
        handle = task(app).enqueue()
        for ask in (handle.status, app.jobs.list, app.queues.list, app.statistics.health):
            with pytest.raises(StoreUnavailable):
                ask()
    wait_until_replayed(app)
    assert handle.status() == "pending"


@pytest.mark.requirement("Q5")
def test_an_enqueue_in_the_callers_transaction_is_never_spooled(app: Fairlane, file: Path) -> None:
    conn = apsw.Connection(str(file))
    with away(file):
        task(app).enqueue(n=1)
        with pytest.raises(StoreUnavailable):
            task(app).using(conn=conn).enqueue(n=2)
        assert app.snapshot()["spooled"] == 1
    conn.close()


@pytest.mark.requirement("Q6")
def test_a_full_spool_refuses_with_back_pressure_and_keeps_what_it_has(open_app: Open, file: Path) -> None:
    app = open_app(spool_capacity=3)
    app.snapshot()
    with away(file):
        task(app).enqueue(n=1)
        with pytest.raises(SpoolFull, match="1 jobs wait for it in the spool, which takes 3") as raised:
            app.enqueue_many([task(app).bind(n=n) for n in (2, 3, 4)])
        assert isinstance(raised.value, QueueFull)
        assert raised.value.retry_after_s > 0
        app.enqueue_many([task(app).bind(n=n) for n in (2, 3)])
        with pytest.raises(SpoolFull):
            task(app).enqueue(n=4)
    wait_until_replayed(app)
    assert numbers(app) == [1, 2, 3]


@pytest.mark.requirement("Q6")
def test_the_warning_depth_counts_for_the_spool_once_per_crossing(
    open_app: Open, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = open_app(warn_depth=3)
    app.snapshot()
    with away(file):
        for n in range(5):
            task(app).enqueue(n=n)
    assert [text for text in caplog.messages if "warning depth" in text] == [
        "3 jobs or more are waiting, the warning depth is 3"
    ]


@pytest.mark.requirement("Q5")
def test_a_process_that_ended_leaves_its_jobs_to_the_next(open_app: Open, file: Path) -> None:
    first = open_app()
    first.snapshot()
    with away(file):
        task(first).enqueue(n=1)
        first.close()
        with pytest.raises(StoreClosed):
            task(first).enqueue(n=2)
    second = open_app()
    second.snapshot()
    wait_until_replayed(second)
    assert numbers(second) == [1]


def test_a_job_left_behind_is_found_by_a_process_that_missed_nothing(open_app: Open, file: Path) -> None:
    first, second = open_app(), open_app()
    first.snapshot(), second.snapshot()
    with away(file):
        task(first).enqueue(n=1)
        failover(first)._end()
    eventually(lambda: numbers(second) == [1])


def test_a_forked_child_spools_and_replays_with_threads_of_its_own(app: Fairlane, file: Path) -> None:
    with away(file):
        task(app).enqueue(n=1)
        pid = os.fork()
        if pid == 0:
            try:
                task(app).enqueue(n=2)
                assert app.snapshot()["spooled"] == 2
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitpid(pid, 0)[1] == 0
    wait_until_replayed(app)
    shared = failover(app).spool.place != "memory"
    assert numbers(app) == ([1, 2] if shared else [1])


@pytest.mark.requirement("Q5")
def test_a_delay_counts_from_the_enqueue_and_what_became_due_meanwhile_runs(open_app: Open, file: Path) -> None:
    clock = FakeClock()
    app = open_app(clock=clock)
    app.snapshot()
    with away(file):
        soon = task(app).using(delay=30).enqueue(n=1)
        later = task(app).using(delay=90).enqueue(n=2)
        clock.advance(60)
    wait_until_replayed(app)
    run_due(app)
    assert (soon.status(), later.status()) == ("completed", "pending")
    job = app.jobs.get(later.id)
    assert job is not None
    assert (job.run_at - clock.now()).total_seconds() == 30


@pytest.mark.requirement("Q5")
def test_a_key_that_is_taken_at_the_replay_resolves_to_its_job_and_is_recorded(
    app: Fairlane, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    held = task(app).using(idempotency_key="k").enqueue(n=1)
    with away(file), caplog.at_level(logging.INFO, "fairlane.client"):
        spooled = task(app).using(idempotency_key="k").enqueue(n=1)
        assert not spooled.duplicate
    wait_until_replayed(app)
    assert numbers(app) == [1]
    assert f"spooled job {spooled.id} is a duplicate of {held.id}" in caplog.text
    [event] = app.events.list(after=0).events
    assert (event.kind, event.data["job"], event.data["existing"], event.data["key"]) == (
        "spooled_job_duplicate",
        str(spooled.id),
        str(held.id),
        "idempotency",
    )


def test_a_job_beyond_a_tenants_limit_waits_in_the_spool_with_the_reason(
    app: Fairlane, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app.limits.set(tenant="acme", queue="default", waiting=2, when_full="reject")
    with away(file):
        for n in (1, 2, 3, 4):
            task(app).using(tenant="acme").enqueue(n=n)
        task(app).using(tenant="other").enqueue(n=5)
    wait_until_replayed(app, left=2)
    assert numbers(app) == [1, 2, 5]
    depth = eventually(lambda: (found := failover(app).state().spool).refused == 2 and found)
    assert depth.reason == 'tenant "acme" is at its limit of 2 jobs in queue "default"'
    eventually(lambda: caplog.text.count("was refused and stays in the spool") == 2)
    run_due(app)
    failover(app)._step()
    assert numbers(app) == [1, 2, 5, 3, 4]
    assert failover(app).spool.depth().jobs == 0


def test_a_paused_queue_and_a_full_store_keep_jobs_in_the_spool(open_app: Open, file: Path) -> None:
    app = open_app(capacity=3)
    app.tasks["t"].using(queue="default").enqueue(n=1)
    app.queues.pause("bulk", refuse=True)
    with away(file):
        task(app).using(queue="bulk").enqueue(n=2)
        for n in (3, 4, 5):
            task(app).enqueue(n=n)
    wait_until_replayed(app, left=2)
    assert numbers(app) == [1, 3, 4]
    app.queues.resume("bulk")
    run_due(app)
    failover(app)._step()
    assert numbers(app) == [1, 3, 4, 2, 5]


@pytest.mark.requirement("W3")
def test_a_spooled_job_meets_the_same_rules_before_it_is_acknowledged(open_app: Open, file: Path) -> None:
    app = open_app(tenant_payload_bytes=40)
    app.snapshot()
    with away(file):
        with pytest.raises(ValueError, match="password"):
            task(app).enqueue(n={"password": "hunter2"})
        with pytest.raises(QueueFull, match="more than the 40 allowed"):
            task(app).using(tenant="acme").enqueue(n="x" * 100)
        assert app.snapshot()["spooled"] == 0


@pytest.mark.requirement("Q11")
def test_health_depth_and_age_of_the_spool_are_visible(
    open_app: Open, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = FakeClock()
    app = open_app(clock=clock)
    task(app).enqueue(n=1)
    with away(file):
        task(app).enqueue(n=2)
        clock.advance(7)
        seen = app.snapshot()
        assert (seen["reachable"], seen["spooled"], seen["spool_age_s"], seen["depth"]) == (False, 1, 7.0, None)
        metrics = exposition(app).decode()
        assert 'fairlane_spool_jobs{state="waiting"} 1.0' in metrics
        assert "fairlane_spool_oldest_job_age_seconds 7.0" in metrics
        assert 'fairlane_store_up{store="sqlite"} 0.0' in metrics
    wait_until_replayed(app)
    seen = app.snapshot()
    assert (seen["reachable"], seen["spooled"], seen["spool_age_s"], seen["depth"]) == (True, 0, 0.0, 2)
    [went, came] = eventually(lambda: len(said := [one for one in caplog.messages if "store is" in one]) == 2 and said)
    assert went.startswith(f"the store is away (the file {file} is gone: ")
    assert came == "the store is back after 7.0 s"


@pytest.mark.requirement("Q11")
def test_a_spool_whose_directory_is_gone_hurts_nobody_who_looks(open_app: Open, tmp_path: Path) -> None:
    app = open_app()
    task(app).enqueue(n=1)
    shutil.rmtree(app.runtime.settings.spool or "")
    seen = app.snapshot()
    assert (seen["reachable"], seen["depth"], seen["spooled"], seen["spool_age_s"]) == (True, 1, None, 0.0)
    metrics = exposition(app).decode()
    assert "fairlane_spool_up 0.0" in metrics
    assert "fairlane_spool_jobs" not in metrics
    with app.running(drain=True):
        pass
    assert app.snapshot()["depth"] == 0


@pytest.mark.requirement("Q4")
def test_a_store_that_is_away_at_the_start_is_no_reason_to_refuse_jobs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"postgresql://user:hunter2@127.0.0.1:{held.getsockname()[1]}/db?connect_timeout=2"
        for fallback in ("refuse", "memory"):
            with Fairlane(url, spool=str(tmp_path / "spool"), fallback=fallback) as app:
                app.task(name="t")(lambda: None).enqueue()
                assert app.snapshot()["store"] == "postgresql"
    assert app.runtime.settings.spool is not None
    assert "the store is away" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_spool_with_jobs_for_another_store_is_refused(open_app: Open, file: Path, tmp_path: Path) -> None:
    app = open_app()
    app.snapshot()
    with away(file):
        task(app).enqueue()
        app.close()
    other = Fairlane(f"sqlite:///{tmp_path}/other.db", spool=str(tmp_path / "spool"))
    with pytest.raises(ConfigError, match=r"holds 1 jobs for sqlite:.*jobs.db.* this store is .*other.db"):
        other.snapshot()


def test_a_spool_that_cannot_be_made_is_one_clear_error(open_app: Open, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(ConfigError, match="the directory cannot be made"):
        open_app(spool=str(tmp_path / "taken")).snapshot()


def test_a_spool_on_disk_is_for_its_owner_alone(open_app: Open, tmp_path: Path) -> None:
    open_app().snapshot()
    place = tmp_path / "spool"
    assert place.stat().st_mode & 0o777 == 0o700
    assert {found.stat().st_mode & 0o777 for found in place.iterdir()} == {0o600}


def test_an_id_is_spooled_once_and_other_content_under_it_refused(app: Fairlane, file: Path) -> None:
    job = Making(1).job()
    spool = Spool()
    first, second = spool.add(Enqueue(jobs=(job,))), spool.add(Enqueue(jobs=(job, replace(job, type="other"))))
    assert [receipt.disposition for receipt in (*first.receipts, *second.receipts)] == [
        "created",
        "replayed",
        "conflict",
    ]
    assert spool.depth().jobs == 1
    spool.close()


def test_a_spool_that_is_gone_leaves_a_store_that_answers_in_use(
    open_app: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = open_app()
    task(app).enqueue(n=1)
    shutil.rmtree(tmp_path / "spool")
    for _ in range(2):
        failover(app)._step()
        task(app).enqueue(n=2)
    assert numbers(app) == [1, 2, 2]
    [said] = [text for text in caplog.messages if "spool" in text or "store is" in text]
    assert said.startswith("the spool cannot be replayed: the spool store cannot be reached: the file")


def test_a_spool_that_is_lost_while_the_store_is_away_does_not_keep_it_away(
    open_app: Open, file: Path, tmp_path: Path
) -> None:
    app = open_app()
    app.snapshot()
    with away(file):
        task(app).enqueue(n=1)
        shutil.rmtree(tmp_path / "spool")
    eventually(lambda: not failover(app).is_away)
    task(app).enqueue(n=2)
    assert numbers(app) == [2]


def locks_fail(spool: Spool) -> None:
    (Path(spool.place) / "replay.lock").mkdir()


def of_a_newer_release(spool: Spool) -> None:
    spool._change(lambda db: db.execute("update fairlane_spool set spec = '[]'"))


@pytest.mark.parametrize("spoil", [locks_fail, of_a_newer_release])
def test_a_spool_that_cannot_be_replayed_is_reported_once_and_its_store_is_used(
    tmp_path: Path, spoil: Callable[[Spool], None]
) -> None:
    news: list[News] = []
    spool = Spool(tmp_path / "spool")
    spool.add(Enqueue(jobs=(Making(1).job(),)))
    both = Failover(open_store("memory://"), spool, on_news=news.append)
    spoil(spool)
    both._step()
    both._note_unavailable(StoreUnavailable("memory", "for this test"))
    both._step()
    assert [type(one) for one in news] == [ReplayFailed, WentAway, CameBack]
    assert (both.is_away, spool.depth().jobs) == (False, 1)
    both.close()


class Choking(MemoryStore):
    """Cannot put one type of job into the form in which it is sent."""

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if isinstance(op, Enqueue) and any(job.type == "poison" for job in op.jobs):
            raise OverflowError("int too big to convert")
        return super().run(op, on=on)


class Full(MemoryStore):
    """Answers, and takes no jobs while it is full."""

    is_full = True
    asked: threading.Event

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        if isinstance(op, Enqueue) and self.is_full:
            raise StoreUnavailable("memory", "it is full", "cannot be used")
        if isinstance(op, Check):
            self.asked.set()
        return super().run(op, on=on)


class Mute(MemoryStore):
    """Does what it is asked, and its answers to enqueues are lost."""

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        answer = super().run(op, on=on)
        if isinstance(op, Enqueue):
            raise StoreUnavailable("memory", "the connection broke")
        return answer


@pytest.mark.requirement("Q5", "D16")
def test_a_job_whose_replay_was_not_answered_is_marked_as_one_that_the_store_may_have() -> None:
    """Else a worker of this machine would run it, and the store's workers, too."""
    spool = Spool()
    spool.add(Enqueue(jobs=(Making(1).job(),)))
    assert [job.sent for job in spool.page(0, 10)] == [False]
    both = Failover(Mute(), spool)
    both._step()
    assert both.is_away
    assert [job.sent for job in spool.page(0, 10)] == [True]
    both.close()


class SlowSpool(Spool):
    primary: Full

    def add(self, op: Enqueue, *, sent: bool = False) -> EnqueueResult:
        self.primary.asked.wait(0.2)
        return super().add(op, sent=sent)


def test_a_store_that_refuses_jobs_is_not_back_before_the_first_of_them_is_spooled() -> None:
    news: list[News] = []
    spool = SlowSpool()
    spool.primary = primary = Full()
    primary.asked = threading.Event()
    store = Failover(primary, spool, on_news=news.append)
    assert store.run(Enqueue(jobs=(Making(1).job(),))).spooled
    eventually(primary.asked.is_set)
    primary.is_full = False
    eventually(lambda: store.spool.depth().jobs == 0 and store.state().why is None)
    assert [type(one) for one in news] == [RefusesJobs, Replayed, CameBack]
    store.close()


def test_a_job_that_cannot_be_sent_holds_up_no_other() -> None:
    making, spool = Making(1), Spool()
    spool.add(Enqueue(jobs=(making.job(), replace(making.job(), type="poison"), making.job())))
    both = Failover(Choking(), spool)
    both._step()
    depth = spool.depth()
    assert (depth.jobs, depth.refused, depth.reason) == (1, 1, "OverflowError('int too big to convert')")
    both.close()


def test_two_installations_on_one_redis_do_not_share_a_spool(tmp_path: Path) -> None:
    def opened(prefix: str) -> Spool:
        return open_spool(Settings(url="redis://127.0.0.1/0", key_prefix=prefix, spool=str(tmp_path / "spool")))

    first = opened("one")
    first.add(Enqueue(jobs=(Making(1).job(),)))
    first.close()
    with pytest.raises(ConfigError, match=r"holds 1 jobs for .*key prefix one, and this store is .*key prefix two"):
        opened("two")
    opened("one").close()


def test_a_page_of_large_jobs_ends_before_it_has_its_number() -> None:
    making, spool = Making(1), Spool()
    large = msgspec.Raw(b'"' + b"x" * 3_000_000 + b'"')
    spool.add(Enqueue(jobs=tuple(replace(making.job(), payload=large) for _ in range(5))))
    first = spool.page(0, 1_000)
    assert (len(first), len(spool.page(first[-1].seq, 1_000))) == (3, 2)
    spool.close()


@pytest.mark.requirement("Q5")
def test_jobs_left_in_memory_at_the_close_are_named(
    open_app: Open, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = open_app(spool="memory")
    app.snapshot()
    with away(file):
        handles = [task(app).enqueue(n=n) for n in (1, 2)]
        app.close()
    assert "2 spooled jobs in memory are lost" in caplog.text
    assert all(f"t {handle.id}" in caplog.text for handle in handles)


@pytest.mark.requirement("Q5")
def test_a_close_replays_what_is_in_memory_to_a_store_that_is_back(
    open_app: Open, file: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.stores.failover.store.PROBES_S", (600.0,))
    app = open_app(spool="memory")
    app.snapshot()
    with away(file):
        handle = task(app).enqueue(n=1)
    app.close()
    assert "spooled jobs in memory are lost" not in caplog.text
    with open_app() as again:
        assert again.jobs.get(handle.id).status == "pending"


ENDS = """
from fairlane import Fairlane
app = Fairlane("redis://127.0.0.1:9/0", fallback="memory")
handle = app.task(name="t")(lambda: None).enqueue()
print(handle.id)
"""


@pytest.mark.requirement("Q5")
def test_a_process_that_ends_without_a_close_names_the_jobs_it_loses() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], capture_output=True, text=True, check=True, timeout=60)
    assert (
        f"1 spooled jobs in memory are lost, as the store is away while this process ends: t {done.stdout.strip()}"
        in (done.stderr)
    )
