"""What a worker's log says of jobs: failures with their traceback, starts and ends, and the job on other log lines."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from fairlane import Fairlane, JobLogFilter, Retry, StoreUnavailable, current_job
from fairlane.client.logs import LOG_FORMAT, GuardedLogger, JobLogFormatter, OutageLog, job_on_log_lines
from fairlane.client.settings.model import Settings
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing import run_due
from fairlane.worker.attempts import JobLog
from tests.worker.conftest import Works, eventually

log = logging.getLogger("shop.orders")


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What a worker whose application configures no logging writes."""
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(JobLogFormatter(LOG_FORMAT))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield text
    root.removeHandler(handler)
    root.setLevel(level)


def of_jobs(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if record.name == "fairlane.jobs"]


def test_a_failure_is_logged_with_its_traceback_and_the_exception_itself(
    works: Works, caplog: pytest.LogCaptureFixture, written: io.StringIO
) -> None:
    @works.app.task(name="charge", retry=Retry(max_attempts=1))
    def charge(order: int) -> None:
        raise LookupError(f"no order {order}, password=hunter2-canary")

    handle = charge.using(tenant="acme").enqueue(7)
    works.drain()
    [record] = [record for record in of_jobs(caplog) if record.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], LookupError)
    assert record.getMessage().startswith(f"job {handle.id} (charge) of acme failed at attempt 1 after 0.0")
    assert vars(record)["tenant"] == "acme"
    text = written.getvalue()
    assert "hunter2" not in text
    assert "\n      … 3 frames of Fairlane\n" in text
    assert f'\n      File "{__file__}", line ' in text
    assert "\n        raise LookupError(" in text
    assert "runner.py" not in text


def test_an_isolated_failure_has_the_traceback_of_its_own_process(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text(
        "import logging\n"
        "from fairlane import Fairlane, Retry\n"
        "app = Fairlane('sqlite:///jobs.db')\n"
        "@app.task(isolated=True, retry=Retry(max_attempts=1))\n"
        "def sad() -> None:\n"
        "    logging.getLogger('alone').info('about to fail')\n"
        "    raise ValueError('alone and sad')\n"
    )
    run = [sys.executable, "-c", "import alone; print(alone.sad.using(tenant='acme').enqueue().id)"]
    job_id = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()
    command = [sys.executable, "-m", "fairlane", "worker", "alone:app", "-p", "1", "--drain"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert f"about to fail [job_id={job_id} tenant=acme]" in ran.stderr
    assert "\n        raise ValueError('alone and sad')\n" in ran.stderr
    for said in (
        "Fairlane 0.",
        "profile production, application alone:app",
        "store: sqlite, sqlite:///jobs.db (argument)",
        ": 8 slots in 1 process\n",
        "fast with 3 slots for critical; general with 5 slots for all queues",
        "1 task: alone.sad",
        'tenants: jobs without one belong to "system"',
    ):
        assert said in ran.stderr
    assert "of its slots have ended" not in ran.stderr


def test_a_timeout_shows_where_the_attempt_was(works: Works, written: io.StringIO) -> None:
    import asyncio

    @works.app.task(name="sleepy", timeout=0.05, retry=Retry(max_attempts=1))
    async def sleepy() -> None:
        await asyncio.sleep(30)

    handle = sleepy.enqueue()
    works.drain()
    assert "await asyncio.sleep(30)" in written.getvalue()
    detail = works.app.jobs.detail(handle.id)
    assert detail is not None
    assert "await asyncio.sleep(30)" in (detail.attempts[-1].traceback or "")


@pytest.mark.parametrize(("level", "said"), [("info", True), ("debug", False), ("off", False)])
def test_starts_and_ends_are_logged_at_the_level_of_the_setting(
    level: str, said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    app = Fairlane(store=MemoryStore(), log_jobs=level)  # type: ignore[arg-type]

    @app.task(name="work")
    def work() -> None:
        return

    with app, app.running(drain=True):
        handle = work.using(tenant="acme").enqueue()
    lines = [record.getMessage() for record in of_jobs(caplog)]
    if not said:
        assert lines == []
        return
    started, ended = lines
    assert started == f"job {handle.id} (work) of acme starts, attempt 1, in queue default"
    assert ended.startswith(f"job {handle.id} (work) of acme, attempt 1, completed after 0.")
    assert {vars(record)["job_id"] for record in of_jobs(caplog)} == {str(handle.id)}


def test_who_would_log_nothing_pays_nothing_for_it(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert JobLog.of("off") is None
    assert JobLog.of("debug") is None
    assert JobLog.of("info") is not None
    assert (Settings().log_jobs, Settings(profile="development").log_jobs) == ("debug", "info")


def test_the_applications_own_lines_name_the_job_they_are_of(
    works: Works, caplog: pytest.LogCaptureFixture, written: io.StringIO
) -> None:
    @works.app.task(name="plain")
    def plain() -> None:
        log.info("from a thread", extra={"tenant": "what the line says"})

    @works.app.task(name="coroutine")
    async def coroutine() -> None:
        log.info("from the loop")

    plain.using(tenant="acme", correlation_id="order-7").enqueue()
    other = coroutine.using(tenant="globex").enqueue()
    works.drain()
    log.info("from nowhere")
    thread, loop = (record for record in caplog.records if record.name == log.name and "nowhere" not in record.msg)
    if thread.msg == "from the loop":
        thread, loop = loop, thread
    assert vars(thread)["correlation_id"] == "order-7"
    assert vars(thread)["tenant"] == "what the line says"
    assert (vars(loop)["job_id"], vars(loop)["tenant"]) == (str(other.id), "globex")
    assert (vars(loop)["task"], vars(loop)["attempt"]) == ("coroutine", 1)
    text = written.getvalue()
    assert f"from the loop [job_id={other.id} tenant=globex]\n" in text
    assert "correlation_id=order-7]\n" in text
    assert "from nowhere\n" in text
    assert not any(isinstance(one, JobLogFilter) for handler in logging.getLogger().handlers for one in handler.filters)


def test_without_the_setting_lines_stay_as_they_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    app = Fairlane(store=MemoryStore(), log_context=False)

    @app.task(name="work")
    def work() -> None:
        log.info("at work")
        structlog.contextvars.bind_contextvars(mine=1)

    with app, app.running(drain=True):
        work.enqueue()
    [record] = [record for record in caplog.records if record.name == log.name]
    assert not hasattr(record, "job_id")


def test_a_format_may_name_the_job_in_any_process() -> None:
    text = io.StringIO()
    handler = logging.StreamHandler(text)
    handler.setFormatter(logging.Formatter("%(job_id)s|%(tenant)s|%(message)s"))
    handler.addFilter(JobLogFilter())
    mine = logging.getLogger("shop.web")
    mine.addHandler(handler)
    try:
        with job_on_log_lines(is_wanted=True):
            assert sum(isinstance(one, JobLogFilter) for one in handler.filters) == 1
            mine.warning("hello")
        assert sum(isinstance(one, JobLogFilter) for one in handler.filters) == 1
    finally:
        mine.removeHandler(handler)
    assert text.getvalue() == "||hello\n"


@pytest.mark.parametrize("directly", [False, True])
def test_structlog_has_the_job_in_its_context(works: Works, directly: bool) -> None:
    seen: list[dict[str, object]] = []

    @works.app.task(name="plain")
    def plain() -> str:
        seen.append(structlog.contextvars.get_contextvars())
        return str(current_job().id)

    @works.app.task(name="coroutine")
    async def coroutine() -> str:
        seen.append(structlog.contextvars.get_contextvars())
        return str(current_job().id)

    ids = {task.using(tenant="acme").enqueue().id for task in (plain, coroutine)}
    if directly:
        run_due(works.app)
    else:
        works.drain()
    assert {found["job_id"] for found in seen} == {str(job_id) for job_id in ids}
    assert {found["tenant"] for found in seen} == {"acme"}
    assert {found["correlation_id"] for found in seen} == {str(job_id) for job_id in ids}
    assert structlog.contextvars.get_contextvars() == {}


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("directly", [False, True])
def test_lines_of_a_batch_call_have_what_its_jobs_have_in_common(
    works: Works, written: io.StringIO, directly: bool, is_async: bool
) -> None:
    seen: list[dict[str, object]] = []
    hooked: list[object] = []
    records: list[logging.LogRecord] = []

    def look() -> None:
        seen.append(structlog.contextvars.get_contextvars())
        log.info("a line")

    def plain(numbers: list[int]) -> None:
        look()

    async def coroutine(numbers: list[int]) -> None:
        look()

    options: Any = {"name": "many", "batch": 2, "within": 5, "queue": "bulk"}
    many: Any = works.app.task(**options)(coroutine if is_async else plain)
    many.after_job(lambda job, _: hooked.append(structlog.contextvars.get_contextvars()["job_id"]))
    handles = [many.using(tenant="acme").enqueue(number) for number in range(2)]
    [handler] = [each for each in logging.getLogger().handlers if getattr(each, "stream", None) is written]
    handler.addFilter(keeper := JobLogFilter())
    handler.addFilter(lambda record: records.append(record) or True)
    try:
        run_due(works.app) if directly else works.drain()
    finally:
        handler.removeFilter(keeper)
    [found] = seen
    common = {"job_id": "", "task": "many", "tenant": "acme", "queue": "bulk", "attempt": "", "correlation_id": ""}
    assert found == common
    [record] = [record for record in records if record.name == log.name]
    assert {name: vars(record)[name] for name in common} == common
    assert hooked == [str(handle.id) for handle in handles]
    assert structlog.contextvars.get_contextvars() == {}


def test_a_handler_that_fails_on_an_exception_breaks_no_worker(caplog: pytest.LogCaptureFixture) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    class Careless(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise SystemExit(str(record.exc_info and record.exc_info[1]))

    guarded = GuardedLogger("fairlane.careless")
    handler = Careless()
    guarded.logger.addHandler(handler)
    try:
        guarded.failure(logging.ERROR, "it %s", "failed", error=Hostile(), traceback="Hostile: ?", extra={"a": 1})
    finally:
        guarded.logger.removeHandler(handler)


def test_no_line_of_a_logged_traceback_looks_like_a_line_of_the_log() -> None:
    record = SimpleNamespace(text="")

    class Keeping(logging.Handler):
        def emit(self, kept: logging.LogRecord) -> None:
            record.text = self.format(kept)

    guarded, handler = GuardedLogger("fairlane.forged"), Keeping()
    guarded.logger.addHandler(handler)
    try:
        forged = "ValueError: x\n2026-01-01 ERROR root: owned\x1b[2J"
        guarded.failure(logging.ERROR, "job", error=ValueError(forged), traceback=forged, extra={})
    finally:
        guarded.logger.removeHandler(handler)
    first, *rest = record.text.split("\n")
    assert first == "job"
    assert all(line.startswith("    ") for line in rest)
    assert "\x1b" not in record.text


def test_an_outage_is_logged_when_it_begins_once_a_minute_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 0.0
    outage = OutageLog(GuardedLogger("fairlane.outage"), lambda: now_s)
    outage.answered()
    for step in range(1_300):  # ten a second, for 130 s, by whoever asks the store
        now_s = step / 10
        outage.failed("connection refused")
    outage.answered()
    outage.answered()
    outage.failed("again")
    assert [record.getMessage() for record in caplog.records] == [
        "the store does not answer; it is tried until it does: connection refused",
        "the store has not answered for 60 s: connection refused",
        "the store has not answered for 120 s: connection refused",
        "the store answers again, after 129.9 s",
        "the store does not answer; it is tried until it does: again",
    ]


def test_a_worker_logs_an_outage_once_whoever_meets_it(
    works: Works, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    store = works.app.runtime.store
    arun, is_away = store.arun, True

    async def away(op: Any, *, on: object | None = None) -> Any:
        if is_away:
            raise StoreUnavailable("memory", "away")
        return await arun(op, on=on)

    async def story() -> None:
        nonlocal is_away
        monkeypatch.setattr(store, "arun", away)
        engine = works.engine()
        running = asyncio.create_task(engine.run())
        await asyncio.sleep(1.5)
        is_away = False
        await eventually(lambda: "answers again" in caplog.text)
        engine.stop()
        await running

    asyncio.run(story())
    lines = [record.getMessage() for record in caplog.records if "store" in record.getMessage()]
    assert [line.partition(",")[0].partition(";")[0] for line in lines] == [
        "the store does not answer",
        "the store answers again",
    ]
