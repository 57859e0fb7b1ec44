"""The demo's application, as workers load it (`fairlane worker fairlane.cli.demo:app`), and its traffic.

Some tasks succeed, each of the others fails in a different way. The application's settings come from `fairlane.toml` in
the working directory; a file there says that something is out of order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.client.admin.breakers import Breaker
from fairlane.client.app import Fairlane
from fairlane.client.context import current_job
from fairlane.client.settings.load import load
from fairlane.client.task import Task
from fairlane.core.retry import Retry
from fairlane.core.workflows import WorkflowId
from fairlane.errors import InvalidState, NonRetryable, ScheduleNotFound, Snooze

SOON = Retry(max_attempts=4, delays=(1.0, 2.0, 4.0))
RENDER_STEPS, RENDER_STEP_S = 100, 0.3
CRM = Breaker("crm", threshold=3, cooldown=4.0)
DIGEST = "digest"
CRM_IS_DOWN = "crm-is-down"
"""While a file of this name is in the working directory, the CRM does not answer."""


class Tasks(NamedTuple):
    send: Task[..., Any]
    code: Task[..., Any]
    sync: Task[..., Any]
    charge: Task[..., Any]
    build: Task[..., Any]
    load: Task[..., Any]
    render: Task[..., Any]
    create: Task[..., Any]
    greet: Task[..., Any]


def register(app: Fairlane) -> Tasks:
    @app.task(name="mail.send", retry=SOON)
    async def send(to: int) -> str:
        await asyncio.sleep(0.25)
        return f"sent to user {to}"

    @app.task(name="login.code", queue="critical", retry=SOON)
    async def code(to: int) -> str:
        """Urgent: its queue has a reserved slot in every worker."""
        await asyncio.sleep(0.05)
        return f"code sent to user {to}"

    @app.task(name="crm.sync", retry=SOON, breaker=CRM)
    async def sync(account: int) -> str:
        await asyncio.sleep(0.2)
        if Path(CRM_IS_DOWN).exists():  # noqa: ASYNC240 - a local file, looked up in microseconds
            raise ConnectionError("the CRM did not answer")
        return f"account {account} is in step"

    @app.task(name="billing.charge", retry=SOON)
    def charge(invoice: int) -> str:
        """Dies at first; a reprocessed one finds that the customer has given a new card."""
        new_card = Path(f"invoice-{invoice}")
        if not new_card.exists():
            new_card.touch()
            raise NonRetryable(f"invoice {invoice}: the card has expired")
        return f"invoice {invoice} is paid with the new card"

    @app.task(name="report.build", retry=SOON)
    async def build(month: int) -> str:
        await asyncio.sleep(0.3)
        if current_job().attempts < 2:
            raise TimeoutError(f"the figures of month {month} took too long")
        return f"report {month} is built"

    @app.task(name="files.import", retry=SOON)
    async def load_file(file: int) -> str:
        if current_job().attempt == 1:
            raise Snooze(1.0)
        await asyncio.sleep(0.2)
        return f"file {file} imported"

    @app.task(name="video.render", retry=SOON)
    async def render(video: int) -> str:
        for step in range(RENDER_STEPS):
            current_job().progress(step / RENDER_STEPS)
            await asyncio.sleep(RENDER_STEP_S)
        return f"video {video} rendered"

    @app.task(name="account.create", retry=SOON)
    async def create(user: int) -> int:
        await asyncio.sleep(1.0)
        return user

    @app.task(name="account.greet", retry=SOON)
    async def greet(mails: list[str]) -> str:
        await asyncio.sleep(0.5)
        return f"{len(mails)} mails sent: welcome"

    @app.task(name="mail.digest", retry=SOON)
    async def digest() -> str:
        await asyncio.sleep(0.2)
        return "digest sent"

    app.schedules.declare(DIGEST, cron="* * * * *")(digest.using(tenant="globex"))
    return Tasks(send, code, sync, charge, build, load_file, render, create, greet)


FLOODING, SECOND, THIRD = TENANTS = ("acme", "globex", "initech")
FLOOD = 80
OPERATOR = "dana"


class StoryScene(NamedTuple):
    at_s: float
    every_s: float
    """0: once only."""
    play: Callable[[int], str | None]
    """Gets the number of the repetition; returns a line to show, or None if the effect is visible in the store."""


class Story:
    """Plays the scenes that are due, each again after its period."""

    def __init__(self, app: Fairlane, tasks: Tasks, directory: Path) -> None:
        self._coming = [(scene.at_s, 0, scene) for scene in _scenes(app, tasks, directory)]

    def play(self, elapsed_s: float) -> Iterator[str]:
        coming = []
        for at_s, number, scene in sorted(self._coming, key=lambda next_one: next_one[0]):
            if at_s > elapsed_s:
                coming.append((at_s, number, scene))
                continue
            line = scene.play(number)
            if line is not None:
                yield line
            if scene.every_s:
                coming.append((at_s + scene.every_s, number + 1, scene))
        self._coming = coming


def onboard(app: Fairlane, tasks: Tasks, user: int) -> WorkflowId:
    """Enqueue a workflow: an account, then three mails at the same time, then a greeting once all are sent."""
    flow = app.workflow("onboard", idempotency_key=f"onboard-{user}")
    account = flow.add(tasks.create.using(tenant=THIRD).bind(user=user))
    send = tasks.send.using(tenant=THIRD)
    mails = [flow.add(send.bind(to=account.result), name=f"mail {kind}") for kind in ("welcome", "tips", "offers")]
    flow.add(tasks.greet.using(tenant=THIRD).bind(mails=[mail.result for mail in mails]))
    return flow.enqueue().id


def _scenes(app: Fairlane, tasks: Tasks, directory: Path) -> Iterator[StoryScene]:
    send, outage = tasks.send, directory / CRM_IS_DOWN

    def flood(number: int) -> str:
        app.enqueue_many([send.using(tenant=FLOODING).bind(to=user) for user in range(FLOOD)])
        return f"{FLOODING} enqueues {FLOOD} mails at once"

    def mails(number: int) -> None:
        app.enqueue_many([send.using(tenant=tenant).bind(to=number) for tenant in (SECOND, THIRD)])

    def code(number: int) -> None:
        tasks.code.using(tenant=TENANTS[number % 3], priority="high").enqueue(to=number)

    def sync(number: int) -> None:
        tasks.sync.using(tenant=THIRD).enqueue(account=number)

    def charge(number: int) -> None:
        tasks.charge.using(tenant=SECOND).enqueue(invoice=42 + number)

    def build(number: int) -> None:
        tasks.build.using(tenant=TENANTS[number % 3]).enqueue(month=1 + number % 12)

    def import_file(number: int) -> None:
        tasks.load.using(tenant=THIRD).enqueue(file=number)

    def same_request(number: int) -> str | None:
        welcome = send.using(tenant=THIRD, idempotency_key=f"welcome-{number}")
        welcome.enqueue(to=number)
        if not welcome.enqueue(to=number).duplicate:
            return None
        return f'{THIRD} asks for "welcome-{number}" twice and gets one job: the key is taken'

    def crm_fails(number: int) -> str:
        outage.touch()
        return "the CRM goes down"

    def crm_answers(number: int) -> str:
        outage.unlink(missing_ok=True)
        return "the CRM is up again"

    def render(number: int) -> None:
        tasks.render.using(tenant=SECOND, idempotency_key=f"render-{number}").enqueue(video=number)

    def cancel_render(number: int) -> str:
        # The key is taken: this returns a handle on the existing job.
        handle = tasks.render.using(tenant=SECOND, idempotency_key=f"render-{number}").enqueue(video=number)
        try:
            job = app.jobs.cancel(handle, by=OPERATOR, notes="rendered elsewhere")
        except InvalidState as error:
            return str(error)
        return f"{OPERATOR} cancels {job.type} of {SECOND}: {'asked to stop' if job.cancel_requested else job.status}"

    def onboard_next(number: int) -> str:
        onboard(app, tasks, 2 + number)
        return f"{THIRD} onboards user {2 + number}: a workflow of five jobs that wait for each other"

    def run_digest(number: int) -> str | None:
        try:
            app.schedules.run(DIGEST, by=OPERATOR, notes="does not wait for the full minute")
        except ScheduleNotFound:
            return None  # no worker has declared it yet
        return f"{OPERATOR} runs the schedule {DIGEST} once by hand; it runs every minute"

    yield StoryScene(0.0, 12.0, flood)
    yield StoryScene(0.2, 1.0, mails)
    yield StoryScene(0.4, 0.8, code)
    yield StoryScene(0.6, 0.7, sync)
    yield StoryScene(1.0, 15.0, charge)
    yield StoryScene(1.2, 6.0, build)
    yield StoryScene(1.4, 20.0, import_file)
    yield StoryScene(1.6, 30.0, render)
    yield StoryScene(2.0, 0.0, run_digest)
    yield StoryScene(2.2, 25.0, same_request)
    yield StoryScene(2.6, 20.0, onboard_next)
    yield StoryScene(3.0, 30.0, crm_fails)
    yield StoryScene(5.0, 30.0, cancel_render)
    yield StoryScene(9.0, 30.0, crm_answers)


def __getattr__(name: str) -> Fairlane:
    """`app`, made when it is asked for: the demo itself only registers the tasks."""
    if name != "app":
        raise AttributeError(name)
    app = Fairlane(settings=load())
    register(app)
    globals()["app"] = app
    return app
