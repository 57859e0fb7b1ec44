"""Fairlane's own tasks: mail and webhooks are jobs like any other, so what cannot be delivered now is tried again.

A job carries the message and the name of its sink. Addresses, passwords and secrets stay in the settings of the worker that runs it.
"""

from __future__ import annotations

import msgspec

from fairlane.alerts.messages import Message, reaches
from fairlane.client.app import Fairlane
from fairlane.client.context import job_in_force
from fairlane.client.enqueue.options import EnqueueOptions
from fairlane.client.task import TaskOptions
from fairlane.core.ids import SYSTEM_TENANT
from fairlane.core.retry import Retry
from fairlane.errors import NonRetryable

EMAIL = "fairlane.email"
WEBHOOK = "fairlane.webhook"
BUILT_IN = frozenset({EMAIL, WEBHOOK})
TIMEOUT_S = 30.0
RETRY = Retry(max_attempts=10, base_s=5.0, factor=3.0, cap_s=3_600.0)


def register_sinks(app: Fairlane) -> None:
    """Register the tasks that the settings' sinks need; raises `MissingExtra` if one could not send. Again does nothing."""
    alerts = app.runtime.settings.alerts
    alerts.require_extra()
    if alerts.email is not None and EMAIL not in app.tasks:

        async def email(message: Message) -> None:
            await send_email(app, message, _job_id())

        app.task(**_task_options(app, EMAIL))(email)
    if alerts.webhooks and WEBHOOK not in app.tasks:

        async def webhook(sink: str, message: Message) -> None:
            await send_webhook(app, sink, message, _job_id())

        app.task(**_task_options(app, WEBHOOK))(webhook)


async def send_email(app: Fairlane, message: Message, id: str) -> None:
    from fairlane.alerts.mail import send_mail

    if (settings := app.runtime.settings.alerts.email) is None:
        raise NonRetryable("nobody gets mail any more: alerts.email is not set here")
    await send_mail(settings, message, id, app.runtime.clock.now())


async def send_webhook(app: Fairlane, sink: str, message: Message, id: str) -> None:
    from fairlane.alerts.webhook import post

    settings = app.runtime.settings.alerts.webhooks.get(sink)
    if settings is None:
        raise NonRetryable(f'there is no webhook "{sink}" any more in alerts.webhooks here')
    await post(settings, id, msgspec.json.encode(message), app.runtime.clock.now())


async def enqueue(app: Fairlane, message: Message) -> None:
    """One job for every sink that wants to hear of it. The same message again is the same job."""
    alerts = app.runtime.settings.alerts
    if alerts.email is not None and reaches(message.severity, alerts.email.severity):
        await app.tasks[EMAIL].using(**_options(app, message.key)).aenqueue(message=message)
    for name, webhook in alerts.webhooks.items():
        if reaches(message.severity, webhook.severity):
            task = app.tasks[WEBHOOK].using(**_options(app, f"{message.key}-{name}"))
            await task.aenqueue(sink=name, message=message)


def _options(app: Fairlane, key: str) -> EnqueueOptions:
    return EnqueueOptions(
        tenant=SYSTEM_TENANT, correlation_id=app.runtime.new_job_id(), created_by="fairlane", idempotency_key=key
    )


def _job_id() -> str:
    job = job_in_force.get()
    assert job is not None
    return str(job.id)


def _task_options(app: Fairlane, name: str) -> TaskOptions:
    options = TaskOptions(name=name, timeout=TIMEOUT_S, retry=RETRY, sensitive="allow")
    if (category := _category(app)) is not None:
        options["category"] = category
    return options


def _category(app: Fairlane) -> str | None:
    """Some category there is: an application may have renamed them all, and asks for one on every job."""
    settings = app.runtime.settings
    if "notifications" in settings.categories:
        return "notifications"
    return settings.default_category or next(iter(settings.categories), None)
