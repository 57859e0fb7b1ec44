"""The demo's application, as workers and the dashboard load it: `fairlane worker fairlane.cli.demo.shop:app`.

Some tasks succeed, each of the others fails in a different way. Its settings come from `fairlane.toml` in the working
directory, and so do the files that say what is out of order.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.client.admin.breakers import Breaker
from fairlane.client.app import Fairlane
from fairlane.client.context import current_job
from fairlane.client.settings.load import load
from fairlane.client.task import Task
from fairlane.core.retry import Retry
from fairlane.errors import NonRetryable, Snooze

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

    @app.task(name="mail.digest", retry=SOON)
    async def digest() -> str:
        await asyncio.sleep(0.2)
        return "digest sent"

    app.schedules.declare(DIGEST, cron="* * * * *")(digest.using(tenant="globex"))
    return Tasks(send, code, sync, charge, build, load_file, render)


def __getattr__(name: str) -> Fairlane:
    """`app`, made when it is asked for: the demo itself only registers the tasks."""
    if name != "app":
        raise AttributeError(name)
    app = Fairlane(settings=load())
    register(app)
    globals()["app"] = app
    return app
