"""Documents L and I: "3 + 5 threads" and "4, 8 and 2 workers" are those of one `fairlane worker`, on any machine.

A real foreman and its processes run jobs that wait for a file. How many run at once is counted from what the jobs
write down, while all wait and while more of them come and go.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import sleep

import pytest

from fairlane.cli.commands.worker import cores
from tests.worker.foreman.conftest import crew, ground
from tests.worker.foreman.crew import Crew, ForemanProcess

__all__ = ["crew", "ground"]

SHOP = """
import asyncio, os
from pathlib import Path
from fairlane import Fairlane, current_job

app = Fairlane(os.environ["YARD_URL"])

def note(event: str) -> None:
    job = current_job()
    fd = os.open("notes", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(fd, f"{event} {job.queue} {job.id} {os.getpid()}\\n".encode())
    os.close(fd)

@app.task(name="yard.wait", timeout=50)
async def wait() -> None:
    note("began")
    while not Path("open").exists():
        await asyncio.sleep(0.02)
    await asyncio.sleep(0.05)
    note("ended")
"""
ISOLATION = {"critical": 4, "default": 8, "bulk": 2}


class Shop:
    """One application, `fairlane worker` as it is typed in its folder, and what its jobs have written down."""

    def __init__(self, crew: Crew, folder: Path) -> None:
        self.crew, self.folder = crew, folder
        (folder / "shop.py").write_text(SHOP)

    def start(self, *flags: str, **env: str) -> ForemanProcess:
        return self.crew.start(*flags, app="shop:app", cwd=self.folder, **env)

    def put(self, queue: str, count: int) -> None:
        self.crew.app.enqueue_many([self.crew.app.tasks["yard.wait"].using(queue=queue).bind() for _ in range(count)])

    def notes(self) -> list[tuple[str, str, str, int]]:
        path = self.folder / "notes"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(event, queue, job, int(pid)) for event, queue, job, pid in lines]

    def running(self) -> Counter[str]:
        """By queue: jobs that have begun and not ended."""
        now = Counter(queue for event, queue, *_ in self.notes() if event == "began")
        now.subtract(queue for event, queue, *_ in self.notes() if event == "ended")
        return +now

    def processes(self) -> set[int]:
        return {pid for *_, pid in self.notes()}

    def most(self) -> dict[str, int]:
        """By queue, and for all: the most that ran at once."""
        now: Counter[str] = Counter()
        most: Counter[str] = Counter()
        for event, queue, *_ in self.notes():
            for name in (queue, "all"):
                now[name] += 1 if event == "began" else -1
                most[name] = max(most[name], now[name])
        return dict(most)

    def fill(self, expected: Mapping[str, int]) -> None:
        """Wait until as many run as are expected, and look whether more begin."""
        self.crew.eventually(lambda: self.running() == expected, 40)
        sleep(1.2)  # an idle process claims once a second
        assert self.running() == expected

    def finish(self) -> None:
        (self.folder / "open").touch()
        self.crew.eventually(lambda: not self.waiting(), 40)

    def waiting(self) -> int:
        return sum(queue.ready + queue.processing for queue in self.crew.app.statistics.counts().queues)


@pytest.fixture
def shop(crew: Crew, tmp_path: Path) -> Shop:
    shop = Shop(crew, tmp_path)
    crew.app.task(name="yard.wait", timeout=50)(lambda: None)
    return shop


@pytest.mark.requirement("D22", "L2", "L11")
@pytest.mark.parametrize(
    ("flags", "env", "there_are"),
    [
        ((), {"WORKER_FAST_THREADS": "3", "WORKER_GENERAL_THREADS": "5"}, min(cores(), 8)),
        (("-p", "3"), {}, 3),
        pytest.param(("-p", "16"), {}, 8, marks=pytest.mark.long),
    ],
)
def test_production_runs_five_slow_jobs_and_keeps_three_slots_for_fast_ones(
    shop: Shop, flags: tuple[str, ...], env: dict[str, str], there_are: int
) -> None:
    shop.put("default", 20)
    foreman = shop.start(*flags, **env)
    shop.fill({"default": 5})
    shop.put("critical", 10)
    shop.fill({"default": 5, "critical": 3})
    assert len(foreman.workers()) == there_are
    assert len(shop.processes()) == there_are, "every process has its part"
    assert f": 8 slots in {there_are} process" in foreman.log().splitlines()[0]
    shop.finish()
    assert shop.most()["all"] == 8, "three and five, never more, while jobs come and go"
    assert shop.most()["default"] == 5
    assert foreman.stop() == 0


@pytest.mark.requirement("D22", "I1")
@pytest.mark.parametrize(
    ("flags", "there_are"),
    [((), min(cores(), 14)), *[pytest.param(("-p", str(n)), min(n, 14), marks=pytest.mark.long) for n in (5, 16)]],
)
def test_isolation_runs_four_eight_and_two(shop: Shop, flags: tuple[str, ...], there_are: int) -> None:
    for queue in ISOLATION:
        shop.put(queue, 20)
    foreman = shop.start("--profile", "isolation", *flags)
    shop.fill(ISOLATION)
    assert len(foreman.workers()) == there_are
    assert f": 14 slots in {there_are} process" in foreman.log().splitlines()[0]
    shop.finish()
    assert shop.most() == {**ISOLATION, "all": 14}
    assert foreman.stop() == 0


@pytest.mark.requirement("D22")
def test_who_wants_slots_for_each_process_says_so(shop: Shop) -> None:
    (shop.folder / "fairlane.toml").write_text('[queues.bulk]\nslots = "2/process"\n')
    for queue in ("bulk", "default"):
        shop.put(queue, 12)
    foreman = shop.start("-p", "2", WORKER_GENERAL_THREADS="3/process")
    shop.fill({"bulk": 4, "default": 6})
    assert len(foreman.workers()) == 2
    assert "fast with 3 slots for critical; general with 3 slots in each process for" in foreman.log()
    shop.finish()
    assert shop.most() == {"bulk": 4, "default": 6, "all": 10}
    assert foreman.stop() == 0


@pytest.mark.requirement("D22", "L2")
def test_a_process_that_is_killed_is_followed_by_one_with_the_same_slots(shop: Shop) -> None:
    foreman = shop.start("-p", "3", "-s", "4")
    shop.put("default", 12)
    shop.fill({"default": 4})
    pids = [pid for *_, pid in shop.notes()]
    assert sorted(Counter(pids).values()) == [1, 1, 2]
    victim = Counter(pids).most_common(1)[0][0]
    others = Counter(pid for pid in pids if pid != victim)
    os.kill(victim, signal.SIGKILL)
    # What ran there runs again alone, in processes of its own: what is seen to begin is one job for each slot.
    shop.crew.eventually(lambda: len(shop.notes()) == 6, 30)
    sleep(1.2)
    assert len(shop.notes()) == 6, "the new process has the two slots of the old one"
    assert Counter(pid for *_, pid in shop.notes() if pid in others) == others

    def slots() -> list[float]:
        workers = shop.crew.app.workers.list().workers
        return sorted(worker.figures.get("lane.general.slots", 0.0) for worker in workers)

    shop.crew.eventually(lambda: slots() == [1, 1, 2])
    shop.finish()
    assert foreman.stop() == 0
