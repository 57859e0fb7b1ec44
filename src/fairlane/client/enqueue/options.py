"""The options of `using(…)`, each checked when it is given."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict, get_args
from uuid import UUID

from msgspec import Meta, Struct
from msgspec.structs import replace

from fairlane.core.ids import JobId, Seq, SystemTenant
from fairlane.core.job import OWN_HEADERS
from fairlane.core.job_keys import NO_KEY, JobKey, KeyRule, OnConflict, check_job_key, key_terms
from fairlane.core.limits import read_rate
from fairlane.core.names import check_key, check_own_tenant, check_queue_name
from fairlane.core.retry import LONGEST_DELAY_S, MAX_ATTEMPTS, Retry
from fairlane.errors import InvalidOption, nearest

if TYPE_CHECKING:
    from fairlane.client.handle import Handle
    from fairlane.core.job import Job, Priorities

OnDuplicate = Literal["return", "raise"]
NO_TENANT = ""
LONGEST_TIMEOUT_S = 7 * 86_400.0


class EnqueueOptions(TypedDict, total=False):
    """The options of `task.using(…)`, for code that passes them on."""

    tenant: str | int | SystemTenant
    """`SYSTEM` is the application itself, which no text names."""
    priority: str | int
    delay: float | timedelta
    """Seconds from the store's now."""
    run_at: datetime
    idempotency_key: str
    """Unique per tenant while the job is kept."""
    dedup_key: str
    """Unique per tenant and type while the job is unfinished."""
    key: str | JobKey | None
    """The key whose places it waits for, as `"import:42"`; None: no key, though the task has one."""
    ordered: bool
    """Jobs with its key run one after the other, as they were enqueued."""
    on_conflict: OnConflict
    """What happens while its key has no place: it waits, is discarded, or replaces jobs that wait or run."""
    correlation_id: str | UUID
    parent: Handle[Any] | Job | UUID | str
    created_by: str
    max_attempts: int
    retry: Retry
    timeout: float | timedelta
    queue: str
    refs: Mapping[str, int | str]
    """The ids of the objects the job works on."""
    headers: Mapping[str, str]
    conn: object
    """Your own connection or session: the job commits and rolls back with your data."""
    on_duplicate: OnDuplicate
    id: UUID | str
    """A job id of your own, so that a whole request can be repeated."""


class Options(Struct, frozen=True):
    """The options, checked and normalized."""

    tenant: str | None = None
    """Empty: None was given, instead of a tenant."""
    priority: int | None = None
    priority_label: str | None = None
    """The label that `priority` was given by."""
    delay: Annotated[float, Meta(ge=0, le=LONGEST_DELAY_S)] | None = None
    run_at: datetime | None = None
    idempotency_key: str | None = None
    dedup_key: str | None = None
    key: str | JobKey | None = None
    """Empty: None was given, instead of the task's own."""
    ordered: bool | None = None
    on_conflict: OnConflict | None = None
    correlation_id: str | None = None
    parent: JobId | None = None
    created_by: str | None = None
    max_attempts: Annotated[int, Meta(ge=1, le=MAX_ATTEMPTS)] | None = None
    retry: Retry | None = None
    timeout: Annotated[float, Meta(ge=0.001, le=LONGEST_TIMEOUT_S)] | None = None
    queue: str | None = None
    refs: dict[str, int | str] = {}
    headers: dict[str, str] = {}
    conn: Any = None
    on_duplicate: OnDuplicate = "return"
    id: JobId | None = None

    def given(self) -> dict[str, Any]:
        """The options that differ from the default, as `using` takes them."""
        found = {name: getattr(self, name) for name in _CHECKS if getattr(self, name) != getattr(_DEFAULTS, name)}
        if self.priority_label is not None:
            found["priority"] = self.priority_label
        return found

    def changed(self, given: Mapping[str, Any], priorities: Priorities, keys: KeyRule | None = None) -> Options:
        """A copy with the given options, for a task with these keys; None removes one."""
        changes: dict[str, Any] = {}
        for name, value in given.items():
            check = _CHECKS.get(name)
            if check is None:
                raise InvalidOption("option", name, f"one of {', '.join(_CHECKS)}.{nearest(name, _CHECKS)}")
            if name == "priority":
                changes["priority_label"] = value if isinstance(value, str) else None
            if value is None:
                changes[name] = _NONE[name]
            elif name == "priority":
                changes[name] = priorities.resolve(value)
            else:
                changes[name] = check(value)
        if changes.get("delay") is not None and changes.get("run_at") is not None:
            raise InvalidOption("delay", given["delay"], "either delay or run_at, not both")
        if changes.get("delay") is not None:
            changes.setdefault("run_at", None)
        elif changes.get("run_at") is not None:
            changes.setdefault("delay", None)
        found = replace(self, **changes)
        if not _OF_KEYS.isdisjoint(given):
            found.key_terms(keys)
        return found

    def key_terms(self, keys: KeyRule | None) -> JobKey | None:
        """The key of a job, but for its value where that comes from its arguments."""
        return key_terms(keys, self.key, self.ordered, self.on_conflict)

    def key_of(self, args: Mapping[str, Any], keys: KeyRule | None) -> JobKey | None:
        """The key of the job with these arguments."""
        terms = self.key_terms(keys)
        return terms if terms is None or keys is None or self.key is not None else keys.key_of(args, terms)


def seconds(option: str, value: object, *, at_least: float = 0.0, at_most: float = LONGEST_DELAY_S) -> float:
    """A span as seconds: a number or a timedelta."""
    span = value.total_seconds() if isinstance(value, timedelta) else value
    if (
        isinstance(span, bool)
        or not isinstance(span, (int, float))
        or (isinstance(span, float) and not math.isfinite(span))
    ):
        raise InvalidOption(option, value, "seconds as a number, or a timedelta")
    if not at_least <= span <= at_most:
        raise InvalidOption(option, value, f"from {at_least:g} to {at_most:.0f} seconds")
    return float(span)


def row_id(option: str, value: object, expected: str = "a whole number of 64 bits") -> Seq:
    """The range of row numbers in a store."""
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        raise InvalidOption(option, value, expected)
    return Seq(value)


def timeout_s(value: object) -> float:
    return seconds("timeout", value, at_least=0.001, at_most=LONGEST_TIMEOUT_S)


def attempts(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_ATTEMPTS:
        raise InvalidOption("max_attempts", value, f"a whole number from 1 to {MAX_ATTEMPTS}")
    return value


def retry_policy(value: object) -> Retry:
    if not isinstance(value, Retry):
        raise InvalidOption("retry", value, "a Retry(…)")
    return value


def job_id(option: str, value: object) -> JobId:
    """The id of a job given as a UUID, its text, a handle or a job."""
    found = getattr(value, "id", value)
    if isinstance(found, UUID):
        return JobId(found)
    if isinstance(found, str):
        try:
            return JobId(UUID(found))
        except ValueError:
            pass
    raise InvalidOption(option, value, "a job's id (a UUID or its text), a handle or a job")


def instant(option: str, value: object) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None or value.utcoffset() is None:
        raise InvalidOption(option, value, "a datetime with a time zone, such as datetime(2030, 1, 1, tzinfo=UTC)")
    return value


def _correlation(value: object) -> str:
    return str(value) if isinstance(value, UUID) else check_key("correlation_id", value)


def _refs(value: object) -> dict[str, int | str]:
    expected = "a mapping of names to ids, each a whole number or text"
    if not isinstance(value, Mapping):
        raise InvalidOption("refs", value, expected)
    for name, ref in value.items():
        check_key("a name in refs", name)
        if isinstance(ref, bool) or not isinstance(ref, (int, str)):
            raise InvalidOption(f"refs[{name!r}]", ref, "a whole number or text")
        if isinstance(ref, str):
            check_key(f"refs[{name!r}]", ref)
        elif not -(2**63) <= ref < 2**63:
            raise InvalidOption(f"refs[{name!r}]", ref, "a whole number of 64 bits; give larger ones as text")
    return dict(value)


def checked_headers(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidOption("headers", value, "a mapping of text to text")
    for name, text in value.items():
        check_key("a name in headers", name)
        if name.lower().startswith(OWN_HEADERS):
            raise InvalidOption(
                "a name in headers", name, f'none that begins with "{OWN_HEADERS}": Fairlane sets those'
            )
        check_key(f"headers[{name!r}]", text)
    return dict(value)


def _key(value: object) -> str | JobKey:
    if not isinstance(value, JobKey):
        return check_job_key(JobKey(value=check_key("key", value))).value
    return check_job_key(value if value.rate is None else replace(value, rate=read_rate("rate", value.rate)))


def _on_duplicate(value: object) -> OnDuplicate:
    if value == "return":
        return "return"
    if value == "raise":
        return "raise"
    raise InvalidOption("on_duplicate", value, f"one of {', '.join(get_args(OnDuplicate))}")


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "tenant": check_own_tenant,
    "priority": int,
    "delay": lambda value: seconds("delay", value),
    "run_at": lambda value: instant("run_at", value),
    "idempotency_key": lambda value: check_key("idempotency_key", value),
    "dedup_key": lambda value: check_key("dedup_key", value),
    "key": _key,
    "ordered": lambda value: value,
    "on_conflict": lambda value: value,
    "correlation_id": _correlation,
    "parent": lambda value: job_id("parent", value),
    "created_by": lambda value: check_key("created_by", value),
    "max_attempts": attempts,
    "retry": retry_policy,
    "timeout": timeout_s,
    "queue": check_queue_name,
    "refs": _refs,
    "headers": checked_headers,
    "conn": lambda value: value,
    "on_duplicate": _on_duplicate,
    "id": lambda value: job_id("id", value),
}
_OF_KEYS = frozenset({"key", "ordered", "on_conflict"})
_DEFAULTS = Options()
_NONE = {name: getattr(_DEFAULTS, name) for name in _CHECKS} | {"tenant": NO_TENANT, "key": NO_KEY}
