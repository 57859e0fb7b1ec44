"""`fairlane worker` as an operator uses it: flags, mistakes, probes, replacement."""

from __future__ import annotations

import re
import signal
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner

from fairlane import Fairlane
from fairlane.cli.commands.worker import worker as command
from fairlane.core.ops import ListWorkers
from fairlane.core.profiles import ANY, Lane
from tests.worker.foreman.crew import Crew, ForemanProcess

QUICK = ("-p", "1", "-s", "2")


def ask(foreman: ForemanProcess, path: str) -> tuple[int, str]:
    found = re.search(r"http://127\.0\.0\.1:(\d+)/livez", foreman.log())
    assert found
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{found[1]}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode().strip()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode().strip()


@pytest.mark.requirement("Q8")
def test_draining_runs_everything_there_is_replacing_workers_after_their_share_and_leaves(crew: Crew) -> None:
    handles = crew.app.enqueue_many([crew.task("work").bind() for _ in range(30)])
    foreman = crew.start("-p", "1", "-s", "4", "--drain", "--max-jobs", "20")
    assert foreman.wait() == 0
    assert all(handle.status() == "completed" for handle in handles)
    begun = [entry.pid for entry in crew.diary("began")]
    assert sorted(begun.count(pid) for pid in set(begun)) == [10, 20]


@pytest.mark.requirement("L21")
def test_a_worker_past_its_memory_cap_is_replaced_once_its_job_has_ended_and_dumps_its_heap_when_asked(
    crew: Crew,
) -> None:
    foreman = crew.start(*QUICK, "--max-memory", "200MB", TMPDIR=str(crew.directory))
    grown = crew.task("grow").enqueue(1)
    [entry] = crew.eventually(lambda: crew.diary("grown"))
    foreman.signal(signal.SIGUSR1)
    crew.eventually(lambda: "heap dump written to" in foreman.log())
    [dump] = crew.directory.glob("fairlane-heap-*.txt")
    assert f"process {entry.pid}" in dump.read_text()
    crew.task("grow").enqueue(300)
    crew.eventually(lambda: "more than the 200 MB" in foreman.log())
    crew.eventually(lambda: entry.pid not in foreman.workers())
    after = crew.task("grow").enqueue(1)
    crew.eventually(lambda: after.status() == "completed")
    assert after.result() != grown.result()
    [worker] = crew.eventually(lambda: [w for w in crew.app.runtime.store.run(ListWorkers()).workers if w.figures])
    assert 0 < worker.figures["memory_mb"] < 200
    assert worker.figures["lane.general.slots"] == 2
    assert foreman.stop() == 0


def test_probes_say_whether_it_lives_and_whether_jobs_would_run(crew: Crew) -> None:
    foreman = crew.start(*QUICK, "--probe-port", "0")
    crew.eventually(lambda: "/livez" in foreman.log())
    assert ask(foreman, "/livez") == (200, "ok")
    crew.eventually(lambda: ask(foreman, "/readyz") == (200, "ok"))
    [pid] = foreman.workers()
    handle = crew.task("work").enqueue(30.0)
    crew.began(handle)
    foreman.signal(signal.SIGTERM)
    crew.eventually(lambda: ask(foreman, "/readyz") == (503, "stopping"))
    assert ask(foreman, "/livez") == (200, "ok")
    assert ask(foreman, "/")[0] == 404
    foreman.signal(signal.SIGTERM)
    assert foreman.wait() == 0
    assert pid not in foreman.workers()


@pytest.mark.long
def test_changed_code_is_loaded_in_development(crew: Crew, tmp_path: Path) -> None:
    source = "from fairlane import Fairlane\nimport os\napp = Fairlane(os.environ['YARD_URL'])\n@app.task(name='{}')\nasync def f() -> int:\n    return 1\n"
    (tmp_path / "shed.py").write_text(source.format("shed.old"))
    foreman = crew.start(*QUICK, "--reload", app="shed", cwd=tmp_path)
    types = lambda: [worker.types for worker in crew.app.runtime.store.run(ListWorkers()).workers]  # noqa: E731
    crew.eventually(lambda: types() == [("shed.old",)])
    (tmp_path / "shed.py").write_text("this is no Python")
    crew.eventually(lambda: "SyntaxError" in foreman.log())
    (tmp_path / "shed.py").write_text(source.format("shed.new"))
    crew.eventually(lambda: types() == [("shed.new",)])
    assert foreman.stop() == 0


@pytest.mark.requirement("D22", "L17")
def test_a_hang_up_fits_the_processes_to_the_slots_of_changed_settings(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "shed.py").write_text(
        "from fairlane import Fairlane\nimport os\napp = Fairlane(os.environ['YARD_URL'])\n"
        "@app.task(name='shed.work')\nasync def work() -> int:\n    return 1\n"
    )

    def by_process() -> list[list[int]]:
        figures = [worker.figures for worker in crew.app.runtime.store.run(ListWorkers()).workers]
        return sorted([int(n) for name, n in sorted(each.items()) if name.endswith(".slots")] for each in figures)

    foreman = crew.start("-p", "2", "--fast-slots", "0", "--general-slots", "1", app="shed", cwd=tmp_path)
    crew.eventually(lambda: by_process() == [[1]])
    assert "1 slot in 1 process, not 2: each needs a slot" in foreman.log()
    for settings, expected in (("[queues.bulk]\nslots = 2", [[1], [1, 1]]), ("", [[1]])):
        (tmp_path / "fairlane.toml").write_text(settings)
        foreman.signal(signal.SIGHUP)
        crew.eventually(lambda expected=expected: by_process() == expected and len(foreman.workers()) == len(expected))
    assert foreman.stop() == 0
    assert "is killed" not in foreman.log()


@pytest.mark.requirement("D17", "I1")
@pytest.mark.parametrize(
    ("code", "flags", "slots"),
    [
        ('profile="isolation", queues={"shed": {"slots": 3}}', (), {"critical": 4, "default": 8, "bulk": 2, "shed": 3}),
        ("", ("--profile", "isolation"), {"critical": 4, "default": 8, "bulk": 2}),
        ('profile="development"', ("--profile", "isolation"), {"fast": 1, "general": 2}),
    ],
)
def test_the_lanes_are_those_of_the_profile_and_the_queues_in_the_code_that_is_run(
    crew: Crew, tmp_path: Path, code: str, flags: tuple[str, ...], slots: dict[str, int]
) -> None:
    source = f"from fairlane import Fairlane\nimport os\napp = Fairlane(os.environ['YARD_URL'], {code})\n"
    (tmp_path / "shed.py").write_text(source + "@app.task(name='shed.work')\nasync def work() -> int:\n    return 1\n")
    foreman = crew.start("-p", "1", *flags, app="shed", cwd=tmp_path)
    [worker] = crew.eventually(lambda: [w for w in crew.app.runtime.store.run(ListWorkers()).workers if w.figures])
    found = {name.split(".")[1]: int(n) for name, n in worker.figures.items() if name.endswith(".slots")}
    assert found == slots
    assert foreman.stop() == 0


def test_a_mistake_ends_in_one_line_before_anything_is_claimed(crew: Crew) -> None:
    handle = crew.task("work").enqueue()
    foreman = crew.start("-p", "2", "--queues", "criticl")
    assert foreman.wait() == 2
    [said] = foreman.log().splitlines()
    assert said.startswith('fairlane: lane "general": no queue "criticl"')
    assert handle.status() == "pending"


@pytest.mark.parametrize(
    ("flags", "env", "lanes", "batch"),
    [
        ((), {}, (Lane("fast", 3, ("critical",), prompt=True), Lane("general", 5)), 20),
        (
            ("--profile", "development"),
            {"WORKER_FAST_THREADS": "2", "WORKER_GENERAL_THREADS": "7"},
            (Lane("fast", 2, ("critical",), prompt=True), Lane("general", 7)),
            None,
        ),
        (
            (),
            {"WORKER_FAST_THREADS": "2/process"},
            (Lane("fast", 2, ("critical",), prompt=True, per_process=True), Lane("general", 5)),
            None,
        ),
        (("--fast-slots", "0"), {}, (Lane("general", 5),), None),
        (("--slots", "40/process"), {}, (Lane("general", 40, per_process=True),), None),
        (("--lane", "a:1/process:bulk"), {}, (Lane("a", 1, ("bulk",), per_process=True),), None),
        (("--slots", "40"), {}, (Lane("general", 40, (ANY,)),), None),
        (("--queues", "bulk,default"), {}, (Lane("general", 8, ("bulk", "default")),), None),
        (("--lane", "a:1:bulk", "--lane", "b:2"), {}, (Lane("a", 1, ("bulk",)), Lane("b", 2)), None),
        (("--slots", "4", "--batch", "9"), {}, (Lane("general", 4),), 9),
        (
            ("--profile", "isolation"),
            {},
            (
                Lane("critical", 4, ("critical",), prompt=True),
                Lane("default", 8, ("default",)),
                Lane("bulk", 2, ("bulk",)),
            ),
            20,
        ),
        (("--lane", "fast:3:critical:prompt"), {}, (Lane("fast", 3, ("critical",), prompt=True),), None),
        (("--lane", "quick:2::prompt"), {}, (Lane("quick", 2, (ANY,), prompt=True),), None),
    ],
)
def test_lanes_come_from_the_profile_unless_flags_or_variables_say_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: tuple[str, ...],
    env: dict[str, str],
    lanes: tuple[Lane, ...],
    batch: int | None,
) -> None:
    from fairlane.worker.foreman import foreman

    started = []

    async def remember(self: foreman.Foreman) -> None:
        app = Fairlane("memory://", profile=self.settings.profile or "production")
        started.append(self.config.completed(app))

    monkeypatch.setattr(foreman.Foreman, "run", remember)
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(command, ["shop", *flags], env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    [config] = started
    assert (config.lanes, config.batch, config.app) == (lanes, batch, "shop")


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (("--lane", "fast"), "NAME:SLOTS:QUEUE"),
        (("--lane", "a:0"), "slots of lane \"a\" = '0': expected a number from 1 to 10,000"),
        (("--lane", "a:3/core"), 'or "100/process" for each of them'),
        (("--slots", "0"), "expected a number from 1 to 10,000, shared by the processes"),
        (("--slots", "3/core"), 'or "100/process" for each of them'),
        (("--fast-slots", "-1"), 'or "100/process" for each of them'),
        (("--general-slots", "0"), "expected a number from 1 to 10,000"),
        (("--lane", "fast:3:critical:promt"), "for a prompt lane"),
        (("--lane", "fast:3:critical:prompt:prompt"), "for a prompt lane"),
        (("--lane", "a:1", "--slots", "2"), "omit --slots"),
        (("--max-memory", "lots"), "512MB or 2GB"),
        (("--grace", "soon"), "90s, 5m"),
    ],
)
def test_a_flag_that_makes_no_sense_says_what_would(flags: tuple[str, ...], said: str) -> None:
    result = CliRunner().invoke(command, ["shop", *flags])
    assert result.exit_code == 2
    assert said in " ".join(result.output.split())
