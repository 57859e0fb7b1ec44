"""Spooled jobs that run in a worker while their store is away: each once, and what fails is left to the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fairlane import Fairlane, Retry
from fairlane.alerts.observations import of_workers
from fairlane.client.store_access import open_spool
from fairlane.core.ops import Enqueue
from fairlane.errors import ConfigError
from fairlane.stores.failover import Spool
from fairlane.testing.conformance.samples import Making
from fairlane.worker.config import WorkerConfig
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.servers.proxy import PASS, RESET, Proxy

IS_ROOT = os.geteuid() == 0
"""Only root can give a file to somebody else."""


class Shop:
    """An application whose way to the server can be cut."""

    def __init__(self, place: Place, proxy: Proxy, **settings: Any) -> None:
        self._proxy, self.ran = proxy, list[int]()
        self.app = Fairlane(place.through(proxy.port), **{"spool": "memory", "run_spooled": True, **settings})

        def note(n: int) -> int:
            self.ran.append(n)
            if n == 13:
                raise RuntimeError("out of luck")
            return n

        self.task = self.app.task(name="t", retry=Retry(max_attempts=1))(note)

    @contextmanager
    def away(self) -> Iterator[None]:
        self._proxy.plan = RESET
        self._proxy.cut_all()
        try:
            yield
        finally:
            self._proxy.plan = PASS

    def wait_until_empty(self) -> None:
        failover = self.app.runtime.access.failover
        assert failover is not None
        eventually(lambda: not failover.is_away and failover.spool.depth().jobs == 0, 30)


@pytest.fixture(params=["directory", "memory"])
def shop(request: pytest.FixtureRequest, place: Place, proxy: Proxy, tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(place, proxy, **({"spool": str(tmp_path)} if request.param == "directory" else {}))
    with shop.app:
        yield shop


@pytest.mark.requirement("Q5", "D16")
def test_jobs_spooled_while_the_store_is_away_run_here_and_not_again_when_it_is_back(shop: Shop, place: Place) -> None:
    with shop.app.running(slots=2):
        with shop.away():
            shop.task.enqueue(n=0)  # if the store may have this one, it is left to the replay
            for n in (1, 2, 3):
                shop.task.enqueue(n=n)
            eventually(lambda: {1, 2, 3} <= set(shop.ran), 30)
        shop.wait_until_empty()
        eventually(lambda: len(shop.ran) >= 4, 30)
        assert shop.task.enqueue(n=4).result(timeout=30) == 4
    assert sorted(shop.ran) == [0, 1, 2, 3, 4]
    assert place.jobs() <= 2


def test_a_job_that_fails_here_runs_in_the_store_and_dies_where_people_look(shop: Shop) -> None:
    with shop.app.running(slots=1):
        with shop.away():
            shop.task.enqueue(n=0)
            handle = shop.task.enqueue(n=13)
            eventually(lambda: 13 in shop.ran, 30)
        shop.wait_until_empty()
        eventually(lambda: handle.status() == "dead", 30)
    assert sorted(shop.ran) == [0, 13, 13]
    [letter] = shop.app.dead_letters.list().dead_letters
    assert letter.job.id == handle.id


def test_without_the_setting_jobs_wait_for_the_store(place: Place, proxy: Proxy) -> None:
    shop = Shop(place, proxy, run_spooled=False)
    with shop.app, shop.app.running(slots=1):
        with shop.away():
            for n in (0, 1):
                shop.task.enqueue(n=n)
            assert shop.ran == []
        eventually(lambda: shop.ran == [0, 1], 30)
    assert place.jobs() == 2


@pytest.mark.requirement("I12")
def test_workers_report_what_waits_in_the_spool_to_the_alert(tmp_path: Path) -> None:
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db", spool=str(tmp_path / "spool")) as app:
        app.task(name="t")(lambda: None)
        app.queues.pause("bulk", refuse=True)
        spool = open_spool(app.runtime.settings)
        spool.add(Enqueue(jobs=(Making(2).job(queue="bulk"),)))
        spool.close()
        with app.running(slots=1, config=WorkerConfig(lease_s=1.5)):
            eventually(lambda: [worker.figures.get("spool.jobs") for worker in app.workers.list().workers] == [1.0])
            seen = {one.kind: one.value for one in of_workers(app.workers.list())}
    assert seen["spool_jobs"] == 1.0


TAKEN = """
import sys, time, os
from fairlane.errors import ConfigError
from fairlane.stores.failover import Spool
spool = Spool(sys.argv[1])
with spool.running() as ours, spool.replaying() as may_take:
    assert ours and may_take
    spool.take(spool.page(0, 10))
    print("taken", flush=True)
    time.sleep(60)
"""


@pytest.mark.requirement("Q5", "Q17")
def test_jobs_of_a_worker_that_died_while_it_ran_them_are_left_to_the_replay(tmp_path: Path) -> None:
    spool, making = Spool(tmp_path), Making(1)
    spool.add(Enqueue(jobs=tuple(making.job() for _ in range(3))))
    with subprocess.Popen([sys.executable, "-c", TAKEN, str(tmp_path)], stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"taken\n"
        spool.release_abandoned()
        assert spool.page(0, 10) == []
        assert spool.depth().jobs == 3
        worker.send_signal(signal.SIGKILL)
    spool.release_abandoned()
    assert len(spool.page(0, 10)) == 3
    spool.close()


def planted(place: Path, how: str) -> Path:
    """A spool that somebody else could have prepared, or could write to."""
    spool = place / "spool"
    if how == "linked directory":
        (place / "elsewhere").mkdir(mode=0o700)
        spool.symlink_to(place / "elsewhere")
        return spool
    Spool(spool).close()
    name, _, problem = how.partition(" ")
    found = spool if name == "." else spool / name
    match problem:
        case "linked":
            found.unlink(missing_ok=True)
            found.symlink_to(place / "other.db")
        case "pipe":
            os.mkfifo(found)
        case "foreign":
            os.chown(found, 65534, -1)
        case _:
            found.touch()
            found.chmod(int(problem, 8))
    return spool


@pytest.mark.requirement("Q5")
@pytest.mark.parametrize(
    ("how", "problem"),
    [
        ("linked directory", "is a symbolic link"),
        (". 0777", r"may write to it \(mode 0777; `chmod go-w` it"),
        (". 0770", "may write to it"),
        (". 1777", "may write to it"),
        ("spool.db linked", "is a symbolic link"),
        ("spool.db 0666", "may write to it"),
        ("spool.db-wal linked", "is a symbolic link"),
        ("replay.lock linked", "is a symbolic link"),
        ("local.lock 0660", "may write to it"),
        ("spool.db-journal pipe", "neither a directory nor a plain file"),
        *([(". foreign", "belongs to user 65534"), ("spool.db foreign", "belongs to user 65534")] if IS_ROOT else []),
    ],
)
def test_a_spool_that_others_could_write_to_is_refused(tmp_path: Path, how: str, problem: str) -> None:
    """They would add jobs of any tenant, which the replay would send."""
    spool = planted(tmp_path, how)
    with pytest.raises(ConfigError, match=problem) as refused:
        Fairlane(f"sqlite:///{tmp_path}/jobs.db", spool=str(spool)).jobs.list()
    assert "Name a directory of this user's own" in str(refused.value)
    assert not (tmp_path / "other.db").exists()


def test_a_lock_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    (tmp_path / "spool" / "replay.lock").symlink_to(tmp_path / "other")
    with pytest.raises(OSError, match="symbolic links"), spool.replaying():
        pass
    spool.close()
    assert not (tmp_path / "other").exists()


def test_a_worker_on_a_file_that_is_taken_away_and_put_back_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its wake-ups wait for the file, too, instead of failing for good."""
    file, hidden = tmp_path / "jobs.db", tmp_path / "hidden.db"
    with Fairlane(f"sqlite:///{file}", spool=str(tmp_path / "spool")) as app:
        task = app.task(name="t")(lambda: 7)
        with app.running(slots=1):
            assert task.enqueue().result(timeout=20) == 7
            file.rename(hidden)
            kept = task.enqueue()
            eventually(lambda: "the store does not answer" in caplog.text, 60)
            hidden.rename(file)
            eventually(lambda: app.snapshot()["spooled"] == 0 and app.snapshot()["reachable"])
            assert kept.result(timeout=30) == 7
    assert "ended unexpectedly" not in caplog.text
