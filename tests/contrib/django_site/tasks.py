"""The project's tasks, of every kind that Django knows."""

from __future__ import annotations

from typing import Any

import django

from fairlane import NonRetryable, Retry, current_job
from fairlane.contrib.django import job_options
from tests.contrib.django_site.models import Order

if django.VERSION >= (6, 0):
    from django.tasks import task
else:
    from django_tasks import task

ran: list[Any] = []


@task
def add(a: int, b: int = 0) -> int:
    return a + b


@task
@job_options(key="order_id")
def numbered(order_id: int) -> int:
    return order_id


@task()
def anything(*args: Any, **kwargs: Any) -> list[Any]:
    return [list(args), kwargs]


@task()
def mixed(first: int, /, second: int = 0, *more: int, last: int = 0, **rest: int) -> list[Any]:
    return [first, second, more, last, rest]


@task()
@job_options(refs=("user_id",))
def login(user_id: int, password: str = "", attachment: Any = None) -> None:
    ran.append(user_id)


@task
async def add_async(a: int, b: int) -> int:
    return a + b


@task
async def count_orders_async() -> int:
    return await Order.objects.acount()


@task(queue_name="mail", priority=20)
def remember(what: str) -> None:
    ran.append(what)


@task(takes_context=True)
def describe(context: Any, word: str) -> list[Any]:
    return [word, context.task_result.id, context.attempt, str(current_job().id)]


@task(takes_context=True)
@job_options(retry=Retry(max_attempts=3, delays=(0,)))
def fails_twice(context: Any) -> int:
    if context.attempt < 3:
        raise ValueError(f"attempt {context.attempt}")
    return int(context.attempt)


@task
@job_options(max_attempts=1)
def fails(message: str) -> None:
    raise ValueError(message)


@task
@job_options(max_attempts=1)
async def fails_async(message: str) -> None:
    raise LookupError(message)


@task
def refuses() -> None:
    raise NonRetryable("never again")


@task
@job_options(max_attempts=1)
def returns_no_json() -> Any:
    return {1, 2}


@task
@job_options(cron="0 3 * * *", timeout=60)
def nightly() -> str:
    return "done"


@task
def make_order(name: str) -> int:
    return int(Order.objects.create(name=name).pk)
