"""Workers and foremen that die, are halted, or vanish together: their jobs run again, and nothing is lost."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from fairlane.core.ops import ALL_TENANTS, Check, ListWorkers, ReadEvents
from fairlane.worker.foreman.link import BROKEN, UNTRUSTED
from fairlane.worker.host_workers import SHARED
from tests.faults.places import Place
from tests.servers.proxy import BLACKHOLE, PASS, Proxy
from tests.support.stores import Ground
from tests.worker.foreman.conftest import crew, every_crew, ground, postgres_crew
from tests.worker.foreman.crew import Crew

__all__ = ["crew", "every_crew", "ground", "postgres_crew"]

SLOTS = 4


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.requirement("Q17", "I12")
def test_after_the_kill_of_a_worker_only_what_it_had_in_hand_starts_again(postgres_crew: Crew) -> None:
    crew = postgres_crew
    foreman = crew.start("-p", "2", "-s", f"{SLOTS}/process")
    crew.eventually(lambda: foreman.log().count("is ready") == 2)
    handles = crew.app.enqueue_many([crew.task("work").bind(0.05) for _ in range(200)])
    crew.eventually(lambda: len(crew.diary("ended")) > 40 and len({e.pid for e in crew.diary()}) > 1)
    victim = crew.diary("began")[-1].pid
    killed_at = crew.app.runtime.clock.now()
    os.kill(victim, signal.SIGKILL)
    crew.eventually(lambda: all(handle.status() == "completed" for handle in handles), 30)

    lost = [a for handle in handles for a in crew.app.jobs.detail(handle.id).attempts if a.outcome == "lost"]
    assert 0 < len(lost) <= 6 * SLOTS, "only what was claimed is lost, not what was done"
    released_s = max((attempt.ended_at - killed_at).total_seconds() for attempt in lost)
    assert released_s < 2, "seen at once, not when the heartbeat lapsed"
    assert all(handle.job().attempts == 0 for handle in handles), "a crash charges nobody"
    twice = {e.job for e in crew.diary("began") if e.attempt > 1}
    assert twice <= {e.job for e in crew.diary("began") if e.pid == victim} | {
        str(h.id) for h in handles if crew.app.jobs.detail(h.id).attempts[0].outcome == "lost"
    }
    assert foreman.stop() == 0
    assert "SIGKILL" in foreman.log()
    assert crew.app.runtime.store.run(ListWorkers()).workers == (), "nobody is left registered"


@pytest.mark.requirement("Q17")
def test_workers_die_with_their_foreman_and_another_host_takes_over(postgres_crew: Crew) -> None:
    crew = postgres_crew
    handle = crew.task("work").enqueue(1.0)
    foreman = crew.start("-p", "1", "-s", "2", "--lease", "3s")
    [entry] = crew.began(handle)
    crew.eventually(lambda: handle.status() == "processing")  # the store knows that it has begun
    killed_s = time.monotonic()
    foreman.signal(signal.SIGKILL)
    crew.eventually(lambda: is_gone(entry.pid), 2)
    [lost] = crew.app.runtime.store.run(ListWorkers()).workers
    (SHARED / f"fairlane-{os.getuid()}" / lost.id.hex).unlink()  # another host would not have it
    other = crew.start("-p", "1", "-s", "2", "--lease", "3s")
    again = crew.began(handle, times=2)[1]
    assert again.at_s - killed_s < 3 + 2 + 2, (
        "within the lease and two seconds, and the start of a suspect's own process"
    )
    crew.eventually(lambda: handle.status() == "completed")
    # A suspect that is claimed while others run is given back unrun until there is a process for it alone.
    charged = [attempt for attempt in crew.attempts(handle) if attempt[0] != "released"]
    assert charged == [("lost", "WorkerLost"), ("completed", None)]
    assert other.stop() == 0


@pytest.mark.requirement("Q17")
def test_jobs_of_a_killed_foreman_run_again_as_soon_as_another_starts_on_its_host(every_crew: Crew) -> None:
    crew = every_crew
    handle = crew.task("work_once").enqueue(60.0)
    foreman = crew.start("-p", "1", "-s", "1")
    [entry] = crew.began(handle)
    crew.eventually(lambda: handle.status() == "processing")  # the store knows that it has begun
    foreman.signal(signal.SIGKILL)  # not collected: a zombie, as under an init that reaps nobody
    crew.eventually(lambda: is_gone(entry.pid), 2)
    other = crew.start("-p", "1", "-s", "1")
    crew.eventually(lambda: "is ready" in other.log(), 30)
    ready_s = time.monotonic()
    again = crew.began(handle, times=2)[1]
    assert again.at_s - ready_s < 3, "long before the 15 s after which its heartbeat lapses"
    crew.eventually(lambda: handle.status() == "completed")
    charged = [attempt for attempt in crew.attempts(handle) if attempt[0] != "released"]
    assert charged == [("lost", "WorkerLost"), ("completed", None)]
    assert "of this host is gone: its 1 jobs are returned" in other.log()
    assert other.stop() == 0


def test_a_halted_worker_of_a_killed_foreman_keeps_its_jobs_until_it_is_dead(crew: Crew) -> None:
    handle = crew.task("work_once").enqueue(60.0)
    foreman = crew.start("-p", "1", "-s", "1")
    [entry] = crew.began(handle)
    foreman.signal(signal.SIGSTOP)
    other = crew.start("-p", "1", "-s", "1")
    crew.eventually(lambda: "is ready" in other.log(), 30)
    assert "of this host is gone" not in other.log(), "its foreman is halted and may go on"
    foreman.signal(signal.SIGKILL)
    crew.eventually(lambda: is_gone(entry.pid), 2)
    assert crew.began(handle, times=2)[1].attempt > 1, "the new foreman looks more than once"
    assert other.stop() == 0


def test_a_halted_worker_is_killed_and_its_job_runs_elsewhere(crew: Crew) -> None:
    handle = crew.task("work").enqueue(1.0)
    foreman = crew.start("-p", "1", "-s", "2", "--lease", "2s")
    [entry] = crew.began(handle)
    os.kill(entry.pid, signal.SIGSTOP)
    crew.eventually(lambda: handle.status() == "completed", 20)
    assert is_gone(entry.pid)
    assert crew.attempts(handle) == [("released", None), ("completed", None)]
    assert "its loop has stopped" in foreman.log()
    assert foreman.stop() == 0


@pytest.mark.requirement("Q17")
def test_a_worker_whose_foreman_is_halted_ends_itself_and_its_job_is_not_suspected(crew: Crew) -> None:
    handle = crew.task("work_once").enqueue(60.0)
    foreman = crew.start("-p", "1", "-s", "2", "--lease", "3s")
    [entry] = crew.began(handle)
    foreman.signal(signal.SIGSTOP)
    crew.eventually(lambda: is_gone(entry.pid))
    foreman.signal(signal.SIGCONT)
    crew.eventually(lambda: handle.status() == "completed")
    assert "exited with code 75" in foreman.log()
    assert crew.attempts(handle) == [("released", None), ("completed", None)]
    assert foreman.stop() == 0


@pytest.mark.requirement("Q17")
@pytest.mark.long
def test_a_host_that_was_asleep_settles_nothing_that_others_took_over(crew: Crew) -> None:
    handle = crew.task("work").enqueue(1.0)
    asleep = crew.start("-p", "1", "-s", "2", "--lease", "2s")
    [entry] = crew.began(handle)
    crew.eventually(lambda: handle.status() == "processing")  # the store knows that it has begun
    asleep.signal(signal.SIGSTOP)
    os.kill(entry.pid, signal.SIGSTOP)
    other = crew.start("-p", "1", "-s", "2", "--lease", "2s")
    crew.began(handle, times=2)
    os.kill(entry.pid, signal.SIGCONT)
    asleep.signal(signal.SIGCONT)
    crew.eventually(lambda: handle.status() == "completed")
    assert crew.attempts(handle) == [("lost", "WorkerLost"), ("completed", None)]
    assert handle.job().attempt == 2
    assert asleep.stop() == 0
    assert other.stop() == 0


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("code", [pytest.param(3, marks=pytest.mark.long), BROKEN, UNTRUSTED])
def test_a_job_that_ends_its_process_is_dead_after_three_crashes_and_harms_nobody_else(crew: Crew, code: int) -> None:
    bad = crew.task("exit").using(tenant="bad").enqueue(code)
    good = crew.app.enqueue_many([crew.task("work").using(tenant="good").bind(0.02) for _ in range(40)])
    foreman = crew.start("-p", "1", "-s", f"{SLOTS}/process")
    crew.eventually(lambda: bad.status() == "dead", 40)
    crew.eventually(lambda: all(handle.status() == "completed" for handle in good), 20)
    job = bad.job()
    assert (job.error_type, job.attempts) == ("Crashed", 0)
    assert len([e for e in crew.diary("began") if e.job == str(bad.id)]) == 4, "once among others, three times alone"
    assert foreman.stop() == 0


@pytest.mark.requirement("L17")
@pytest.mark.long
def test_workers_told_to_go_or_hung_up_finish_what_they_run_and_are_replaced(crew: Crew) -> None:
    handle = crew.task("work").enqueue(0.5)
    foreman = crew.start("-p", "1", "-s", "2")
    [first] = crew.began(handle)
    os.kill(first.pid, signal.SIGTERM)
    second = crew.eventually(lambda: [pid for pid in foreman.workers() if pid != first.pid])
    assert crew.attempts(handle) == [("completed", None)]
    crew.eventually(lambda: len(crew.app.runtime.store.run(ListWorkers()).workers) == 1)
    foreman.signal(signal.SIGHUP)
    third = crew.task("grow").enqueue(1)
    crew.eventually(lambda: foreman.workers() and foreman.workers() != second)
    crew.eventually(lambda: third.status() == "completed")
    assert foreman.stop() == 0


@pytest.mark.requirement("Q17")
@pytest.mark.long
def test_cut_off_from_its_store_a_foreman_ends_what_runs_before_anybody_else_may_run_it(
    ground: Ground, tmp_path: Path
) -> None:
    place = Place(ground.server, ground.address("postgres").rpartition("/")[2])
    with Proxy(place.server.port) as proxy, closing(Crew(place.dsn, tmp_path)) as crew:
        handle = crew.task("work_once").enqueue(60.0)
        cut_off = crew.start("-p", "1", "-s", "2", "--lease", "5s", YARD_URL=place.through(proxy.port))
        [entry] = crew.began(handle)
        worker = handle.job().worker
        proxy.plan = BLACKHOLE
        proxy.cut_all("silent")
        crew.eventually(lambda: is_gone(entry.pid))
        [record] = [r for r in crew.app.runtime.store.run(ListWorkers()).workers if r.id == worker]
        assert crew.app.runtime.store.run(Check()).now < record.expires_at, "dead while its lease still stood"
        proxy.plan = PASS
        proxy.cut_all("reset")
        crew.eventually(lambda: handle.status() == "completed", 30)
        assert [outcome for outcome, _ in crew.attempts(handle)] in (["released", "completed"], ["lost", "completed"])
        assert "could not be renewed in time" in cut_off.log()
        assert cut_off.stop() == 0


@pytest.mark.requirement("I12")
def test_jobs_that_keep_crashing_processes_run_isolated_and_the_other_tenant_hardly_notices(crew: Crew) -> None:
    bad, good = crew.task("moody").using(tenant="bad"), crew.task("work").using(tenant="good")
    foreman = crew.start("-p", "2", "-s", "2/process")
    crew.eventually(lambda: foreman.log().count("is ready") == 2)
    first = bad.enqueue("bad")
    steady = [good.enqueue(0.01) for _ in range(40)]
    crew.eventually(lambda: first.status() == "dead", 40)
    crew.eventually(lambda: "run isolated until they behave" in foreman.log())
    deaths = foreman.log().count("exited with code 3; another is started at once")
    workers = set(foreman.workers())
    following = [bad.enqueue("bad") for _ in range(3)]
    steady += [good.enqueue(0.01) for _ in range(40)]
    crew.eventually(lambda: all(handle.status() == "completed" for handle in steady), 40)
    crew.eventually(lambda: all(handle.status() == "dead" for handle in following), 60)
    assert foreman.log().count("another is started") == deaths <= 2, "no process that others share crashes any more"
    assert set(foreman.workers()) == workers
    assert "another is started in" not in foreman.log(), "a worker that has worked is replaced at once"
    assert sum(attempt[0] == "lost" for handle in steady for attempt in crew.attempts(handle)) <= 2 * 2 * 6
    assert {e.kind for e in crew.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS)).events} >= {"task_isolated"}

    os.kill(foreman.workers()[0], signal.SIGKILL)  # what is known outlives the workers
    crew.eventually(lambda: foreman.log().count("is ready") == 3 + deaths)
    calm = [bad.enqueue("good") for _ in range(2)]
    crew.eventually(lambda: all(handle.status() == "completed" for handle in calm), 40)
    assert not {handle.result() for handle in calm} & set(foreman.workers()), "still isolated"
    calm = [bad.enqueue("good") for _ in range(80)]
    crew.eventually(lambda: "share processes again" in foreman.log(), 60)
    crew.eventually(lambda: all(handle.status() == "completed" for handle in calm), 40)
    trusted = bad.enqueue("good")
    crew.eventually(lambda: trusted.status() == "completed")
    assert trusted.result() in foreman.workers()
    assert foreman.stop() == 0


@pytest.mark.requirement("I12")
def test_what_crashed_a_process_alone_or_elsewhere_is_isolated_at_its_first_crash(postgres_crew: Crew) -> None:
    crew, isolates = postgres_crew, 'task "yard.moody" of tenant "bad" keeps crashing processes'
    bad = crew.task("moody").using(tenant="bad")
    first = crew.start("-p", "1", "-s", "2", "-q", "bulk")
    alone = bad.using(queue="bulk").enqueue("bad")
    crew.eventually(lambda: isolates in first.log())
    assert len(crew.began(alone)) == 1, "before its next attempt, in a process of its own"
    figure = "isolated.yard.moody.bad"
    crew.eventually(lambda: [w for w in crew.app.runtime.store.run(ListWorkers()).workers if figure in w.figures])

    second = crew.start("-p", "1", "-s", "2", "-q", "default")
    beside = crew.task("work_once").using(tenant="good").enqueue(60.0)
    crew.began(beside)
    among_others = bad.enqueue("bad")
    crew.eventually(lambda: isolates in second.log())
    assert len(crew.began(among_others)) == 1
    crew.eventually(lambda: beside.status() == "completed")
    assert 'tenant "good"' not in second.log()
    assert first.stop() == second.stop() == 0
