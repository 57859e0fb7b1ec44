"""The arguments of Django's tasks: stored by the names of the parameters, given back as the caller passed them.

By name they are what rules for payloads, listings and other languages see: `login.enqueue(7, "hunter2")` is
`{"user_id": 7, "password": "hunter2"}`. What `*args` and `**kwargs` take is a list and a dict of that name.
"""

from __future__ import annotations

import inspect
import json
from collections import OrderedDict
from collections.abc import Callable
from functools import cache
from inspect import Parameter, Signature
from typing import Any

from fairlane import Job

BY_POSITION = "django-by-position"
"""The header that says how many arguments the caller passed by position."""


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
