"""The demo's tasks: some succeed, each of the others fails in a different way."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from fairlane.client.admin.breakers import Breaker
from fairlane.client.app import Fairlane
from fairlane.client.context import current_job
from fairlane.client.task import Task
from fairlane.core.retry import Retry
from fairlane.errors import NonRetryable, Snooze

SOON = Retry(max_attempts=3, delays=(0.6, 1.2))
SNOOZE_S = 1.0
RENDER_STEPS, RENDER_STEP_S = 100, 0.3
CRM = Breaker("crm", threshold=3, cooldown=2.0)
DIGEST = "digest"
CODE = "login.code"
"""Urgent: its queue has a reserved slot in every worker."""


class Tasks(NamedTuple):
    send: Task[..., Any]
    code: Task[..., Any]
    sync: Task[..., Any]
    charge: Task[..., Any]
    build: Task[..., Any]
    load: Task[..., Any]
    render: Task[..., Any]


def outage_of(app: Fairlane) -> Path:
    """While this file exists, the CRM does not answer."""
    return Path(app.runtime.settings.url.removeprefix("sqlite:///")).with_name("crm-is-down")


def register(app: Fairlane, *, digest_for: str) -> Tasks:
    outage = outage_of(app)

    @app.task(name="mail.send", retry=SOON)
    async def send(to: int) -> str:
        await asyncio.sleep(0.25)
        return f"sent to user {to}"

    @app.task(name=CODE, queue="critical", retry=SOON)
    async def code(to: int) -> str:
        await asyncio.sleep(0.05)
        return f"code sent to user {to}"

    @app.task(name="crm.sync", retry=SOON, breaker=CRM)
    async def sync(account: int) -> str:
        await asyncio.sleep(0.3)
        if outage.exists():
            raise ConnectionError("the CRM did not answer")
        return f"account {account} is in step"

    @app.task(name="billing.charge", retry=SOON)
    def charge(invoice: int) -> None:
        raise NonRetryable(f"invoice {invoice}: the card has expired")

    @app.task(name="report.build", retry=SOON)
    async def build(month: str) -> None:
        await asyncio.sleep(0.3)
        raise TimeoutError(f"the figures for {month} took too long")

    @app.task(name="files.import", retry=SOON)
    async def load(file: int) -> str:
        if current_job().attempt == 1:
            raise Snooze(SNOOZE_S)
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

    app.schedules.declare(DIGEST, cron="0 6 * * *")(digest.using(tenant=digest_for))
    return Tasks(send, code, sync, charge, build, load, render)
