"""Limits and keys over several real worker processes: never more at once, never faster, never out of order, whatever is
killed meanwhile."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Container, Iterator, Sequence
from contextlib import closing
from itertools import accumulate, groupby
from pathlib import Path
from time import monotonic

import pytest

from fairlane.core.job import Attempt
from tests.support.stores import Ground
from tests.worker.foreman.conftest import ground
from tests.worker.foreman.crew import Crew, ForemanProcess

__all__ = ["ground"]


@pytest.fixture(params=["sqlite-apsw", "postgres"])
def crew(request: pytest.FixtureRequest, ground: Ground, tmp_path: Path) -> Iterator[Crew]:
    address = ground.address(request.param)
    with closing(Crew(f"sqlite:///{address}" if request.param == "sqlite-apsw" else address, tmp_path)) as crew:
        yield crew


def most_at_once(crew: Crew, killed_s: dict[int, float], jobs: Container[str] | None = None) -> int:
    """Of these jobs, or of all. By what ran, and the clock that all processes share: from the beginning of an attempt to its end, or to that of its process.

    Not by the store's records: a Turn that waited may claim, with the instant it began at, a place that came free after that.
    """
    ended_s = {(entry.job, entry.attempt): entry.at_s for entry in crew.diary("ended")}
    again_s: dict[str, float] = {}
    steps = []
    for entry in reversed([entry for entry in crew.diary("began") if jobs is None or entry.job in jobs]):
        # A child dies with its worker, at the latest before its job begins again.
        gone_s = ended_s.get((entry.job, entry.attempt)) or killed_s.get(entry.pid) or again_s[entry.job]
        steps += [(entry.at_s, 1), (max(gone_s, entry.at_s), -1)]
        again_s[entry.job] = entry.at_s
    return max(accumulate(step for _, step in sorted(steps)))


def attempts_of(crew: Crew, handles: list[object]) -> list[Attempt]:
    return [attempt for handle in handles for attempt in crew.app.jobs.detail(handle.id).attempts]  # type: ignore[attr-defined]


def kill_some(crew: Crew, foremen: Sequence[ForemanProcess], jobs: int, kills: int) -> dict[int, float]:
    """Kill workers that just began a job, most of the time in the middle of it, while half of the jobs run."""
    chance, killed_s = random.Random(7), dict[int, float]()
    for kill in range(kills):
        enough = (kill + 1) * jobs // (2 * kills)
        crew.eventually(lambda enough=enough: crew.app.statistics.counts().completed >= enough, 120)
        victim = crew.diary("began")[-chance.randint(1, 3)].pid
        if victim in [pid for foreman in foremen for pid in foreman.workers()]:
            killed_s[victim] = monotonic()  # before: its place may be taken before this process runs again
            os.kill(victim, signal.SIGKILL)
    return killed_s


def is_done(crew: Crew, count: int) -> bool:
    return crew.app.statistics.counts().completed >= count


@pytest.mark.requirement("I5", "Q17")
@pytest.mark.parametrize(("jobs", "kills"), [(150, 4), pytest.param(5000, 60, marks=pytest.mark.long)])
def test_a_limit_of_three_holds_while_workers_are_killed_and_no_slot_leaks(crew: Crew, jobs: int, kills: int) -> None:
    crew.app.limits.set(task="yard.work", running=3)
    handles = [
        handle
        for begin in range(0, jobs, 1000)
        for handle in crew.app.enqueue_many(
            [crew.task("work").using(tenant=f"t{n % 5}").bind(0.02) for n in range(begin, min(begin + 1000, jobs))]
        )
    ]
    foremen = [crew.start("-p", "2", "-s", "8/process") for _ in range(2)]
    killed_s = kill_some(crew, foremen, jobs, kills)
    crew.eventually(lambda: is_done(crew, jobs), 600 if jobs > 1000 else 60)
    attempts = attempts_of(crew, handles)
    assert most_at_once(crew, killed_s) <= 3
    assert any(attempt.outcome == "lost" for attempt in attempts)
    assert [foreman.stop() for foreman in foremen] == [0, 0]


@pytest.mark.requirement("D24", "Q17")
@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize(("jobs", "kills"), [(120, 3), pytest.param(2000, 40, marks=pytest.mark.long)])
def test_jobs_of_one_key_run_one_at_a_time_and_in_order_while_workers_are_killed(
    crew: Crew, jobs: int, kills: int, ordered: bool
) -> None:
    keys = [f"customer:{n}" for n in range(4)]
    work = crew.task("work").using(tenant="acme")
    of_key = {
        key: [
            str(handle.id)
            for handle in crew.app.enqueue_many([work.using(key=key, ordered=ordered).bind(0.02)] * (jobs // 4))
        ]
        for key in keys
    }
    foremen = [crew.start("-p", "2", "-s", "8/process") for _ in range(2)]
    killed_s = kill_some(crew, foremen, jobs, kills)
    crew.eventually(lambda: is_done(crew, jobs), 600 if jobs > 1000 else 60)
    assert {key: most_at_once(crew, killed_s, set(of_key[key])) for key in keys} == dict.fromkeys(keys, 1)
    assert most_at_once(crew, killed_s) > 1, "keys do not wait for each other"
    if ordered:
        began = [entry.job for entry in crew.diary("began")]
        for mine in of_key.values():
            ran = [job for job, _ in groupby(job for job in began if job in mine)]
            assert ran == mine
    assert crew.app.limits.keys() == ()
    assert killed_s
    assert [foreman.stop() for foreman in foremen] == [0, 0]


@pytest.mark.requirement("I5", "Q17")
def test_the_place_of_a_killed_holder_is_free_at_once_and_not_when_its_lease_ends(crew: Crew) -> None:
    crew.app.limits.set(task="yard.work_once", running=1)
    holding, waiting = crew.task("work_once").enqueue(600.0), crew.task("work_once").enqueue(0.0)
    foreman = crew.start("-p", "2", "-s", "2/process", "--lease", "600s")
    [entry] = crew.began(holding)
    assert waiting.status() == "pending"
    killed_at = crew.app.runtime.clock.now()
    os.kill(entry.pid, signal.SIGKILL)
    crew.eventually(lambda: waiting.status() == holding.status() == "completed")
    lost, *_ = attempts_of(crew, [holding])
    assert (lost.outcome, lost.error_type) == ("lost", "WorkerLost")
    assert (lost.ended_at - killed_at).total_seconds() < 2
    assert foreman.stop() == 0


@pytest.mark.requirement("I5")
@pytest.mark.parametrize(
    ("jobs", "count", "period_s"), [(60, 20, 1.0), pytest.param(150, 50, 60.0, marks=pytest.mark.long)]
)
def test_a_rate_is_exact_over_four_processes(crew: Crew, jobs: int, count: int, period_s: float) -> None:
    crew.app.limits.set(task="yard.work", rate=f"{count}/{period_s:g}s")
    handles = crew.app.enqueue_many([crew.task("work").using(tenant=f"t{n % 3}").bind(0.0) for n in range(jobs)])
    foremen = [crew.start("-p", "2", "-s", "8/process") for _ in range(2)]
    crew.eventually(lambda: is_done(crew, jobs), 30 + 2 * jobs / count * period_s)
    starts = sorted(attempt.leased_at for attempt in attempts_of(crew, list(handles)))
    spans = [(later - first).total_seconds() for first, later in zip(starts, starts[count:], strict=False)]
    assert min(spans) >= period_s
    assert (starts[-1] - starts[0]).total_seconds() < (jobs / count - 1) * period_s + 2, "and nothing of it is wasted"
    assert [foreman.stop() for foreman in foremen] == [0, 0]
