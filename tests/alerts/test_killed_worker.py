"""A real worker is killed: the foreman tells, the next look raises the alert, and the log has it."""

from __future__ import annotations

import os
import signal

import pytest

from fairlane.core.ops import ALL_TENANTS, ReadAlerts, ReadEvents
from tests.worker.foreman.conftest import crew as crew
from tests.worker.foreman.crew import Crew


@pytest.mark.requirement("I12")
def test_a_worker_that_is_killed_raises_the_alert(crew: Crew) -> None:
    handle = crew.task("work").enqueue(2.0)
    foreman = crew.start("-p", "1", "-s", "1")
    [entry] = crew.began(handle)
    os.kill(entry.pid, signal.SIGKILL)
    store = crew.app.runtime.store

    def crashes() -> list[str]:
        return [e.data["why"] for e in store.run(ReadEvents(scope=ALL_TENANTS, kinds=("worker_crashed",))).events]

    crew.eventually(lambda: crashes() == ["crashed"])
    crew.eventually(
        lambda: [a.rule for a in store.run(ReadAlerts()).alerts if a.state == "firing"] == ["worker_crash"], 30
    )
    assert foreman.stop() == 0
    assert "[critical] worker_crash: worker processes that died: 1" in foreman.log()
