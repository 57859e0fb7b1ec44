"""Secrets in what tasks return and people write: nobody who looks gets to see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from fairlane import Fairlane, step
from fairlane.core.payload.redaction import value_without_secrets
from fairlane.testing import run_due
from tests.api.house import EVERY_ROLE, ShopHouse, shop

SECRET = "hunter2hunter2"
RETURNED = {
    "api_key": SECRET,
    "user": {"id": 7, "Password": SECRET, "name": "ada"},
    "tried": [f"postgresql://shop:{SECRET}@db/shop", "nothing", 3, None],
    "said": f"authorization: Bearer {SECRET}",
    "token_count": 3,
}
SHOWN = {
    "api_key": "[redacted]",
    "user": {"id": 7, "Password": "[redacted]", "name": "ada"},
    "tried": ["[redacted]", "nothing", 3, None],
    "said": "authorization: [redacted]",
    "token_count": 3,
}
LONG = "day,orders\n" * 5_000


@pytest.fixture
def returning() -> Iterator[Callable[..., tuple[ShopHouse, UUID, Any]]]:
    """A house, a job that has returned something, and what its handle says."""
    houses: list[ShopHouse] = []

    def build(returned: Any, *, task: str | None = None, **settings: Any) -> tuple[ShopHouse, UUID, Any]:
        house = ShopHouse(shop(**settings))
        houses.append(house)
        options: Any = {} if task is None else {"sensitive": task}

        @house.app.task(name="keys.make", **options)
        def make() -> Any:
            return returned

        handle = make.using(tenant="acme").enqueue()
        run_due(house.app)
        return house, handle.id, handle.result(0)

    yield build
    for house in houses:
        house.close()


def result_shown(house: ShopHouse, id: UUID) -> list[Any]:
    token = house.token(EVERY_ROLE)
    pages = [house.call("GET", f"/api/jobs/{below}{id}/", token).json() for below in ("", "admin/queue/")]
    return [page["job"]["result"] for page in pages]


@pytest.mark.requirement("W3")
@pytest.mark.parametrize(
    ("returned", "shown"),
    [
        (RETURNED, SHOWN),
        ([RETURNED], [SHOWN]),
        (f"password={SECRET}", "password=[redacted]"),
        (f"{LONG} password={SECRET} {LONG}", f"{LONG} password=[redacted] {LONG}"),
        (7, 7),
        ("fine", "fine"),
    ],
    ids=["an object", "a list", "a text", "a long text", "a number", "nothing to hide"],
)
def test_secrets_in_results_are_not_shown_but_are_there_for_who_enqueued(
    returning: Callable[..., Any], returned: Any, shown: Any
) -> None:
    house, job, result = returning(returned)
    assert result == returned
    assert result_shown(house, job) == [shown, shown]


def test_who_allows_sensitive_content_sees_it_in_results_as_in_payloads(returning: Callable[..., Any]) -> None:
    house, job, _ = returning(RETURNED, sensitive="allow")
    assert result_shown(house, job) == [RETURNED] * 2
    house, job, _ = returning(RETURNED, task="allow")
    assert result_shown(house, job) == [RETURNED] * 2
    house, job, _ = returning(RETURNED, task="redact", sensitive="allow")
    assert result_shown(house, job) == [SHOWN] * 2


def letter(app: Fairlane) -> Any:
    return app.dead_letters.list(limit=1).dead_letters[0]


ACTS: dict[str, Callable[[ShopHouse, str], Any]] = {
    "cancel": lambda house, notes: house.app.jobs.cancel(house.own.ready, notes=notes),
    "cancel a handle": lambda house, notes: (
        house.app.tasks["mail.send"].using(tenant="acme").enqueue(user_id=1).cancel(notes=notes)
    ),
    "acancel": lambda house, notes: asyncio.run(house.app.jobs.acancel(house.own.ready, notes=notes)),
    "bury": lambda house, notes: house.app.jobs.bury(house.own.ready, "why", notes=notes),
    "reset": lambda house, notes: house.app.jobs.reset(house.own.running, notes=notes),
    "discard": lambda house, notes: house.app.dead_letters.discard(letter(house.app), notes=notes),
    "reprocess": lambda house, notes: house.app.dead_letters.reprocess(letter(house.app), notes=notes),
    "pause": lambda house, notes: house.app.queues.pause("bulk", notes=notes),
    "force_breaker": lambda house, notes: house.app.breakers.open("stripe", notes=notes),
    "set_tenant": lambda house, notes: house.app.tenants.set("acme", weight=3.0, by="eve", notes=notes),
    "set_limit": lambda house, notes: house.app.limits.set(tenant="acme", waiting=7, by="eve", notes=notes),
    "schedule_pause": lambda house, notes: house.app.schedules.pause(house.own.schedule, by="eve", notes=notes),
}


@pytest.mark.requirement("W3")
@pytest.mark.parametrize("act", ACTS)
def test_secrets_in_the_notes_of_an_act_in_code_are_kept_nowhere(house: ShopHouse, act: str) -> None:
    ACTS[act](house, f"they sent me password={SECRET}, see mail")
    assert house.app.audit.list().records[0].notes == "they sent me password=[redacted], see mail"
    assert SECRET.encode() not in house.facts()


def test_what_is_nested_too_deep_to_be_looked_at_is_not_shown() -> None:
    deep: Any = {"password": SECRET}
    for _ in range(150):
        deep = [deep]
    assert SECRET not in repr(value_without_secrets(deep))


@pytest.mark.requirement("W3")
@pytest.mark.parametrize(("policy", "shown"), [("redact", SHOWN), ("allow", RETURNED)])
def test_what_a_durable_step_returned_is_shown_like_a_result(policy: Any, shown: Any) -> None:
    house = ShopHouse(shop())

    @house.app.task(name="keys.step", sensitive=policy)
    def stepwise() -> None:
        assert step("make", lambda: RETURNED) == RETURNED

    handle = stepwise.using(tenant="acme").enqueue()
    run_due(house.app)
    assert handle.status() == "completed"
    [kept] = house.call("GET", f"/api/jobs/{handle.id}/", house.token(EVERY_ROLE)).json()["steps"]
    house.close()
    assert json.loads(kept["result"]) == shown
