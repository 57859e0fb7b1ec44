"""Filters as options and as words: `--status failed` and `status:failed` mean the same.

A word is `name:value`; several words must all match, several values of `status` match any: `status:failed,dead`.
Values with spaces are quoted: `correlation_id:"order 7"`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

import click
from click.core import ParameterSource

from fairlane.cli.times import instant_back
from fairlane.core.clock import Clock
from fairlane.errors import InvalidOption, nearest

JOB_FILTERS = (
    "status",
    "queue",
    "type",
    "tenant",
    "category",
    "correlation_id",
    "parent",
    "created_by",
    "idempotency_key",
    "since",
    "until",
)


def read_words(words: Iterable[str], known: tuple[str, ...] = JOB_FILTERS) -> dict[str, Any]:
    """The filters a line of words means; refuses what it does not know."""
    found: dict[str, Any] = {}
    for word in _split(words):
        name, colon, value = word.partition(":")
        name = name.replace("-", "_").lower()
        if not colon or not value:
            raise InvalidOption("filter", word, f"name:value, with one of {', '.join(known)}")
        if name not in known:
            raise InvalidOption("filter", word, f"one of {', '.join(known)} before the colon.{nearest(name, known)}")
        if name == "status":
            found["status"] = (*found.get("status", ()), *value.split(","))
        elif name in found:
            raise InvalidOption("filter", word, f"{name} once only; {name}:{found[name]} was given already")
        else:
            found[name] = instant_back(value) if name in {"since", "until"} else value
    return found


def merged(options: Mapping[str, Any], words: Mapping[str, Any]) -> dict[str, Any]:
    """Options and words together; a filter is given by one of them, and both win over the environment."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    context = click.get_current_context()
    for name in given:
        if name in words and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{name} is given twice: as an option and as a word", context)
    return {**given, **words}


def for_client(filters: Mapping[str, Any], clock: Clock) -> dict[str, Any]:
    """The same as the client takes them, with spans counted from now."""
    asked = dict(filters)
    for name, argument in (("since", "enqueued_from"), ("until", "enqueued_before")):
        at: datetime | timedelta | None = asked.pop(name, None)
        if at is not None:
            asked[argument] = clock.now() + at if isinstance(at, timedelta) else at
    return asked


def _split(words: Iterable[str]) -> list[str]:
    try:
        return [part for word in words for part in shlex.split(word)]
    except ValueError as error:
        raise InvalidOption("filter", " ".join(words), f"balanced quotes ({error})") from None
