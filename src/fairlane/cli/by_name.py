"""A task known by nothing but its name: what is enqueued without its application at hand."""

from __future__ import annotations

from typing import Any

import msgspec

from fairlane.client.enqueue.prepare import Preparer
from fairlane.client.signature import Signature
from fairlane.client.task import Definition
from fairlane.core.job import DEFAULT_PRIORITY
from fairlane.core.names import check_task_name


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
