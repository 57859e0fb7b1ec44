"""Document Q with its own variables: processes that start while Redis is away, and Redis that comes back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fairlane import Fairlane
from fairlane.errors import StoreUnavailable
from fairlane.metrics import exposition
from tests.faults.eventually import eventually
from tests.servers.valkey import ValkeyServer
from tests.worker.foreman.crew import Crew


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[ValkeyServer]:
    """A server that is not running, named by the document's variables."""
    with ValkeyServer() as server:
        server.stop()
        monkeypatch.setenv("USE_REDIS_QUEUE", "true")
        monkeypatch.setenv("REDIS_URL", server.url)
        monkeypatch.setenv("REDIS_HEALTH_CHECK_TIMEOUT", "1.0")
        yield server


SINGLE_PROCESS = """
import json, sys
from fairlane import Fairlane

app = Fairlane()

def say(what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\\n")  # whole lines, from several threads
    sys.stdout.flush()

@app.task(name="reconcile")
def reconcile(report: int) -> None:
    say({"ran": report})

with app, app.running():
    for line in sys.stdin:
        if line.strip() == "snapshot":
            say(app.snapshot())
        else:
            reconcile.enqueue(int(line))
"""


class Process:
    """The document's single process: it enqueues what it reads, and runs it."""

    def __init__(self, directory: Path) -> None:
        self._said, log = directory / "said", directory / "log"
        command = [sys.executable, "-c", SINGLE_PROCESS]
        with self._said.open("wb") as out, log.open("wb") as errors:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=errors, text=True)
        self.log = log.read_text

    def ask(self, line: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()

    def said(self) -> list[dict[str, object]]:
        text = self._said.read_text()
        return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]

    def ran(self) -> Counter[object]:
        return Counter(line["ran"] for line in self.said() if "ran" in line)

    def snapshot(self) -> dict[str, object]:
        before = len(self.said())
        self.ask("snapshot")
        return eventually(lambda: [line for line in self.said()[before:] if "redis_active" in line])[0]

    def end(self) -> int:
        assert self._process.stdin is not None
        self._process.stdin.close()
        return self._process.wait(60)

    def kill(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture
def process(away: ValkeyServer, tmp_path: Path) -> Iterator[Process]:
    process = Process(tmp_path)
    yield process
    process.kill()


@pytest.mark.requirement("Q4", "Q5", "Q11", "Q16", "D26")
def test_a_process_started_without_redis_runs_its_jobs_and_switches_to_redis(
    away: ValkeyServer, process: Process
) -> None:
    for report in range(5):
        process.ask(report)
    eventually(lambda: set(process.ran()) == set(range(5)), 40)
    assert "the store is away" in process.log()
    seen = process.snapshot()
    assert (seen["redis_active"], seen["reachable"]) == (False, False)
    away.start()
    eventually(lambda: process.snapshot()["redis_active"], 40)
    for report in range(5, 10):
        process.ask(report)
    eventually(lambda: set(process.ran()) == set(range(10)), 40)
    assert process.end() == 0
    assert set(process.ran().values()) == {1}
    assert int(away.call("HLEN", "{fairlane}:id")) >= 5
    assert "lost, as the store is away" not in process.log()


@pytest.mark.requirement("Q4", "Q5", "Q14", "D26")
def test_a_web_process_and_a_worker_started_without_redis_lose_nothing(away: ValkeyServer, tmp_path: Path) -> None:
    with closing(Crew(away.url, tmp_path)) as crew:
        foreman = crew.start("-p", "1", "-s", "4")
        handles = [crew.task("work").enqueue(0.0) for _ in range(5)]
        seen = crew.app.snapshot()
        assert (seen["redis_active"], seen["reachable"], seen["spooled"]) == (False, False, 5)
        assert "redis_health 0.0" in exposition(crew.app).decode()
        crew.eventually(lambda: "the store does not answer; it is tried until it does" in foreman.log())
        away.start()
        crew.eventually(lambda: crew.app.snapshot()["redis_active"])
        handles += [crew.task("work").enqueue(0.0) for _ in range(5)]
        crew.eventually(lambda: {handle.status() for handle in handles} == {"completed"}, 40)
        began = Counter(entry.job for entry in crew.diary("began"))
        assert began == {str(handle.id): 1 for handle in handles}
        assert crew.app.snapshot()["spooled"] == 0
        crew.eventually(lambda: "redis_health 1.0" in exposition(crew.app).decode(), 40)  # read each few seconds
        assert foreman.stop() == 0


@pytest.mark.requirement("Q4")
def test_where_so_configured_an_enqueue_is_refused_instead(away: ValkeyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIRLANE_FALLBACK", "refuse")
    with Fairlane() as app, pytest.raises(StoreUnavailable, match="redis store cannot be reached"):
        app.task(name="reconcile")(lambda: None).enqueue()


@pytest.mark.requirement("Q16")
def test_a_url_that_the_documents_switch_passes_over_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "fairlane.toml").write_text('url = "redis://:hunter2@cache/0"')
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("USE_REDIS_QUEUE", "false")
    with Fairlane() as app:
        assert app.snapshot()["store"] == "memory"
    [said] = [record.message for record in caplog.records]
    assert said == "USE_REDIS_QUEUE is false: jobs go to memory, and not to the url of fairlane.toml"
    caplog.clear()
    with Fairlane("memory://"):
        assert caplog.text == ""
