"""Rights of the API's callers: which verbs a role may call, and which contents it may see.

Each verb of `app.jobs`, `app.dead_letters`, … declares its right: `both(_cancel, Right.ACT)`. Application code, workers
and the command line call verbs without roles in force, and are not restricted. Inside `holding(roles)` a verb that
these roles do not grant raises `RoleMissing` before anything is read or changed, and an answer hides the contents that
they may not see. docs/guides/http-api.md has the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from enum import StrEnum
from functools import cache
from types import NoneType
from typing import Any, TypeVar, get_args, get_type_hints

from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.job import PRIORITY_HEADER, Attempt, DeadLetter, Job, StepRecord
from fairlane.core.ops import (
    AuditPage,
    AuditRecord,
    CaughtException,
    DeadLetterDetail,
    DeadLetterGroup,
    Event,
    JobDetail,
    Pause,
    Signal,
    Silence,
)
from fairlane.core.schedules import ScheduleSpec
from fairlane.core.workflows import Node
from fairlane.errors import RoleMissing

T = TypeVar("T")

VIEWER, OPERATOR, STAFF, MANAGER, ADMIN, METRICS = "viewer", "operator", "staff", "manager", "admin", "metrics"
ROLES = (VIEWER, OPERATOR, STAFF, MANAGER, ADMIN, METRICS)


class Right(StrEnum):
    """What a verb, a route or a field requires. There is no default."""

    OPEN = "open"
    """Nothing, not even a credential: health and login."""
    KNOWN = "known"
    """Any valid credential: its own identity, and logging out."""
    METRICS = "metrics"
    READ = "read"
    """States, counts, times and names."""
    CONTENTS = "contents"
    """Payloads, results, error texts, logs and notes of live jobs: all jobs except dead ones."""
    ACT = "act"
    """Acts on live jobs and on what governs them."""
    MANAGE = "manage"
    """Dead letters: their contents, and every act on them."""
    TOKENS = "tokens"
    NOBODY = "nobody"
    """Application code and the command line only."""


_MANAGERS = frozenset({STAFF, MANAGER})
GRANTS: Mapping[Right, tuple[frozenset[str], ...]] = {
    Right.OPEN: (frozenset(),),
    Right.KNOWN: tuple(frozenset({role}) for role in ROLES),
    Right.METRICS: (frozenset({METRICS}), *(frozenset({role}) for role in ROLES if role != METRICS)),
    Right.READ: tuple(frozenset({role}) for role in ROLES if role != METRICS),
    Right.CONTENTS: (frozenset({OPERATOR}), _MANAGERS),
    Right.ACT: (frozenset({OPERATOR}), _MANAGERS),
    Right.MANAGE: (_MANAGERS,),
    Right.TOKENS: (frozenset({ADMIN}),),
    Right.NOBODY: (),
}
"""Each right is granted by any of these sets of roles; a refusal names the first."""

roles_in_force: ContextVar[frozenset[str] | None] = ContextVar("fairlane_roles", default=None)
"""The roles of the caller for whom this code runs; None: the application itself."""


def missing_roles(roles: Iterable[str], right: Right) -> tuple[str, ...]:
    """The roles that are missing for a right; empty if none is. `NOBODY` misses a role that does not exist."""
    held, sets = frozenset(roles), GRANTS[right]
    if any(needed <= held for needed in sets):
        return ()
    return tuple(role for role in ROLES if role in sets[0] - held) if sets else ("none",)


def may(roles: Iterable[str], right: Right) -> bool:
    return not missing_roles(roles, right)


@contextmanager
def holding(roles: Iterable[str] | None) -> Iterator[None]:
    """Code inside acts with these roles; None: as the application itself, whatever the surrounding context."""
    token = roles_in_force.set(None if roles is None else frozenset(roles))
    try:
        yield
    finally:
        roles_in_force.reset(token)


def require_right(right: Right) -> None:
    """Refuse what the roles in force do not grant."""
    roles = roles_in_force.get()
    if roles is not None and (missing := missing_roles(roles, right)):
        raise RoleMissing(missing)


def right_of(verb: Callable[..., Any]) -> Right:
    """The right that a verb declares."""
    found: Right = getattr(verb, DECLARED)
    return found


DECLARED = "__fairlane_right__"

_CONTENTS: Mapping[type[Struct], Mapping[str, Any]] = {
    Job: {"payload": "null", "headers": {}, "result": None, "last_error": None},
    Attempt: {"error_message": None, "traceback": None},
    JobDetail: {"log": ()},
    Node: {"last_error": None},
    DeadLetter: {"reason": "", "resolution_notes": None},
    DeadLetterGroup: {"reason": ""},
    AuditRecord: {"notes": None},
    CaughtException: {"error": ""},
    Pause: {"notes": None},
    Silence: {"notes": None},
    ScheduleSpec: {"payload": "null"},
    StepRecord: {"result": None},
    Signal: {"data": "null"},
}
"""The fields that are contents, each with the value shown instead to those who may not see it."""

_PLAIN = frozenset({bool, int, float, str, datetime, NoneType})

_NAMES = frozenset(
    {
        *("about", "acknowledged_by", "action", "catch_up", "category", "correlation_id", "cron", "enqueue_rate"),
        *("error_class", "error_type", "fingerprint", "id", "job_id", "kind", "level", "name"),
        *("new_job_id", "organization", "overlap", "queue", "rate", "rule", "schedule", "severity"),
        *("source", "state", "status", "target", "tenant", "text", "tier", "timezone"),
        *("type", "until", "when_full", "why", "worker"),
    }
)
"""Text in events and audit records that is a name, a state or a time; text under any other key counts as contents."""


def visible(value: T, roles: Iterable[str] | None = None) -> T:
    """The value without contents that these roles, by default those in force, may not see.

    Hidden at any depth of Structs and tuples. Audit records about credentials are left out for those who may not list
    credentials.
    """
    held = roles_in_force.get() if roles is None else frozenset(roles)
    if held is None:
        return value
    rights = frozenset(right for right in Right if may(held, right))
    return _visible(value, Right.MANAGE, rights)  # type: ignore[no-any-return]


def _visible(value: Any, needed: Right, rights: frozenset[Right]) -> Any:
    if isinstance(value, (tuple, list)):
        return type(value)(_visible(one, needed, rights) for one in value)
    if not isinstance(value, Struct) or _is_plain(type(value)):
        return value
    needed = _needed(value, needed)
    if isinstance(value, AuditPage):
        records = tuple(one for one in value.records if _needed(one, needed) in rights or not _is_about_access(one))
        value = replace(value, records=records)
    shown = {
        name: _visible(inner, needed, rights)
        for name in value.__struct_fields__
        if isinstance(inner := getattr(value, name), (Struct, tuple, list))
    }
    if needed not in rights:
        shown |= _CONTENTS.get(type(value), {})
        if isinstance(value, Job) and (label := value.priority_label) is not None:
            shown["headers"] = {PRIORITY_HEADER: label}
        if isinstance(value, (Event, AuditRecord)):
            data = {name: getattr(value, name, None) for name in ("data", "before", "after")}
            shown |= {name: _names(given) for name, given in data.items() if given}
    return replace(value, **shown)


@cache
def _is_plain(kind: type[Struct]) -> bool:
    """Whether values of this kind hold no contents, and nothing that could: only numbers, names and instants.

    Rows of statistics are many: looked through one by one, they were a third of the time a page of charts took.
    """
    if issubclass(kind, (*_CONTENTS, Event, AuditRecord)):
        return False
    return all(_PLAIN.issuperset(get_args(one) or (one,)) for one in get_type_hints(kind).values())


def _needed(value: Struct, outer: Right) -> Right:
    """The right to see the contents of a value; those of an attempt are its job's."""
    match value:
        case Job(status=status) | JobDetail(job=Job(status=status)) | Node(status=status):
            return Right.MANAGE if status == "dead" else Right.CONTENTS
        case DeadLetter() | DeadLetterDetail() | DeadLetterGroup() | Event(kind="job_dead"):
            return Right.MANAGE
        case CaughtException():
            return Right.MANAGE  # its job may have died since
        case AuditRecord(target=target):
            is_of_dead = target.startswith("dead_letter:")
            return Right.TOKENS if _is_about_access(value) else Right.MANAGE if is_of_dead else Right.CONTENTS
        case Event() | Pause() | Silence() | ScheduleSpec() | Signal():
            return Right.CONTENTS
        case _:
            return outer


def _is_about_access(record: AuditRecord) -> bool:
    return record.target.partition(":")[0] in {"token", "link", "session"}


def _names(data: Any) -> Any:
    """Numbers, names, states and times of an event or an audit record; other text is hidden."""
    return {
        key: _names(inner) if isinstance(inner, dict) else inner if key in _NAMES or not _has_text(inner) else None
        for key, inner in data.items()
    }


def _has_text(value: object) -> bool:
    return isinstance(value, (str, list, tuple))
