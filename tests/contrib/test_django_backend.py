"""Django's own contract for task backends, on both databases."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fairlane import ClaimLost, DuplicateJob, InvalidOption, tenant
from tests.contrib.conftest import Shop

pytestmark = pytest.mark.requirement("W16")


def test_a_task_is_enqueued_run_and_its_result_read(shop: Shop) -> None:
    result = shop.task("add").enqueue(1, b=2)
    assert (result.status, result.is_finished, result.attempts) == ("READY", False, 0)
    assert (result.args, result.kwargs, result.backend) == ([1], {"b": 2}, shop.alias)
    with pytest.raises(ValueError, match="has not finished"):
        _ = result.return_value
    shop.run()
    assert result.status == "READY"
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 1)
    assert result.enqueued_at <= result.started_at == result.last_attempted_at <= result.finished_at


def test_the_same_from_async_code_and_for_a_coroutine(shop: Shop) -> None:
    async def enqueue() -> Any:
        return await shop.task("add_async").aenqueue(1, b=2)

    async def read() -> Any:
        await result.arefresh()
        return await shop.task("add_async").aget_result(result.id)

    result = asyncio.run(enqueue())
    shop.run()
    again = asyncio.run(read())
    assert (result.status, result.return_value, again.return_value) == ("SUCCESSFUL", 3, 3)


def test_a_coroutine_uses_the_orm(shop: Shop) -> None:
    from tests.contrib.django_site.models import Order

    result = shop.task("count_orders_async").enqueue()
    shop.run()
    result.refresh()
    assert result.return_value == Order.objects.count(), "the default database, which a task without `using` sees"


def test_any_signature_that_django_allows_is_called_as_given(shop: Shop) -> None:
    task = shop.task("anything")
    result = task.enqueue(1, "two", [3], four={"five": None})
    shop.run()
    result.refresh()
    assert result.return_value == [[1, "two", [3]], {"four": {"five": None}}]
    assert task.get_result(result.id).task == result.task == task


@pytest.mark.parametrize(
    ("args", "kwargs", "stored"),
    [
        ([1], {}, {"first": 1}),
        ([1], {"second": 2}, {"first": 1, "second": 2}),
        ([1, 2, 3, 4], {"last": 5}, {"first": 1, "second": 2, "more": [3, 4], "last": 5}),
        ([1, 2], {"first": 3, "more": 4}, {"first": 1, "second": 2, "rest": {"first": 3, "more": 4}}),
    ],
    ids=["one", "by name", "more than are named", "names given twice"],
)
def test_arguments_are_stored_by_name_and_given_back_as_passed(
    shop: Shop, args: list[int], kwargs: dict[str, int], stored: dict[str, Any]
) -> None:
    task = shop.task("mixed")
    result = task.enqueue(*args, **kwargs)
    shop.run()
    job, found = shop.app.jobs.get(result.id), task.get_result(result.id)
    assert job is not None
    assert json.loads(job.payload) == stored
    assert (found.args, found.kwargs) == (result.args, result.kwargs) == (args, kwargs)
    assert found.return_value == json.loads(json.dumps(task.call(*args, **kwargs)))


def test_a_job_that_was_enqueued_by_name_elsewhere_is_run_and_shown(shop: Shop) -> None:
    handle = shop.app.tasks.enqueue(
        "tests.contrib.django_site.tasks.mixed", {"first": 1, "more": [2]}, rules=shop.app.runtime
    )
    shop.run()
    found = shop.task("mixed").get_result(str(handle.id))
    assert (found.args, found.kwargs) == ([], {"first": 1, "more": [2]})
    assert found.return_value == [1, 0, [2], 0, {}]


@pytest.mark.parametrize("value", [datetime.now(UTC), {1}, object()])
def test_an_argument_that_is_no_json_is_refused(shop: Shop, value: object) -> None:
    with pytest.raises(TypeError, match="Unsupported type"):
        shop.task("anything").enqueue(value)
    with pytest.raises(TypeError, match="Unsupported type"):
        asyncio.run(shop.task("anything").aenqueue(value))
    assert shop.app.jobs.list().jobs == ()


def test_a_call_that_does_not_fit_the_function_is_refused_at_once(shop: Shop) -> None:
    with pytest.raises(TypeError, match=r"tasks\.add\(a: 'int', b: 'int' = 0\).*missing a required argument: 'a'"):
        shop.task("add").enqueue(b=2)
    assert shop.app.jobs.list().jobs == ()


def test_jobs_run_by_priority_from_minus_100_to_100(shop: Shop) -> None:
    from tests.contrib.django_site.tasks import ran

    for priority in (-100, 0, 100, 20, -1):
        shop.task("remember").using(priority=priority).enqueue(str(priority))
    shop.task("remember").enqueue("its own 20")
    shop.run()
    assert ran == ["100", "20", "its own 20", "0", "-1", "-100"]


def test_run_after_queue_and_priority_are_kept_with_the_result(shop: Shop) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    task = shop.task("add").using(run_after=later, queue_name="mail", priority=7)
    found = task.get_result(task.enqueue(1).id)
    assert (found.task.queue_name, found.task.priority) == ("mail", 7)
    assert abs(found.task.run_after - later) < timedelta(milliseconds=1)
    shop.run()
    found.refresh()
    assert found.status == "READY"


def test_a_project_without_time_zones_has_local_times(shop: Shop) -> None:
    from django.test import override_settings

    with override_settings(USE_TZ=False, TIME_ZONE="Asia/Tokyo"):
        later = datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=10)  # in Tokyo an hour from now
        task = shop.task("add").using(run_after=later)
        found = task.get_result(task.enqueue(1).id)
        assert abs(found.task.run_after - later) < timedelta(milliseconds=1)
        assert timedelta(hours=8) < found.enqueued_at - datetime.now(UTC).replace(tzinfo=None) < timedelta(hours=10)
    job = shop.app.jobs.get(found.id)
    assert job is not None
    assert timedelta(minutes=55) < job.run_at - datetime.now(UTC) < timedelta(minutes=65)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priority": 101}, "between -100 and 100"),
        ({"priority": 1.5}, "whole number"),
        ({"queue_name": "nowhere"}, "Queue 'nowhere' is not valid"),
        ({"run_after": datetime(2030, 1, 1)}, "aware datetime"),  # noqa: DTZ001
    ],
)
def test_what_django_refuses_is_refused(shop: Shop, options: dict[str, Any], message: str) -> None:
    from fairlane.contrib.django.backend import InvalidTask

    with pytest.raises(InvalidTask, match=message):
        shop.task("add").using(**options)


def test_no_queues_in_the_settings_mean_any_queue(site: None) -> None:
    from tests.contrib.django_site.tasks import add

    assert add.using(backend="free", queue_name="anywhere").queue_name == "anywhere"


def make_context_free(word: str) -> str:
    return word


def test_a_local_function_is_no_task(site: None) -> None:
    from fairlane.contrib.django.backend import InvalidTask
    from tests.contrib.django_site.tasks import task

    with pytest.raises(InvalidTask, match="module level"):
        task(lambda: None)
    with pytest.raises(InvalidTask, match="first argument of 'context'"):
        task(takes_context=True)(make_context_free)


def test_a_task_takes_its_context(shop: Shop) -> None:
    result = shop.task("describe").enqueue("hello")
    shop.run()
    result.refresh()
    assert result.return_value == ["hello", result.id, 1, result.id]


def test_failed_attempts_are_counted_and_their_errors_kept(shop: Shop) -> None:
    result = shop.task("fails_twice").enqueue()
    shop.run()
    result.refresh()
    assert (result.status, result.return_value, result.attempts) == ("SUCCESSFUL", 3, 3)
    assert [error.exception_class for error in result.errors] == [ValueError, ValueError]
    assert result.errors[1].traceback.endswith("ValueError: attempt 2\n")
    assert result.started_at < result.last_attempted_at


@pytest.mark.parametrize(
    ("name", "kind"), [("fails", ValueError), ("fails_async", LookupError)], ids=["function", "coroutine"]
)
def test_a_task_that_fails_for_good_has_failed(shop: Shop, name: str, kind: type[Exception]) -> None:
    result = shop.task(name).enqueue("no such order")
    shop.run()
    result.refresh()
    assert (result.status, result.is_finished) == ("FAILED", True)
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value
    assert result.errors[0].exception_class is kind
    assert "no such order" in result.errors[0].traceback


def test_errors_of_fairlane_have_their_class_too(shop: Shop) -> None:
    from fairlane import NonRetryable

    result = shop.task("refuses").enqueue()
    shop.run()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", NonRetryable)


def test_a_result_that_is_no_json_fails_the_task(shop: Shop) -> None:
    result = shop.task("returns_no_json").enqueue()
    shop.run()
    result.refresh()
    assert (result.status, result.errors[0].exception_class) == ("FAILED", TypeError)
    assert "Unsupported type" in result.errors[0].traceback


def test_a_cancelled_job_is_a_failed_task(shop: Shop) -> None:
    result = shop.task("add").enqueue(1)
    shop.app.jobs.cancel(result.id)
    result.refresh()
    assert result.status == "FAILED"


def test_a_result_that_is_not_there_or_of_another_task(shop: Shop) -> None:
    from fairlane.contrib.django.backend import TaskResultDoesNotExist

    task, other = shop.task("add"), shop.task("anything")
    for missing in ("123", "01890a5d-ac96-774b-bcce-b302099a8057"):
        with pytest.raises(TaskResultDoesNotExist):
            task.get_result(missing)
        with pytest.raises(TaskResultDoesNotExist):
            asyncio.run(task.aget_result(missing))
    with pytest.raises(Exception, match="does not match"):
        other.get_result(task.enqueue(1).id)


@pytest.fixture
def signals(site: None) -> Iterator[list[tuple[str, str, str]]]:
    from fairlane.contrib.django import backend

    seen: list[tuple[str, str, str]] = []

    def note(name: str) -> Any:
        def receiver(sender: type, task_result: Any, **_: object) -> None:
            assert sender is backend.FairlaneBackend
            seen.append((name, task_result.id, task_result.status.value))

        return receiver

    named = {name: getattr(backend, name) for name in ("task_enqueued", "task_started", "task_finished")}
    receivers = {name: note(name) for name in named}
    for name, signal in named.items():
        signal.connect(receivers[name])
    yield seen
    for name, signal in named.items():
        signal.disconnect(receivers[name])


def test_signals_are_sent_around_a_task(shop: Shop, signals: list[tuple[str, str, str]]) -> None:
    first, second = shop.task("add").enqueue(1), shop.task("add_async").enqueue(1, 2)
    shop.run()
    for result in (first, second):
        assert [(name, status) for name, of, status in signals if of == result.id] == [
            ("task_enqueued", "READY"),
            ("task_started", "RUNNING"),
            ("task_finished", "SUCCESSFUL"),
        ]


def test_a_task_that_runs_again_has_not_finished(shop: Shop, signals: list[tuple[str, str, str]]) -> None:
    shop.task("fails_twice").enqueue()
    shop.run()
    names = [name for name, _, _ in signals]
    assert (names.count("task_started"), names.count("task_finished")) == (3, 1)


def test_a_failure_is_in_djangos_log(shop: Shop, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, "django.tasks"), caplog.at_level(logging.DEBUG, "django_tasks"):
        result = shop.task("fails").enqueue("no such order")
        shop.run()
    lines = [record for record in caplog.records if record.name in ("django.tasks", "django_tasks")]
    assert ["enqueued" in lines[0].message, "state=RUNNING" in lines[1].message] == [True, True]
    assert "state=FAILED" in lines[-1].message
    assert result.id in lines[-1].message
    assert lines[-1].exc_info is not None
    assert lines[-1].exc_info[0] is ValueError


def test_using_takes_the_options_of_fairlane(shop: Shop) -> None:
    task = shop.task("add").using(tenant="acme", idempotency_key="order 7", priority=3)
    first, again = task.enqueue(1), task.enqueue(1)
    assert first.id == again.id
    job = shop.app.jobs.get(first.id)
    assert job is not None
    assert (job.tenant, job.idempotency_key, job.priority) == ("acme", "order 7", 97)
    with pytest.raises(DuplicateJob):
        task.using(on_duplicate="raise").enqueue(1)
    with pytest.raises(InvalidOption, match='Nearest: "tenant"'):
        shop.task("add").using(tennant="acme")


@pytest.mark.requirement("D24")
def test_a_task_has_keys_of_its_arguments_as_they_are_stored(shop: Shop) -> None:
    results = [shop.task("numbered").enqueue(7), shop.task("numbered").using(key="import:42").enqueue(8)]
    jobs = [shop.app.jobs.get(result.id) for result in results]
    assert [job.key for job in jobs if job] == ["order:7", "import:42"]


def test_the_tenant_in_force_is_the_tenant_of_the_job(shop: Shop) -> None:
    with tenant("acme"):
        first = shop.task("add").enqueue(1)
        second = asyncio.run(shop.task("add").aenqueue(1))
    jobs = [shop.app.jobs.get(result.id) for result in (first, second)]
    assert [job.tenant for job in jobs if job] == ["acme", "acme"]


def test_options_of_a_task_are_declared_below_its_decorator(shop: Shop) -> None:
    name = "tests.contrib.django_site.tasks.nightly"
    assert shop.app.tasks[name].definition.timeout_s == 60
    assert [spec.type for spec in shop.app.runtime.schedules.values()] == [name]


def make_report(month: int) -> int:
    return month


def test_options_of_a_task_stand_in_its_decorator_where_django_passes_them_on(site: None) -> None:
    from fairlane.contrib.django import job_options
    from fairlane.contrib.django.backend import FairlaneTask

    django: dict[str, Any] = {"backend": "default", "queue_name": "default", "priority": 0, "run_after": None}
    made = FairlaneTask(func=make_report, **django, timeout=60, category="sync")
    assert (made.definition.timeout_s, made.definition.category) == (60, "sync")
    for wrong in (lambda: FairlaneTask(func=make_report, **django, timout=60), lambda: job_options(timout=60)):
        with pytest.raises(InvalidOption, match='Nearest: "timeout"'):
            wrong()


def test_a_job_failed_by_hand_is_a_dead_letter_that_can_be_reprocessed(shop: Shop) -> None:
    result = shop.task("add").enqueue(20, b=22)
    shop.app.jobs.fail(result.id, "not today", by="ada")
    result.refresh()
    assert result.status == "FAILED"
    [letter] = shop.app.dead_letters.list().dead_letters
    again = shop.app.dead_letters.reprocess(letter, by="ada")
    shop.run()
    assert shop.task("add").get_result(str(again.job.id)).return_value == 42


def test_workers_of_ones_own_claim_complete_and_fail_djangos_jobs(shop: Shop) -> None:
    """Each job goes to one claim, and its lease alone settles it."""
    results = [shop.task("add").enqueue(number) for number in (1, 2)]
    first, second, none = (shop.app.jobs.claim(worker=f"worker-{number}") for number in (1, 2, 3))
    assert first is not None
    assert second is not None
    assert ({str(first.id), str(second.id)}, none) == ({result.id for result in results}, None)
    tokens = {str(claimed.id): [str(claimed.token)] for claimed in (first, second)}
    for result in results:
        result.refresh()
        assert (result.status, result.worker_ids) == ("RUNNING", tokens[result.id])
    first.complete(41)
    assert second.fail(ValueError("no"), error_class="non_retryable") is None
    with pytest.raises(ClaimLost):
        second.complete(42)
    completed, failed = (shop.task("add").get_result(str(claimed.id)) for claimed in (first, second))
    assert (completed.status, completed.return_value) == ("SUCCESSFUL", 41)
    assert (failed.status, failed.errors[0].exception_class) == ("FAILED", ValueError)
