"""Assertions about enqueued jobs: what they match, and what they say when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from unittest.mock import ANY
from uuid import UUID

import pytest

from fairlane import SYSTEM, Fairlane, InvalidOption
from fairlane.testing import assert_enqueued, assert_nothing_enqueued, enqueued
from tests.testing.conftest import Shop

AT = datetime(2050, 1, 1, tzinfo=UTC)
ID = UUID("00000000-0000-7000-8000-000000000001")


@pytest.fixture(autouse=True)
def under_test(shop: Shop) -> Iterator[None]:
    with shop.app.testing():
        yield


def test_arguments_and_options_are_matched(shop: Shop) -> None:
    using = shop.welcome.using(
        tenant=123, priority="high", delay=30, idempotency_key="k", headers={"a": "1", "b": "2"}, correlation_id=ID
    )
    using.enqueue(7)
    found = assert_enqueued(
        shop.welcome,
        user_id=7,
        greeting="hello",
        tenant=123,
        queue="mail",
        priority="high",
        delay=timedelta(seconds=30),
        idempotency_key="k",
        headers={"a": "1"},
        correlation_id=ID,
    )
    assert (found.args, found.tenant, found.delay, found.task) == ({"user_id": 7}, "123", 30.0, "shop.welcome")
    assert_enqueued(using, user_id=ANY)
    assert_enqueued(shop.welcome.using(tenant="123"))
    for expected in (
        {"user_id": 8},
        {"tenant": 124},
        {"priority": "low"},
        {"delay": 31},
        {"headers": {"a": "2"}},
        {"queue": "default"},
        {"greeting": "hi"},
    ):
        assert enqueued(shop.welcome, **expected) == []
        assert_nothing_enqueued(shop.welcome, **expected)
    shop.welcome.using(key="user:7", ordered=True, timeout=5).enqueue(9)
    assert "key=user:7" in str(assert_enqueued(shop.welcome.using(key="user:7", ordered=True, timeout=5), user_id=9))
    assert assert_enqueued(shop.welcome, key="user:7").args == {"user_id": 9}
    assert [each.args["user_id"] for each in enqueued(shop.welcome.using(key=None))] == [7]
    assert_nothing_enqueued(shop.welcome, key="user:8")
    shop.welcome.using(run_at=AT).enqueue(8)
    assert_enqueued(shop.welcome, run_at=AT, user_id=8)
    assert [each.args["user_id"] for each in enqueued()] == [7, 9, 8]


def test_values_are_compared_as_json_carries_them(shop: Shop) -> None:
    @shop.app.task(name="book")
    def book(on: date, ids: list[UUID], tenant: str, pair: tuple[int, int] = (1, 2)) -> None: ...

    book.enqueue(date(2026, 5, 1), [ID], "a name, not an option")
    assert_enqueued(book, on=date(2026, 5, 1), ids=[ID], pair=(1, 2))
    assert_enqueued(book, on="2026-05-01")
    assert_enqueued(book, tenant="a name, not an option")
    assert_enqueued(book.using(tenant=SYSTEM))
    assert_nothing_enqueued(book, on=date(2026, 5, 2))
    assert_nothing_enqueued(book, on=object())


def test_a_failure_shows_what_was_enqueued_instead(shop: Shop) -> None:
    with pytest.raises(AssertionError, match=r"^no job of shop\.welcome with user_id=7 was enqueued; nothing was"):
        assert_enqueued(shop.welcome, user_id=7)
    shop.welcome.using(tenant="acme", delay=5).enqueue(8)
    shop.sign_up.enqueue(1)
    with pytest.raises(AssertionError) as failed:
        assert_enqueued(shop.welcome, user_id=7, tenant="globex")
    assert str(failed.value).splitlines() == [
        "no job of shop.welcome with user_id=7, tenant='globex' was enqueued. Enqueued were:",
        "  shop.welcome(user_id=8)  tenant=acme queue=mail priority=5 delay=5 (pending)",
        "      user_id is 8; tenant is 'acme'",
        "  shop.sign_up(user_id=1)  tenant=system queue=default priority=5 (pending)",
    ]
    with pytest.raises(AssertionError) as failed:
        assert_nothing_enqueued()
    assert str(failed.value).startswith("expected that no job was enqueued, but there are:\n  shop.welcome(user_id=8)")
    for number in range(30):
        shop.welcome.enqueue(number)
    with pytest.raises(AssertionError, match="and 12 more"):
        assert_nothing_enqueued()


def test_a_mistyped_expectation_is_refused(shop: Shop) -> None:
    with pytest.raises(InvalidOption, match='"user_id"'):
        assert_enqueued(shop.welcome, userid=7)
    with pytest.raises(InvalidOption, match='"tenant"'):
        enqueued(tennant="acme")


def test_what_was_enqueued_before_can_be_cleared_from_view(shop: Shop) -> None:
    with shop.app.testing() as jobs:
        shop.welcome.enqueue(1)
        jobs.clear()
        jobs.assert_nothing_enqueued()
        shop.welcome.enqueue(2)
        assert [each.args["user_id"] for each in jobs.enqueued()] == [2]
        assert len(jobs.run_due()) == 2


def test_many_jobs_are_all_found(shop: Shop) -> None:
    shop.app.enqueue_many([shop.welcome.bind(number) for number in range(450)])
    assert [each.args["user_id"] for each in enqueued()] == list(range(450))


def test_jobs_of_schedules_and_by_name_are_seen_too(shop: Shop) -> None:
    app: Fairlane = shop.app
    app.tasks.enqueue("shop.welcome", {"user_id": 1})
    assert_enqueued(shop.welcome, user_id=1)
