"""The tasks of the demonstration: one goes well, the others fail in a way of their own."""

from __future__ import annotations

from typing import Any, NamedTuple

from fairlane.client.app import Fairlane
from fairlane.client.context import current_job
from fairlane.client.task import Task
from fairlane.core.retry import Retry
from fairlane.errors import NonRetryable, Snooze

SOON = Retry(max_attempts=3, delays=(0.6, 1.2))
SNOOZE_S = 1.0
TAKES_S = {"mail.send": 0.22, "crm.sync": 0.35, "billing.charge": 0.3, "report.build": 0.3, "files.import": 0.25}
"""How long an attempt of a type holds its lease."""
RENDER_S = 4.0


class Tasks(NamedTuple):
    send: Task[..., Any]
    sync: Task[..., Any]
    charge: Task[..., Any]
    build: Task[..., Any]
    load: Task[..., Any]
    render: Task[..., Any]


def register(app: Fairlane) -> Tasks:
    @app.task(name="mail.send", retry=SOON)
    def send(to: int) -> str:
        return f"sent to user {to}"

    @app.task(name="crm.sync", retry=SOON)
    def sync(account: int) -> str:
        if current_job().attempts == 0:
            raise ConnectionError("the CRM did not answer")
        return f"account {account} is in step"

    @app.task(name="billing.charge", retry=SOON)
    def charge(invoice: int) -> None:
        raise NonRetryable(f"invoice {invoice}: the card has expired")

    @app.task(name="report.build", retry=SOON)
    def build(month: str) -> None:
        raise TimeoutError(f"the figures for {month} took too long")

    @app.task(name="files.import", retry=SOON)
    def load(file: int) -> str:
        if current_job().attempt == 1:
            raise Snooze(SNOOZE_S)
        return f"file {file} imported"

    @app.task(name="video.render", retry=SOON)
    def render(video: int) -> str:
        return f"video {video} rendered"

    return Tasks(send, sync, charge, build, load, render)
