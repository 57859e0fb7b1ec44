"""`FairlaneBackend`: Django's tasks as jobs, enqueued on Django's own connection inside `atomic()`.

Arguments are stored by the names of the parameters, and given back as the caller passed them. By name they are what
rules for payloads, listings and other languages see: `login.enqueue(7, "hunter2")` is
`{"user_id": 7, "password": "hunter2"}`. What `*args` and `**kwargs` take is a list and a dict of that name.
"""

from __future__ import annotations

import builtins
import inspect
import json
import traceback
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from functools import cache
from inspect import Parameter, Signature
from typing import Any

from asgiref.sync import ThreadSensitiveContext, async_to_sync, sync_to_async
from django import VERSION
from django.conf import settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DEFAULT_DB_ALIAS, connections, reset_queries, transaction
from django.utils import timezone

import fairlane.errors
from fairlane import (
    Attempt,
    ConfigError,
    CurrentJob,
    EnqueueOptions,
    FailedAttempt,
    Fairlane,
    InvalidOption,
    Job,
    JobDetail,
    JobNotFound,
    current_job,
)
from fairlane.contrib.django.project import (
    HIGHEST,
    TASK_OPTIONS,
    application,
    database_of,
    is_in_memory,
    job_options,
    project,
    require_known,
)
from fairlane.errors import UnsupportedConnection

if VERSION >= (6, 0):
    from django.tasks import Task, TaskContext, TaskResult, TaskResultStatus, task_backends
    from django.tasks.backends.base import BaseTaskBackend
    from django.tasks.base import TaskError
    from django.tasks.exceptions import InvalidTask, TaskResultDoesNotExist
    from django.tasks.signals import task_enqueued, task_finished, task_started
    from django.utils.json import normalize_json
else:
    try:
        from django_tasks import TaskContext, TaskResult, TaskResultStatus, task_backends
        from django_tasks.backends.base import BaseTaskBackend
        from django_tasks.base import Task, TaskError
        from django_tasks.exceptions import InvalidTaskError as InvalidTask, TaskResultDoesNotExist
        from django_tasks.signals import task_enqueued, task_finished, task_started
        from django_tasks.utils import normalize_json
    except ModuleNotFoundError as error:
        raise ImproperlyConfigured(f"Django 5 has no tasks of its own ({error}): pip install django-tasks") from error

__all__ = ["FairlaneBackend", "FairlaneTask", "register", "task_backends"]

READY, RUNNING, SUCCESSFUL, FAILED = (TaskResultStatus[name] for name in ("READY", "RUNNING", "SUCCESSFUL", "FAILED"))
STATUS: Mapping[str, Any] = {
    "pending": READY,
    "failed": READY,  # waits for its retry
    "processing": RUNNING,
    "completed": SUCCESSFUL,
    "dead": FAILED,
    "cancelled": FAILED,
}
IN_MEMORY = (
    'DATABASES["{}"] is in memory, where a transaction can hold no jobs: in tests put them under '
    '`with application().testing():`, or name a file in DATABASES["default"]["TEST"]["NAME"]'
)
DJANGO_FIELDS = frozenset(field.name for field in fields(Task))
DJANGO_OPTIONS = ("priority", "queue_name", "run_after", "backend")
BY_POSITION = "django-by-position"
"""The header that says how many arguments the caller passed by position."""


@dataclass(frozen=True, slots=True, kw_only=True, init=False)
class FairlaneTask(Task):
    """A Django task that also takes Fairlane's options: `using(tenant=…)`, from Django 6.1 on `@task(timeout=60)`."""

    fairlane: tuple[tuple[str, Any], ...] = ()

    def __init__(self, *, func: Callable[..., Any], fairlane: tuple[tuple[str, Any], ...] = (), **given: Any) -> None:
        if own := {name: given.pop(name) for name in [*given] if name not in DJANGO_FIELDS}:
            job_options(**own)(func)
        object.__setattr__(self, "fairlane", fairlane)
        Task.__init__(self, func=func, **given)

    def using(self, **options: Any) -> FairlaneTask:
        own = {name: value for name, value in options.items() if name not in DJANGO_OPTIONS}
        require_known("option", own, (*DJANGO_OPTIONS, *EnqueueOptions.__annotations__))
        changed: FairlaneTask = Task.using(self, **{name: options[name] for name in options.keys() - own})
        return replace(changed, fairlane=tuple({**dict(self.fairlane), **own}.items())) if own else changed

    @property
    def definition(self) -> Any:
        """What Fairlane knows of it: for tests."""
        return application(self.backend).tasks[self.module_path].definition

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that `using(…)` gave it, in Fairlane's words: for tests."""
        declared, own = project.tasks.get(self.module_path, self), dict(self.fairlane)
        django = {"queue": self.queue_name, "priority": HIGHEST - self.priority, "run_at": _aware(self.run_after)}
        as_declared = (declared.queue_name, HIGHEST - declared.priority, None)
        changed = {name: value for (name, value), old in zip(django.items(), as_declared, strict=True) if value != old}
        return {name: value for name, value in {**changed, **own}.items() if name != "conn"}


class FairlaneBackend(BaseTaskBackend):
    """Keeps Django's tasks as jobs of Fairlane. Options: `database` (of `DATABASES`) or `url`, and any setting."""

    task_class = FairlaneTask
    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: Any) -> None:
        super().validate_task(task)
        project.add(task)

    def enqueue(self, task: Any, args: Any, kwargs: Any) -> Any:
        """Enqueue on Django's connection while it is in a transaction, else on Fairlane's own.

        A store that is not in `DATABASES` gets the job when the transaction of the default database commits.
        """
        self.validate_task(task)
        args, kwargs = normalize_json(list(args)), normalize_json(dict(kwargs))
        arguments = arguments_by_name(task, args, kwargs)
        app = application(self.alias)
        options = {
            "queue": task.queue_name,
            "priority": HIGHEST - int(task.priority),
            "run_at": _aware(task.run_after),
            **dict(getattr(task, "fairlane", ())),
        }
        if args:
            options["headers"] = {**options.get("headers", {}), BY_POSITION: str(len(args))}
        database, job = database_of(self.alias), app.tasks[task.module_path]
        if database is None and connections[DEFAULT_DB_ALIAS].in_atomic_block:
            job_id = options.setdefault("id", app.runtime.new_job_id())
            later = job.using(**options)
            transaction.on_commit(lambda: later.enqueue(**arguments))
        else:
            options.setdefault("conn", None if database is None else _in_transaction(database))
            try:
                job_id = job.using(**options).enqueue(**arguments).id
            except UnsupportedConnection as error:
                if database is None or not is_in_memory(database):
                    raise
                raise ImproperlyConfigured(IN_MEMORY.format(database)) from error
        result = _result(
            task, id=str(job_id), status=READY, backend=self.alias, args=args, kwargs=kwargs,
            enqueued_at=_now(app),
        )  # fmt: skip
        task_enqueued.send(type(self), task_result=result)
        return result

    def get_result(self, result_id: str) -> Any:
        """The result as it is in the store now; a job enqueued in a transaction is seen once that has committed."""
        try:
            detail = application(self.alias).jobs.detail(result_id)
        except InvalidOption:
            detail = None
        task = None if detail is None else project.tasks.get(detail.job.type)
        if detail is None or task is None:
            raise TaskResultDoesNotExist(result_id)
        return _result_of(detail, task, self.alias)

    def check(self, **_: object) -> list[checks.CheckMessage]:
        """For `manage.py check`: the options, and the database they name."""
        try:
            project.new_app(self.alias).close()
        except (ConfigError, ImproperlyConfigured) as error:
            return [checks.Error(str(error), obj=f'TASKS["{self.alias}"]', id="fairlane.E001")]
        return []


def register(app: Fairlane, alias: str, task: Any) -> None:
    """Make a Django task a task of Fairlane. Its options are those below its decorator, if it has any."""
    own = {"queue": task.queue_name, **getattr(task.func, TASK_OPTIONS, {})}
    made = app.task(name=task.module_path, priority=HIGHEST - task.priority, **own)(_function(app, alias, task))
    made.definition.run_here = async_to_sync(_awaited)  # what it does with the ORM comes back to this very thread

    @made.on_failure
    def tell_receivers(job: CurrentJob, failed: FailedAttempt) -> None:
        if not failed.is_dead:
            return  # it runs again, and has not finished
        try:
            result = _running(app, alias, task, app.jobs.detail(job.id))
            error = TaskError(exception_class_path=_path(failed.exception), traceback=_traceback(failed.exception))
            _set(result, status=FAILED, finished_at=_now(app), errors=[*result.errors, error])
            try:
                raise failed.exception
            except BaseException:  # noqa: BLE001 - Django's own receiver logs what is being handled
                task_finished.send_robust(sender=FairlaneBackend, task_result=result)
        finally:
            _renew_connections()


def _function(app: Fairlane, alias: str, task: Any) -> Callable[..., Any]:
    """The function that a worker runs for the jobs of a Django task: connections and signals are as in a request."""

    signature = signature_of(task)

    def run(**arguments: Any) -> Any:
        _renew_connections()
        reset_queries()
        try:
            result = _running(app, alias, task, app.jobs.detail(current_job().id))
            task_started.send(sender=FairlaneBackend, task_result=result)
            call = call_of(signature, arguments)
            value = normalize_json(task.func(*_context(task, result), *call.args, **call.kwargs))
            _set(result, status=SUCCESSFUL, finished_at=_now(app), _return_value=value)
            task_finished.send_robust(sender=FairlaneBackend, task_result=result)
            return value
        finally:
            _renew_connections()

    async def arun(**arguments: Any) -> Any:
        # As for a request: a thread of its own for what this job does with the ORM, closed with it.
        async with ThreadSensitiveContext():
            try:
                result = _running(app, alias, task, await app.jobs.adetail(current_job().id))
                await task_started.asend(sender=FairlaneBackend, task_result=result)
                call = call_of(signature, arguments)
                value = normalize_json(await task.func(*_context(task, result), *call.args, **call.kwargs))
                _set(result, status=SUCCESSFUL, finished_at=_now(app), _return_value=value)
                await task_finished.asend_robust(sender=FairlaneBackend, task_result=result)
                return value
            finally:
                await sync_to_async(_close_connections)()

    chosen: Callable[..., Any] = arun if inspect.iscoroutinefunction(task.func) else run
    chosen.__name__, chosen.__qualname__ = task.func.__name__, task.func.__qualname__
    chosen.__module__, chosen.__doc__ = task.func.__module__, task.func.__doc__
    chosen.__signature__ = as_stored(signature)  # type: ignore[attr-defined]
    return chosen


def _context(task: Any, result: Any) -> tuple[Any, ...]:
    return (TaskContext(task_result=result),) if task.takes_context else ()


def _running(app: Fairlane, alias: str, task: Any, detail: JobDetail | None) -> Any:
    """The result while a worker runs its task. The store may not know yet that the attempt has started."""
    if detail is None:
        raise JobNotFound(current_job().id)
    result, now = _result_of(detail, task, alias), _now(app)
    workers = [str(each.worker) for each in detail.attempts if each.started_at is not None]
    _set(
        result,
        status=RUNNING,
        started_at=result.started_at or now,
        last_attempted_at=(detail.job.started_at and _shown(detail.job.started_at)) or now,
        worker_ids=[*workers, str(detail.job.worker)],
    )
    return result


def _set(result: Any, **fields: Any) -> None:
    for name, value in fields.items():
        object.__setattr__(result, name, value)


def _result_of(detail: JobDetail, known: Any, alias: str) -> Any:
    """A job as Django sees it."""
    job, ran = detail.job, [attempt for attempt in detail.attempts if attempt.started_at is not None]
    args, kwargs = as_called(known, job)
    starts = [attempt.started_at for attempt in ran]
    workers = [str(attempt.worker) for attempt in ran]
    if job.status == "processing" and job.started_at is not None:
        starts.append(job.started_at)
        workers.append(str(job.worker))
    result = _result(
        _as_enqueued(known, job, alias),
        id=str(job.id),
        status=STATUS[job.status],
        enqueued_at=_shown(job.enqueued_at),
        started_at=_shown(starts[0]) if starts else None,
        last_attempted_at=_shown(starts[-1]) if starts else None,
        finished_at=_shown(job.finished_at),
        args=args,
        kwargs=kwargs,
        backend=alias,
        errors=[_error(each) for each in detail.attempts if each.error_type is not None],
        worker_ids=workers,
    )
    if job.status == "completed":
        object.__setattr__(result, "_return_value", None if job.result is None else json.loads(job.result))
    return result


def _result(task: Any, **fields: Any) -> Any:
    empty = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    return TaskResult(task=task, **{**empty, "errors": [], "worker_ids": [], **fields})


def _as_enqueued(known: Any, job: Job, alias: str) -> Any:
    """The task with the options of the job; as decorated, where these are not allowed any more."""
    run_after = _shown(job.scheduled_at) if job.scheduled_at > job.enqueued_at else None
    priority = min(max(HIGHEST - job.priority, -HIGHEST), HIGHEST)
    with suppress(InvalidTask):
        return known.using(priority=priority, queue_name=job.queue, run_after=run_after, backend=alias)
    return known


def _path(error: BaseException) -> str:
    return f"{type(error).__module__}.{type(error).__qualname__}"


def _traceback(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _error(attempt: Attempt) -> Any:
    kind = attempt.error_type or ""
    for home in () if "." in kind else (builtins, fairlane.errors):
        if hasattr(home, kind):
            kind = f"{home.__name__}.{kind}"
            break
    return TaskError(exception_class_path=kind, traceback=attempt.traceback or attempt.error_message or "")


def _in_transaction(database: str) -> object | None:
    """Django's connection, if a transaction is open on it."""
    connection = connections[database]
    if connection.connection is None or (connection.autocommit and not connection.in_atomic_block):
        return None
    connection.validate_no_broken_transaction()
    found: object = connection.connection
    return found


def _renew_connections() -> None:
    """Django's `close_old_connections`, for connections outside of transactions: in tests one may surround the job."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _close_connections() -> None:
    """Those of a job's own thread, which ends with it; in tests it is the test's, in a transaction of its own."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close()


async def _awaited(coroutine: Coroutine[Any, Any, Any]) -> Any:
    return await coroutine


def _now(app: Fairlane) -> datetime | None:
    return _shown(app.runtime.clock.now())


def _aware(value: datetime | None) -> datetime | None:
    return timezone.make_aware(value) if value is not None and timezone.is_naive(value) else value


def _shown(value: datetime | None) -> datetime | None:
    """An instant as the project writes them: aware with `USE_TZ`, else local."""
    if value is None or settings.USE_TZ:
        return value
    local: datetime = timezone.make_naive(value)
    return local


def signature_of(task: Any) -> Signature:
    """What a task is called with; its context is Django's to give."""
    return _signature(task.func, task.takes_context)


@cache
def _signature(function: Callable[..., Any], takes_context: bool) -> Signature:
    signature = inspect.signature(function)
    return signature.replace(parameters=[*signature.parameters.values()][1:]) if takes_context else signature


def as_stored(signature: Signature) -> Signature:
    """The same parameters, one argument each, without annotations: Django passes on what JSON carries."""
    empty: dict[Any, Any] = {Parameter.VAR_POSITIONAL: [], Parameter.VAR_KEYWORD: {}}
    return Signature(
        [
            Parameter(
                each.name,
                each.KEYWORD_ONLY if each.kind > each.POSITIONAL_OR_KEYWORD else each.POSITIONAL_OR_KEYWORD,
                default=empty.get(each.kind, each.default),
            )
            for each in signature.parameters.values()
        ]
    )


def arguments_by_name(task: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """A call's arguments as they are stored. What the function would refuse is refused here."""
    try:
        arguments = signature_of(task).bind(*args, **kwargs).arguments
    except TypeError as error:
        raise TypeError(f"{task.module_path}{inspect.signature(task.func)}: {error}") from None
    return {name: list(value) if isinstance(value, tuple) else value for name, value in arguments.items()}


def call_of(signature: Signature, arguments: dict[str, Any]) -> inspect.BoundArguments:
    """Stored arguments as the function takes them."""
    call = inspect.BoundArguments(signature, OrderedDict(arguments))
    call.apply_defaults()
    return call


def as_called(task: Any, job: Job) -> tuple[list[Any], dict[str, Any]]:
    """What the caller of a job passed by position, and what by name."""
    arguments: dict[str, Any] = json.loads(job.payload)
    kinds = {name: each.kind for name, each in signature_of(task).parameters.items()}
    ordered = [name for name, kind in kinds.items() if name in arguments and kind <= Parameter.VAR_POSITIONAL]
    args: list[Any] = []
    for name in ordered[: int(job.headers.get(BY_POSITION, 0))]:
        value = arguments.pop(name)
        args += value if kinds[name] is Parameter.VAR_POSITIONAL else [value]
    rest = next((name for name, kind in kinds.items() if kind is Parameter.VAR_KEYWORD), None)
    return args, {**arguments.pop(rest, {}), **arguments} if rest else arguments
