"""Limits of an application: what its code allows, what people set at run time, and a pause after a provider's 429."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from fairlane.client.context import job_in_force
from fairlane.client.enqueue.options import seconds
from fairlane.client.handle import BY_DEFAULT
from fairlane.client.settings.model import Settings
from fairlane.client.steps import Ask, both
from fairlane.client.tenant_scope import in_scope, require_tenant
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import FullPolicy, Limit, LimitKey, LimitKind, Rate, StoredLimit, check_limit, read_rate
from fairlane.core.names import check_key, check_limit_name, check_queue_name, check_task_name, check_tenant
from fairlane.core.ops import ClearLimit, LimitPaused, Limits, ListLimits, PauseLimit, SetLimit
from fairlane.errors import InvalidOption

if TYPE_CHECKING:
    from fairlane.client.store_access import StoreAccess
    from fairlane.client.task import Definition

_CHECKS = {"queue": check_queue_name, "type": check_task_name, "named": check_limit_name}
RateLike = str | int | Rate
"""`"50/min"`, a number of starts a minute, or a Rate."""


def limit_key(
    *, queue: str | None = None, tenant: str | int | None = None, task: str | None = None, name: str | None = None
) -> LimitKey:
    """What a limit is about: one queue, task, tenant (`*`: every tenant; with a queue: in it) or the limit's own name."""
    if tenant is not None:
        if task is not None or name is not None:
            raise InvalidOption("tenant", tenant, "alone or with a queue, not with a task or a name")
        whose = EVERY_TENANT if tenant == EVERY_TENANT else check_tenant(tenant)
        return LimitKey("tenant", whose, check_queue_name(queue) if queue else "")
    kinds: tuple[LimitKind, ...] = ("queue", "type", "named")
    given = [(kind, one) for kind, one in zip(kinds, (queue, task, name), strict=True) if one]
    if len(given) != 1:
        raise InvalidOption(
            "queue, tenant, task, name", [one for _, one in given], "exactly one, or a tenant and a queue"
        )
    [(kind, one)] = given
    return LimitKey(kind, _CHECKS[kind](one))


class NamedLimit:
    """A limit that several tasks share: `smtp = app.limit("smtp", rate="100/min")`, then `@app.task(limit=smtp)`."""

    __slots__ = ("_access", "limit")

    def __init__(self, limit: Limit, access: StoreAccess) -> None:
        self.limit, self._access = limit, access

    @property
    def name(self) -> str:
        return self.limit.name

    def pause_for(self, span: float | timedelta) -> datetime:
        """Start nothing under this limit for a while, anywhere, as after a 429; until when. Never shortens a longer pause."""
        return self._access.run(self._pause(span)).until

    async def apause_for(self, span: float | timedelta) -> datetime:
        return (await self._access.arun(self._pause(span))).until

    def __repr__(self) -> str:
        return f"<limit {self.name}>"

    def _pause(self, span: float | timedelta) -> PauseLimit:
        return PauseLimit(kind="named", name=self.name, for_s=seconds("for", span), by=_who())


class CodeLimits:
    """What an application's settings and tasks allow, gathered as limits."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._named: dict[str, Limit] = {}
        self._shared: dict[str, list[str]] = {}
        self._tasks: list[Limit] = []
        self._all: tuple[Limit, ...] | None = None

    def declare(self, name: str, running: int | None, rate: RateLike | None) -> Limit:
        """Note a named limit, once for each name; without figures: as it was declared, or as people set it."""
        checked = check_limit_name(name)
        limit = Limit(
            kind="named", name=checked, running=running, rate=None if rate is None else read_rate("rate", rate)
        )
        first = self._named.setdefault(checked, check_limit(limit))
        if (running, rate) != (None, None) and first != limit:
            if (first.running, first.rate) != (None, None):
                raise InvalidOption("limit", name, f"the same figures everywhere: it was {first} before")
            first = self._named[checked] = limit
        self._all = None
        return first

    def add_task(self, task: Definition[Any]) -> None:
        for name in task.limits:
            self.declare(name, None, None)
            self._shared.setdefault(name, []).append(task.name)
        if task.running is not None or task.rate is not None:
            self._tasks.append(check_limit(Limit(kind="type", name=task.name, running=task.running, rate=task.rate)))
        self._all = None

    def gathered(self) -> tuple[Limit, ...]:
        if self._all is None:
            self._all = tuple(self._gather())
        return self._all

    def _gather(self) -> Iterator[Limit]:
        settings = self._settings
        for policy in settings.queues.values():
            yield from policy.limits()
        every = Limit(
            kind="tenant",
            name=EVERY_TENANT,
            running=settings.tenant_running,
            rate=_rate_or_none("tenant_rate", settings.tenant_rate),
            enqueue_rate=_rate_or_none("tenant_enqueue_rate", settings.tenant_enqueue_rate),
            payload_bytes=settings.tenant_payload_bytes,
        )
        if every != Limit(kind="tenant", name=EVERY_TENANT):
            yield every
        yield from self._tasks
        for name, limit in self._named.items():
            yield Limit(
                kind="named",
                name=name,
                running=limit.running,
                rate=limit.rate,
                types=tuple(sorted(self._shared.get(name, ()))),
            )


def limit_names(given: object) -> tuple[str, ...]:
    """The named limits a task is under, from `limit=`: one or several, by name or as `app.limit(…)` returned them."""
    several: Iterable[object] = given if isinstance(given, (tuple, list)) else (given,)
    names = []
    for one in several:
        if not isinstance(one, (str, NamedLimit)):
            raise InvalidOption("limit", one, 'a name, or what app.limit("…") returned')
        names.append(check_limit_name(one if isinstance(one, str) else one.name))
    return tuple(names)


def _limits_kept() -> Ask[Limits, tuple[StoredLimit, ...]]:
    """Every limit set at run time, with who set it; what the code allows is `app.limits`."""
    return Ask(ListLimits(), _admitted)


def _set_limit(
    *,
    queue: str | None = None,
    tenant: str | int | None = None,
    task: str | None = None,
    name: str | None = None,
    running: int | None = None,
    rate: RateLike | None = None,
    waiting: int | None = None,
    when_full: FullPolicy | None = None,
    enqueue_rate: RateLike | None = None,
    payload_bytes: int | None = None,
    by: str = BY_DEFAULT,
    notes: str | None = None,
) -> Ask[Limits, tuple[StoredLimit, ...]]:
    """Set what one queue, tenant (`*`: every tenant), task or named limit is allowed, at run time and everywhere; -1: no limit.

    It takes the place of what was set for it before, and wins over what the code allows.
    """
    key = limit_key(queue=queue, tenant=tenant, task=task, name=name)
    limit = Limit(
        kind=key.kind,
        name=key.name,
        queue=key.queue,
        running=running,
        rate=_rate_or_none("rate", rate),
        waiting=waiting,
        when_full=when_full,
        enqueue_rate=_rate_or_none("enqueue_rate", enqueue_rate),
        payload_bytes=payload_bytes,
    )
    if limit == Limit(kind=key.kind, name=key.name, queue=key.queue):
        raise InvalidOption("limit", None, "at least one figure; to take back what was set, clear the limit")
    _require_tenant_of(key)
    return Ask(SetLimit(limit=check_limit(limit), by=check_key("by", by), notes=notes), _admitted)


def _clear_limit(
    *,
    queue: str | None = None,
    tenant: str | int | None = None,
    task: str | None = None,
    name: str | None = None,
    by: str = BY_DEFAULT,
    notes: str | None = None,
) -> Ask[Limits, bool]:
    """Take back what was set at run time: what the code allows is in force again. False: nothing was set."""
    key = limit_key(queue=queue, tenant=tenant, task=task, name=name)
    _require_tenant_of(key)
    op = ClearLimit(kind=key.kind, name=key.name, queue=key.queue, by=check_key("by", by), notes=notes)
    return Ask(op, lambda answer: answer.changed)


def _pause_limit(
    span: float | timedelta,
    *,
    queue: str | None = None,
    tenant: str | int | None = None,
    task: str | None = None,
    name: str | None = None,
) -> Ask[LimitPaused, datetime]:
    """Start nothing of it for a while, anywhere; until when."""
    key = limit_key(queue=queue, tenant=tenant, task=task, name=name)
    if key.kind == "tenant":  # any job may say that a queue, a task or a provider needs a rest
        _require_tenant_of(key)
    if key.name == EVERY_TENANT:
        raise InvalidOption("tenant", tenant, "one tenant; to stop everybody, pause the queues")
    op = PauseLimit(kind=key.kind, name=key.name, queue=key.queue, for_s=seconds("for", span), by=_who())
    return Ask(op, lambda paused: paused.until)


class Limiting:
    """The verbs of `Fairlane` about limits."""

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

        code_limits: CodeLimits

    @property
    def limits(self) -> tuple[Limit, ...]:
        """What settings and code allow. What people set at run time is added, and wins: `limits_kept()`."""
        return self.code_limits.gathered()

    def limit(self, name: str, *, running: int | None = None, rate: RateLike | None = None) -> NamedLimit:
        """A limit that tasks share, over all processes: so many at once, so many starts in a span (`"100/min"`)."""
        return NamedLimit(self.code_limits.declare(name, running, rate), self.access)

    limits_kept, alimits_kept = both(_limits_kept)
    set_limit, aset_limit = both(_set_limit)
    clear_limit, aclear_limit = both(_clear_limit)
    pause_limit, apause_limit = both(_pause_limit)


def _rate_or_none(option: str, given: RateLike | None) -> Rate | None:
    return None if given is None else read_rate(option, given)


def _require_tenant_of(key: LimitKey) -> None:
    is_one_tenants = key.kind == "tenant" and key.name != EVERY_TENANT
    require_tenant(key.name if is_one_tenants else None, f'the limit of {key.kind} "{key.name}"')


def _admitted(answer: Limits) -> tuple[StoredLimit, ...]:
    """Those a call may see, in the context it is made in."""
    scope = in_scope(None)
    return tuple(
        kept
        for kept in answer.limits
        if kept.limit.kind != "tenant" or kept.limit.name == EVERY_TENANT or scope.admits(kept.limit.name)
    )


def _who() -> str:
    job = job_in_force.get()
    return BY_DEFAULT if job is None else f"job:{job.id}"
