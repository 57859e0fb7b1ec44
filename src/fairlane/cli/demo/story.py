"""The scenes: who enqueues what, and when. One tenant floods the queue first, then the others enqueue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import NamedTuple

from fairlane.cli.demo.tasks import DIGEST, Tasks, outage_of
from fairlane.client.app import Fairlane
from fairlane.core.ops import DeclareSchedules, Planned
from fairlane.core.schedules import Cron
from fairlane.errors import InvalidState

FLOODING, SECOND, THIRD = TENANTS = ("acme", "globex", "initech")
DIGEST_FOR = SECOND
FLOOD = 60
ACCOUNTS = 5
OPERATOR = "dana"
KEY = "welcome-7"
CODES = ((0.9, SECOND), (1.5, THIRD), (2.1, SECOND), (2.7, THIRD))


class Scene(NamedTuple):
    at_s: float
    play: Callable[[], str | None]
    """Returns a line to show, or None if the effect is visible in the store."""
    is_time: Callable[[], bool] = lambda: True
    """A further condition for the scene to begin."""


def declare_missed(app: Fairlane) -> None:
    """Set the digest's timetable as if no worker had run at its last nominal time.

    The demo does not last until six in the morning. The rest is real: a worker finds it due and catches up.
    """
    spec, now = app.schedules.declared[DIGEST], app.statistics.health().now
    [missed] = Cron(spec.cron, spec.timezone).latest(1, now - timedelta(days=2), now)
    app.runtime.store.run(DeclareSchedules(schedules=(Planned(spec=spec, next_at=missed),)))


def scenes(app: Fairlane, tasks: Tasks) -> list[Scene]:
    """The scenes in the order of their times."""
    return sorted(_scenes(app, tasks), key=lambda scene: scene.at_s)


def _scenes(app: Fairlane, tasks: Tasks) -> Iterator[Scene]:
    render = tasks.render.using(tenant=SECOND, idempotency_key="render-1")
    outage = outage_of(app)

    def flood() -> None:
        send, build = tasks.send.using(tenant=FLOODING), tasks.build.using(tenant=FLOODING)
        app.enqueue_many([build.bind(month="May"), *(send.bind(to=user) for user in range(FLOOD))])

    def second_tenant() -> None:
        send, charge = tasks.send.using(tenant=SECOND), tasks.charge.using(tenant=SECOND)
        app.enqueue_many([*(send.bind(to=user) for user in range(5)), charge.bind(invoice=42)])
        render.enqueue(video=1)

    def third_tenant() -> str:
        outage.touch()
        sync, load = tasks.sync.using(tenant=THIRD), tasks.load.using(tenant=THIRD)
        app.enqueue_many([*(sync.bind(account=number) for number in range(ACCOUNTS)), load.bind(file=9)])
        tasks.send.using(tenant=THIRD, idempotency_key=KEY).enqueue(to=7)
        return "the CRM goes down"

    def same_request_again() -> str | None:
        handle = tasks.send.using(tenant=THIRD, idempotency_key=KEY).enqueue(to=7)
        if not handle.duplicate:
            return None
        return f'{THIRD} asks for "{KEY}" again and gets the same job: the key is taken'

    def breaker_has_opened() -> bool:
        return any(breaker.state == "open" for breaker in app.breakers.list())

    def crm_answers() -> str:
        outage.unlink(missing_ok=True)
        return "the CRM is up again"

    def cancel_rendering() -> str | None:
        handle = render.enqueue(video=1)  # The key is taken: this returns a handle on the existing job.
        try:
            job = app.jobs.cancel(handle, by=OPERATOR, notes="rendered elsewhere")
        except InvalidState as error:
            return str(error)
        return f"{OPERATOR} cancels {job.type} of {SECOND}: {'asked to stop' if job.cancel_requested else job.status}"

    def code(tenant: str, user: int) -> Callable[[], None]:
        def play() -> None:
            tasks.code.using(tenant=tenant).enqueue(to=user)

        return play

    yield Scene(0.0, flood)
    yield Scene(0.3, second_tenant)
    yield Scene(0.6, third_tenant)
    yield Scene(1.2, same_request_again)
    yield Scene(2.0, crm_answers, breaker_has_opened)
    yield Scene(2.4, cancel_rendering)
    yield from (Scene(at_s, code(tenant, user)) for user, (at_s, tenant) in enumerate(CODES))
