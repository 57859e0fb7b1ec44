"""Filters and pages of listings, shared by the client, the API and the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypedDict, get_args
from uuid import UUID

from fairlane.client.enqueue.options import job_id, row_id
from fairlane.client.handle import JobLike
from fairlane.core.ids import Seq
from fairlane.core.job import STATUSES, DeadLetterStatus, ErrorClass, Job, Status
from fairlane.core.names import check_words
from fairlane.core.ops import MAX_PAGE, DeadLetterFilter, JobFilter
from fairlane.errors import InvalidOption, nearest

_TEXTS = {"queue", "type", "category", "correlation_id", "created_by", "idempotency_key", "error_type", "fingerprint"}


class JobFilters(TypedDict, total=False):
    """The fields of `JobFilter` as keywords: one status or several, and the parent as a handle, a job or an id."""

    status: Status | tuple[Status, ...]
    queue: str
    type: str
    category: str
    correlation_id: str | UUID
    parent: JobLike
    created_by: str
    idempotency_key: str
    enqueued_from: datetime
    enqueued_before: datetime
    started_before: datetime


class DeadLetterFilters(TypedDict, total=False):
    """The fields of `DeadLetterFilter` as keywords."""

    status: DeadLetterStatus
    acknowledged: bool
    queue: str
    type: str
    category: str
    error_class: ErrorClass
    error_type: str
    fingerprint: str
    correlation_id: str | UUID


def job_filter(given: Mapping[str, Any]) -> JobFilter:
    """Check filters given by name: those that `app.jobs.list`, the API and the command line accept."""
    fields = known_filters(given, JobFilters.__annotations__)
    if "status" in fields:
        statuses = fields.pop("status")
        several = tuple(statuses) if isinstance(statuses, (tuple, list, set, frozenset)) else (statuses,)
        for status in several:
            require_one_of("status", status, STATUSES)
        fields["statuses"] = tuple(dict.fromkeys(several))
    if "parent" in fields:
        fields["parent_id"] = job_id("parent", fields.pop("parent"))
    for name in ("enqueued_from", "enqueued_before", "started_before"):
        if name in fields and (not isinstance(fields[name], datetime) or fields[name].utcoffset() is None):
            raise InvalidOption(name, fields[name], "a datetime with a time zone")
    return JobFilter(**fields)


def dead_letter_filter(given: Mapping[str, Any]) -> DeadLetterFilter:
    """Check filters given by name: those that `app.dead_letters.list`, the API and the command line accept."""
    fields = known_filters(given, DeadLetterFilters.__annotations__)
    for name, kind in (("status", DeadLetterStatus), ("error_class", ErrorClass)):
        if name in fields:
            require_one_of(name, fields[name], get_args(kind))
    if not isinstance(fields.get("acknowledged", True), bool):
        raise InvalidOption("acknowledged", fields["acknowledged"], "True or False")
    return DeadLetterFilter(**fields)


def matching_contents(args: Mapping[str, str], error: str | None) -> Callable[[Job], bool]:
    """Whether a job has these values in its arguments, by their paths, and this text in its error."""
    for path, value in args.items():
        check_words("args", path)
        check_words("args", value)
    wanted = None if error is None else check_words("error", error).casefold()

    def matches(job: Job) -> bool:
        if wanted is not None and wanted not in f"{job.error_type or ''}\n{job.last_error or ''}".casefold():
            return False
        if not args:
            return True
        try:
            payload = json.loads(job.payload)
        except (ValueError, RecursionError):
            return False
        return all(_text_at(payload, path.split(".")) == value for path, value in args.items())

    return matches


def _text_at(value: Any, path: list[str]) -> str | None:
    """What stands at a path in JSON, as text; None: nothing that is one value."""
    for part in path:
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        elif isinstance(value, dict) and part in value:
            value = value[part]
        else:
            return None
    return value if isinstance(value, str) else None if isinstance(value, (dict, list)) else json.dumps(value)


def filter_words(words: Iterable[str], known: tuple[str, ...]) -> dict[str, Any]:
    """Parse filters written as words: `status:failed,dead type:mail.send correlation_id:"order 7"`.

    Several words must all match, several values of `status` match any. Refuses a name that is not `known`.
    """
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
            found[name] = value
    return found


def known_filters(given: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The given filters without those that are None; refuses unknown names and values that are not text."""
    for name in given:
        if name not in known:
            raise InvalidOption("filter", name, f"one of {', '.join(known)}.{nearest(name, known)}")
    fields = {name: value for name, value in given.items() if value is not None}
    if isinstance(fields.get("correlation_id"), UUID):
        fields["correlation_id"] = str(fields["correlation_id"])
    for name in _TEXTS & fields.keys():
        check_words(name, fields[name])
    return fields


def require_one_of(option: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidOption(option, value, f"one of {', '.join(known)}.{nearest(value, known)}")


def seq_before(before: int | None) -> Seq | None:
    return None if before is None else row_id("before", before)


def page_size(limit: object) -> int:
    return whole_number("limit", limit, MAX_PAGE)


def whole_number(option: str, value: object, highest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= highest:
        raise InvalidOption(option, value, f"a whole number from 1 to {highest}")
    return value


def _split(words: Iterable[str]) -> list[str]:
    try:
        return [part for word in words for part in shlex.split(word)]
    except ValueError as error:
        raise InvalidOption("filter", " ".join(words), f"balanced quotes ({error})") from None
