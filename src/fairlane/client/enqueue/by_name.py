"""Calls of tasks by their names: from the command line, where no function is at hand, and maybe not even the application."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from fairlane.client.enqueue.options import Options
from fairlane.client.enqueue.prepare import Preparer
from fairlane.client.signature import Signature
from fairlane.client.task import Bound, Definition
from fairlane.core.job import DEFAULT_PRIORITY
from fairlane.core.names import check_task_name
from fairlane.errors import UnknownTask

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime


class AnyPayload(Signature[Any]):
    """Takes any payload: only the worker that knows the task can tell whether it fits."""

    def __init__(self, task: str) -> None:
        self.task = task
        self.names = ()

    def __str__(self) -> str:
        return "(…)"

    def check(self, text: bytes) -> None:
        pass

    def read_result(self, text: str) -> Any:
        return msgspec.json.decode(text)


class TaskByName(Definition[Any]):
    """The settings' own rules for a type: its queue, category, payload limits and sensitive names."""

    def __init__(self, name: str, preparer: Preparer) -> None:
        settings = preparer.settings
        self.name = check_task_name(name)
        self.signature = AnyPayload(name)
        self.queue = preparer.router.queue_for(name)
        self.category = preparer.router.category_for(name) or settings.default_category
        self.priority = DEFAULT_PRIORITY
        self.version = 1
        self.timeout_s = self.retry = self.max_attempts = self.sensitive = None
        self.required = self.refs = ()
        self.is_large = False


def call_by_name(
    name: str, arguments: Mapping[str, Any], options: Mapping[str, Any], *, runtime: Runtime, rules: Runtime | None
) -> Bound[Any]:
    """A call of the task with this name, checked against it where an application's `rules` are given; else by the settings alone."""
    preparer = (rules or runtime).preparer
    task: Definition[Any]
    if rules is None:
        task, args = TaskByName(name, preparer), dict(arguments)
    else:
        if name not in rules.tasks:
            raise UnknownTask(name, rules.tasks)
        task = rules.tasks[name].definition
        args = task.signature.bind((), dict(arguments))
    chosen = Options().changed(
        {name: value for name, value in options.items() if value is not None}, preparer.priorities
    )
    return Bound(task, chosen, args, preparer.payload(task, args))
