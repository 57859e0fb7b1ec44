"""Finds enqueued jobs by task, arguments and options, and says in words what was enqueued instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

import msgspec

from fairlane.client.enqueue.options import seconds
from fairlane.client.task import Definition, Task
from fairlane.core.job import Job, Status
from fairlane.core.job_keys import NO_KEY, JobKey
from fairlane.core.names import check_tenant
from fairlane.core.payload.codec import encode_value
from fairlane.errors import InvalidOption, nearest, shown

MOST_SHOWN = 20
ROUNDED_S = 0.001
"""Instants are stored in whole microseconds."""


class CollectedJob(msgspec.Struct, frozen=True):
    """A job that was enqueued during a test."""

    job: Job
    """The job as it is now."""

    @property
    def task(self) -> str:
        """The name of its task."""
        return self.job.type

    @property
    def args(self) -> dict[str, Any]:
        """Its arguments as JSON carries them."""
        found: dict[str, Any] = msgspec.json.decode(self.job.payload)
        return found

    @property
    def id(self) -> Any:
        return self.job.id

    @property
    def tenant(self) -> str:
        return self.job.tenant

    @property
    def queue(self) -> str:
        return self.job.queue

    @property
    def priority(self) -> int:
        return self.job.priority

    @property
    def status(self) -> Status:
        return self.job.status

    @property
    def delay(self) -> float:
        """Seconds from enqueueing until it was first due."""
        return (self.job.scheduled_at - self.job.enqueued_at).total_seconds()

    @property
    def run_at(self) -> datetime:
        """When it was first due."""
        return self.job.scheduled_at

    def __str__(self) -> str:
        job = self.job
        call = f"{job.type}({', '.join(f'{name}={value!r}' for name, value in self.args.items())})"
        about = [f"tenant={job.tenant}", f"queue={job.queue}", f"priority={job.priority_label or job.priority}"]
        if self.delay:
            about.append(f"delay={self.delay:g}")
        if job.idempotency_key != str(job.id):
            about.append(f"idempotency_key={job.idempotency_key}")
        if job.key is not None:
            about.append(f"key={job.key}")
        return f"{call}  {' '.join(about)} ({job.status})"


OPTIONS = ("tenant", "queue", "priority", "delay", "run_at", "idempotency_key", "dedup_key", "key", "correlation_id")
"""What may be expected of a job beside its arguments; and headers, of which some may be given."""


_COMPARED = {*OPTIONS, "headers", *Job.__struct_fields__}
"""What a job shows of the options it was enqueued with."""


class DjangoTask(Protocol):
    """One of Django's tasks, whose backend is Fairlane's."""

    @property
    def module_path(self) -> str: ...


AnyTask = Task[..., Any] | DjangoTask


def definition_of(task: AnyTask) -> Definition[Any]:
    found = getattr(task, "definition", None)
    if not isinstance(found, Definition):
        raise InvalidOption("task", task, "a task of Fairlane, or one of Django's whose backend is Fairlane's")
    return found


class Expected:
    """What a test says of a job: its task, some or all arguments, some options."""

    def __init__(self, task: AnyTask | None, given: Mapping[str, Any]) -> None:
        self._task = None if task is None else definition_of(task)
        self._args: dict[str, Any] = {}
        chosen: Mapping[str, Any] = getattr(task, "chosen", {})
        self._options = {name: value for name, value in chosen.items() if name in _COMPARED}
        parameters = () if self._task is None else self._task.signature.names
        self._defaults = {} if self._task is None else self._task.signature.defaults
        """An argument that was not given is its default."""
        for name, value in given.items():
            if name in parameters:
                self._args[name] = value
            elif name in OPTIONS or name == "headers":
                self._options[name] = value
            else:
                known = (*parameters, *OPTIONS, "headers")
                what = "expectation" if self._task is None else f'expectation of "{self._task.name}"'
                raise InvalidOption(
                    what,
                    name,
                    f"an argument of the task, or one of {', '.join(OPTIONS)}, headers." + nearest(name, known),
                )

    def differences(self, found: CollectedJob) -> list[str]:
        """In what a job differs; empty: it is as expected. One of another task differs in that alone."""
        if self._task is not None and found.task not in (self._task.name, *self._task.aliases):
            return [f"another task than {self._task.name}"]
        args = {**self._defaults, **found.args}
        differing = [
            f"{name} is {shown(args[name])}" if name in args else f"{name} was not given"
            for name, value in self._args.items()
            if name not in args or not _is_equal(args[name], value)
        ]
        return differing + [
            f"{name} is {shown(self._option(found, name))}"
            for name, value in self._options.items()
            if not self._is_chosen(found, name, value)
        ]

    def _option(self, found: CollectedJob, name: str) -> Any:
        return getattr(found, name) if name in ("delay", "run_at") else getattr(found.job, name)

    def _is_chosen(self, found: CollectedJob, name: str, value: Any) -> bool:
        actual = self._option(found, name)
        if name == "tenant" and isinstance(value, (int, str)):
            return bool(actual == check_tenant(value))
        if name == "priority" and isinstance(value, str):
            return found.job.priority_label == value
        if name == "delay":
            return bool(abs(actual - seconds("delay", value)) < ROUNDED_S)
        if name == "key":
            return (actual or NO_KEY) == (value.value if isinstance(value, JobKey) else value or NO_KEY)
        if name == "headers":
            return all(actual.get(key) == text for key, text in value.items())
        return bool(actual == value) or (not isinstance(value, datetime) and str(actual) == str(value))

    def __str__(self) -> str:
        told = ", ".join(f"{name}={shown(value)}" for name, value in {**self._args, **self._options}.items())
        of = "job" if self._task is None else f"job of {self._task.name}"
        return f"{of} with {told}" if told else of


def _is_equal(stored: Any, value: Any) -> bool:
    """Compare with the value itself, for matchers such as ANY, and with what JSON makes of it."""
    if stored == value:
        return True
    try:
        text, problems = encode_value({"value": value})
    except Exception:  # noqa: BLE001 - no value that could have been enqueued
        return False
    return text is not None and not problems and bool(msgspec.json.decode(text)["value"] == stored)


def failure(expected: Expected, found: Sequence[CollectedJob]) -> str:
    """No job is as expected: say which there are, and what is different about those of the same task."""
    if not found:
        return f"no {expected} was enqueued; nothing was enqueued at all"
    return f"no {expected} was enqueued. Enqueued were:\n" + _listed(found, expected)


def surplus(expected: Expected, found: Sequence[CollectedJob]) -> str:
    return f"expected that no {expected} was enqueued, but there are:\n" + _listed(found)


def _listed(found: Sequence[CollectedJob], expected: Expected | None = None) -> str:
    lines = list(_lines(found[:MOST_SHOWN], expected))
    if len(found) > MOST_SHOWN:
        lines.append(f"  and {len(found) - MOST_SHOWN} more")
    return "\n".join(lines)


def _lines(found: Iterable[CollectedJob], expected: Expected | None) -> Iterable[str]:
    for each in found:
        differences = [] if expected is None else expected.differences(each)
        told = "; ".join(each for each in differences if not each.startswith("another task"))
        yield f"  {each}" + (f"\n      {told}" if told else "")
