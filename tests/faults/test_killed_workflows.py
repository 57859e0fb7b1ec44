"""Workers are killed while workflows and batch calls run: every node completes, none beside itself, callbacks once."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from functools import partial
from itertools import pairwise

import psutil
import pytest

from fairlane import WorkflowHandle
from tests.faults import maps_process
from tests.worker.foreman.conftest import every_crew, ground
from tests.worker.foreman.crew import Crew

__all__ = ["every_crew", "ground"]

pytestmark = pytest.mark.requirement("L18")


def lots(crew: Crew, size: int) -> WorkflowHandle:
    """A batch of jobs of a batch task, which calls back."""
    done = crew.task("total").bind([size])
    batch = crew.app.batch("lots", on_success=done, on_failure=done, on_complete=done)
    return batch.add_many(crew.task("lot").bind(number) for number in range(size)).enqueue()


def layers(crew: Crew, depth: int, width: int) -> WorkflowHandle:
    flow = crew.app.workflow("layers")
    before: list[object] = []
    for _ in range(depth):
        before = [flow.add(crew.task("lot").bind(number), after=before) for number in range(width)]  # type: ignore[arg-type]
    flow.add(crew.task("total").bind([node.result for node in before]), name="total")  # type: ignore[attr-defined]
    return flow.enqueue()


def kill_one_at_work(crew: Crew, before: int) -> int:
    """Kill the worker that began something last, once more than `before` attempts have begun."""
    crew.eventually(lambda: len(crew.diary("began")) > before)
    os.kill(victim := crew.diary("began")[-1].pid, signal.SIGKILL)
    return victim


def is_gone(pid: int, victims: set[int]) -> bool:
    """Whether a process was killed: by us, or, as one of its own for a job that may crash others, with its worker."""
    return pid in victims or not psutil.pid_exists(pid)


def no_attempts_overlap(crew: Crew, victims: set[int]) -> None:
    """An attempt begins only after the one before it has ended, or its process was killed."""
    of_job: dict[str, list[tuple[str, int, int]]] = defaultdict(list)
    for entry in crew.diary():
        of_job[entry.job].append((entry.event, entry.attempt, entry.pid))
    for events in of_job.values():
        for (event, attempt, pid), (after, next_attempt, _) in pairwise(events):
            if event == "began":
                is_cut_off = ("ended", attempt, pid) not in events and is_gone(pid, victims)
                assert (after, next_attempt) == ("ended", attempt) or is_cut_off, events
            else:
                assert is_gone(pid, victims), f"it ran again although it had ended: {events}"


def run_under_kills(crew: Crew, size: int, kills: int) -> None:
    batch, flow = lots(crew, size), layers(crew, 3, 6)
    crew.start("-p", "2", "-s", "4/process", "--lease", "3s")
    victims: set[int] = set()
    for kill in range(kills):
        victims.add(kill_one_at_work(crew, (kill + 1) * size // (kills + 2)))
    crew.eventually(lambda: {h.status().status for h in (batch, flow)} == {"completed"}, 60)
    no_attempts_overlap(crew, victims)
    assert flow.result("total") == sum(range(6))
    assert batch.status().tally.skipped == 1, "on_failure was not needed"
    runs = defaultdict(list)
    for entry in crew.diary("total"):
        runs[entry.job].append(entry.pid)
    assert len(runs) == 3, "on_success, on_complete and the last node of the workflow"
    assert all(is_gone(pid, victims) for pids in runs.values() for pid in pids[:-1]), "once for each success"
    details = [crew.app.jobs.detail(node.job_id) for node in (*batch.nodes(), *flow.nodes())]
    outcomes = [attempt.outcome for detail in details if detail is not None for attempt in detail.attempts]
    assert outcomes.count("completed") == size + 3 * 6 + 3
    assert outcomes.count("lost") >= 1, "somebody was killed in the middle of something"


def test_every_node_completes_although_a_worker_is_killed_in_a_batch_call(every_crew: Crew) -> None:
    run_under_kills(every_crew, 32, 1)


@pytest.mark.long
def test_every_node_completes_although_workers_are_killed_again_and_again(every_crew: Crew) -> None:
    run_under_kills(every_crew, 400, 8)


def test_a_map_whose_workers_are_killed_adds_nothing_twice(every_crew: Crew) -> None:
    crew, app = every_crew, "tests.faults.maps_process:app"
    crew.app.runtime.tasks.update({name: crew._moved(task) for name, task in maps_process.app.tasks.items()})
    handle = crew.app.chain(crew.app.tasks["maps.upto"].bind(20), crew.app.tasks["maps.double_map"]).enqueue()
    crew.start("-s", "2", "--lease", "3s", app=app)
    for event, nodes in (("halfway", 7), ("added", 23)):
        [cut] = crew.eventually(partial(crew.diary, event), 40)
        assert len(handle.nodes()) == nodes
        os.kill(cut.pid, signal.SIGKILL)
    assert handle.result("double_map/total", timeout=60) == sum(range(0, 40, 2))
    assert (len(handle.nodes()), handle.wait(timeout=20).status) == (23, "completed")
    assert len(crew.diary("total")) == 1
