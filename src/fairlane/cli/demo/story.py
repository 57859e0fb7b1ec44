"""Who enqueues what, and when. One tenant floods the queue first; the others come after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from fairlane.cli.demo.tasks import Tasks
from fairlane.client.app import Fairlane
from fairlane.errors import NotAllowed

FLOODING, SECOND, THIRD = TENANTS = ("acme", "globex", "initech")
FLOOD = 40
OPERATOR = "dana"
KEY = "welcome-7"


class Scene(NamedTuple):
    at_s: float
    play: Callable[[], str | None]
    """Returns a line for what only the answer tells; the rest is seen in the store."""


def scenes(app: Fairlane, tasks: Tasks) -> Iterator[Scene]:
    """In the order of their time."""
    render = tasks.render.using(tenant=SECOND, idempotency_key="render-1")

    def flood() -> None:
        send, build = tasks.send.using(tenant=FLOODING), tasks.build.using(tenant=FLOODING)
        app.enqueue_many([build.bind(month="May"), *(send.bind(to=user) for user in range(FLOOD))])

    def second_tenant() -> None:
        send, charge = tasks.send.using(tenant=SECOND), tasks.charge.using(tenant=SECOND)
        app.enqueue_many([*(send.bind(to=user) for user in range(5)), charge.bind(invoice=42)])
        render.enqueue(video=1)

    def third_tenant() -> None:
        sync, load = tasks.sync.using(tenant=THIRD), tasks.load.using(tenant=THIRD)
        app.enqueue_many([*(sync.bind(account=number) for number in range(3)), load.bind(file=9)])
        tasks.send.using(tenant=THIRD, idempotency_key=KEY).enqueue(to=7)

    def same_request_again() -> str | None:
        handle = tasks.send.using(tenant=THIRD, idempotency_key=KEY).enqueue(to=7)
        if not handle.duplicate:
            return None
        return f'the key "{KEY}" is taken: {THIRD} gets job {handle.id} again, nothing new is enqueued'

    def cancel_rendering() -> str | None:
        handle = render.enqueue(video=1)  # its key is taken: a handle on the job that is there
        try:
            job = app.cancel(handle, by=OPERATOR, notes="rendered elsewhere")
        except NotAllowed as error:
            return str(error)
        return f"{OPERATOR} cancels {job.type} of {SECOND}: {'asked to stop' if job.cancel_requested else job.status}"

    yield Scene(0.0, flood)
    yield Scene(0.3, second_tenant)
    yield Scene(0.6, third_tenant)
    yield Scene(1.2, same_request_again)
    yield Scene(2.4, cancel_rendering)
