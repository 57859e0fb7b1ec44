"""Rolling restarts under load: nothing lost, nobody charged for being interrupted."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from fairlane.core.ops import ListWorkers
from fairlane.worker.config import WorkerConfig
from fairlane.worker.foreman.foreman import Foreman, ForemanConfig
from fairlane.worker.foreman.supervisor import RestartDelay
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.worker.foreman.conftest import crew, ground, postgres_crew
from tests.worker.foreman.crew import APP, Crew

__all__ = ["crew", "ground", "postgres_crew"]

RESTARTS = 100 if os.environ.get("FAIRLANE_LONG") else 1
JOBS_EACH = 40


@pytest.mark.requirement("L17", "Q8")
@pytest.mark.timeout(1800)
def test_rolling_restarts_under_load_lose_nothing_and_charge_only_failures(postgres_crew: Crew) -> None:
    crew = postgres_crew
    work, failing = [], []
    foreman = crew.start("-p", "1", "-s", "8", "--grace", "100ms")
    for _ in range(RESTARTS):
        work += crew.app.enqueue_many([crew.task("work").bind(0.02 * (i % 10)) for i in range(JOBS_EACH)])
        failing.append(crew.task("fail").enqueue())
        seen = len(crew.diary("began"))
        crew.eventually(lambda seen=seen: len(crew.diary("began")) > seen + 10)
        following = crew.start("-p", "1", "-s", "8", "--grace", "100ms")
        assert foreman.stop() == 0, foreman.log()
        foreman = following
    crew.eventually(lambda: all(handle.status() == "completed" for handle in work), 60)
    crew.eventually(lambda: all(handle.status() == "dead" for handle in failing), 30)
    assert foreman.stop() == 0
    assert {handle.job().attempts for handle in work} == {0}
    assert {handle.job().attempts for handle in failing} == {2}
    outcomes = {outcome for handle in work for outcome, _ in crew.attempts(handle)}
    assert outcomes <= {"completed", "released"}, "interrupted is not lost"


@pytest.mark.requirement("L17")
def test_a_stop_gives_back_at_once_what_has_not_begun_and_waits_for_what_runs(crew: Crew) -> None:
    running, waiting = crew.task("work").enqueue(1.0), crew.task("work").enqueue(0.0)
    foreman = crew.start("-p", "1", "-s", "1")
    crew.began(running)
    foreman.signal(signal.SIGTERM)
    assert foreman.wait() == 0
    assert running.status() == "completed"
    assert waiting.status() == "pending"
    assert not [e for e in crew.diary() if e.job == str(waiting.id)]


@pytest.mark.requirement("L17", "Q8")
def test_a_second_signal_ends_it_at_once_and_what_ran_is_given_back_uncharged(crew: Crew) -> None:
    handle = crew.task("work").enqueue(60.0)
    foreman = crew.start("-p", "1", "-s", "1")
    crew.began(handle)
    foreman.signal(signal.SIGINT)
    crew.eventually(lambda: "stopping: running jobs have 25 s" in foreman.log())
    foreman.signal(signal.SIGINT)
    assert foreman.wait(10) == 0
    assert handle.status() == "pending"
    assert crew.attempts(handle) == [("released", None)]
    assert handle.job().attempts == 0


@pytest.mark.requirement("L17")
def test_a_hang_up_replaces_one_worker_after_the_other_and_claims_never_stop(postgres_crew: Crew) -> None:
    crew = postgres_crew
    foreman = crew.start("-p", "2", "-s", "4")
    registered = lambda: {worker.id for worker in crew.app.runtime.store.run(ListWorkers()).workers}  # noqa: E731
    crew.eventually(lambda: len(registered()) == 2)
    first, before = registered(), set(foreman.workers())
    long = [crew.task("work").enqueue(2.0) for _ in range(2)]
    for handle in long:
        crew.began(handle)
    counts: list[int] = []
    short: list[Any] = []

    def replaced() -> bool:
        now = registered()
        counts.append(len(now))
        short.append(crew.task("work").enqueue(0.0))
        return len(now) == 2 and not now & first and not before & set(foreman.workers())

    foreman.signal(signal.SIGHUP)
    crew.eventually(replaced, 40)
    assert set(counts) <= {2, 3}, "never fewer than before, and one at a time"
    crew.eventually(lambda: all(handle.status() == "completed" for handle in (*long, *short)))
    assert {crew.attempts(handle)[0][0] for handle in long} == {"completed"}, "nobody was interrupted"
    assert foreman.stop() == 0
    assert "is killed" not in foreman.log()


def test_a_hang_up_leaves_the_workers_alone_when_the_code_can_no_longer_be_loaded(crew: Crew, tmp_path: Path) -> None:
    source = "from fairlane import Fairlane\nimport os\napp = Fairlane(os.environ['YARD_URL'])\n@app.task(name='yard.work')\nasync def f(seconds: float) -> int:\n    return 1\n"
    (tmp_path / "shed.py").write_text(source)
    foreman = crew.start("-p", "2", "-s", "4", app="shed", cwd=tmp_path)
    crew.eventually(lambda: foreman.log().count("is ready") == 2)
    before = set(foreman.workers())
    (tmp_path / "shed.py").write_text("this is no Python")
    foreman.signal(signal.SIGHUP)
    crew.eventually(lambda: "the one it was to replace goes on" in foreman.log())
    handle = crew.task("work").enqueue(0.0)
    crew.eventually(lambda: handle.status() == "completed")
    assert before <= set(foreman.workers())
    (tmp_path / "shed.py").write_text(source)
    foreman.signal(signal.SIGHUP)
    crew.eventually(lambda: not before & set(foreman.workers()), 40)
    assert foreman.stop() == 0


@pytest.mark.requirement("L17")
def test_workers_start_as_soon_as_a_store_that_was_away_answers(
    own_place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    delays_s = iter([0.0])  # the worker that is killed; those that cannot start are followed much later
    monkeypatch.setattr(RestartDelay, "died", lambda _, **__: next(delays_s, 600.0))

    async def until(look: Callable[[], object]) -> None:
        await asyncio.to_thread(eventually, look, 40)

    def waiting(foreman: Foreman) -> str:
        return "".join(one.process.store_away or "" for one in foreman.supervisors if one.process is not None)

    async def story(crew: Crew, foreman: Foreman) -> None:
        running = asyncio.create_task(foreman.run(handles_signals=False))
        try:
            await (await crew.task("work").aenqueue()).aresult(timeout=40)
            assert foreman.supervisors[0].process is not None
            await asyncio.to_thread(own_place.server.stop)
            os.kill(foreman.supervisors[0].process.pid, signal.SIGKILL)
            await until(lambda: waiting(foreman))
            await asyncio.to_thread(own_place.server.start)
            await (await crew.task("work").aenqueue()).aresult(timeout=40)
        finally:
            foreman.stop()
            foreman.stop()
            await running

    with closing(Crew(own_place.dsn, tmp_path)) as crew, caplog.at_level("INFO", logger="fairlane.foreman"):
        for name, value in crew.environment.items():
            monkeypatch.setenv(name, value)
        asyncio.run(story(crew, Foreman(ForemanConfig(app=APP, worker=WorkerConfig(slots=2)))))
