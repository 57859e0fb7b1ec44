"""`app.limits`: limits declared by code or set at run time, and pauses after a provider's 429."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Unpack

from fairlane.client.admin.job_keys import KeyVerbs, check_key_name
from fairlane.client.context import in_scope, job_in_force, require_tenant
from fairlane.client.enqueue.options import seconds
from fairlane.client.enqueue.quotas import RateLike, rate_or_none
from fairlane.client.handle import BY_DEFAULT, ActOptions, audited
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.ids import EVERY_TENANT
from fairlane.core.limits import FullPolicy, Limit, LimitKey, LimitKind, StoredLimit, check_limit
from fairlane.core.names import check_limit_name, check_queue_name, check_task_name, check_tenant
from fairlane.core.ops import ClearLimit, Limits, ListLimits, PauseLimit, SetLimit
from fairlane.errors import InvalidOption

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

_CHECKS = {"queue": check_queue_name, "type": check_task_name, "named": check_limit_name, "key": check_key_name}


def limit_key(
    *,
    queue: str | None = None,
    tenant: str | int | None = None,
    task: str | None = None,
    name: str | None = None,
    key: str | None = None,
) -> LimitKey:
    """The target of a limit: a queue, a task, a tenant (`*`: every tenant) in one queue or in all, its own name, or
    each key of a name."""
    if tenant is not None:
        if task is not None or name is not None or key is not None:
            raise InvalidOption("tenant", tenant, "alone or with a queue, not with a task, a name or a key")
        whose = EVERY_TENANT if tenant == EVERY_TENANT else check_tenant(tenant)
        return LimitKey("tenant", whose, check_queue_name(queue) if queue else "")
    kinds: tuple[LimitKind, ...] = ("queue", "type", "named", "key")
    given = [(kind, one) for kind, one in zip(kinds, (queue, task, name, key), strict=True) if one]
    if len(given) != 1:
        raise InvalidOption(
            "limit on",
            [one for _, one in given] or None,
            "exactly one queue, tenant, task, name or key, or a tenant and a queue",
        )
    [(kind, one)] = given
    return LimitKey(kind, _CHECKS[kind](one))


class NamedLimit(Verbs):
    """A limit that several tasks share.

    Declared by `smtp = app.limits.declare("smtp", rate="100/min")`, used by `@app.task(limit=smtp)`.
    """

    __slots__ = ("limit",)

    def __init__(self, limit: Limit, runtime: Runtime) -> None:
        self.limit, self._runtime = limit, runtime

    @property
    def name(self) -> str:
        return self.limit.name

    def _pause_for(self, span: float | timedelta) -> Steps[datetime]:
        """Start no job under this limit for a while, on any worker, as after a 429; returns the end of the pause.

        Never shortens a longer pause.
        """
        op = PauseLimit(kind="named", name=self.name, for_s=seconds("for", span), by=_who())
        return (yield from ask(op)).until

    pause_for, apause_for = both(_pause_for, Right.ACT)

    def __repr__(self) -> str:
        return f"<limit {self.name}>"


def limit_names(given: object) -> tuple[str, ...]:
    """The names in a task's `limit=`: one or several, each a name or what `app.limits.declare(…)` returned."""
    several: Iterable[object] = given if isinstance(given, (tuple, list)) else (given,)
    names = []
    for one in several:
        if not isinstance(one, (str, NamedLimit)):
            raise InvalidOption("limit", one, 'a name, or what app.limits.declare("…") returned')
        names.append(check_limit_name(one if isinstance(one, str) else one.name))
    return tuple(names)


class LimitAdmin(KeyVerbs):
    """Methods for limits."""

    __slots__ = ()

    @property
    def declared(self) -> tuple[Limit, ...]:
        """Limits of settings and code. Limits set at run time, which override them, are in `list()`."""
        return self._runtime.limits.gathered()

    def declare(self, name: str, *, running: int | None = None, rate: RateLike | None = None) -> NamedLimit:
        """Declare a limit shared by tasks in all processes: how many run at once, or start in a span."""
        return NamedLimit(self._runtime.limits.declare(name, running, rate), self._runtime)

    def _list(self) -> Steps[tuple[StoredLimit, ...]]:
        """Every limit set at run time, with who set it; limits of the code are in `declared`."""
        return _admitted((yield from ask(ListLimits())))

    def _set(
        self,
        *,
        queue: str | None = None,
        tenant: str | int | None = None,
        task: str | None = None,
        name: str | None = None,
        key: str | None = None,
        running: int | None = None,
        rate: RateLike | None = None,
        waiting: int | None = None,
        when_full: FullPolicy | None = None,
        enqueue_rate: RateLike | None = None,
        payload_bytes: int | None = None,
        types: Sequence[str] = (),
        **about: Unpack[ActOptions],
    ) -> Steps[tuple[StoredLimit, ...]]:
        """Set the limit of one queue, tenant (`*`: every tenant), task, name, or of each key of a name, at run time.

        For all workers; -1 is no limit. Replaces the limit set before, and overrides the limit of the code.
        `types` are the tasks that share a named limit.
        """
        target = limit_key(queue=queue, tenant=tenant, task=task, name=name, key=key)
        limit = Limit(
            kind=target.kind,
            name=target.name,
            queue=target.queue,
            running=running,
            rate=rate_or_none("rate", rate),
            waiting=waiting,
            when_full=when_full,
            enqueue_rate=rate_or_none("enqueue_rate", enqueue_rate),
            payload_bytes=payload_bytes,
            types=tuple(types),
        )
        if limit == Limit(kind=target.kind, name=target.name, queue=target.queue):
            raise InvalidOption("limit", None, "at least one figure; to take back what was set, clear the limit")
        _require_tenant_of(target)
        return _admitted((yield from ask(SetLimit(limit=check_limit(limit), **audited(about)))))

    def _clear(
        self,
        *,
        queue: str | None = None,
        tenant: str | int | None = None,
        task: str | None = None,
        name: str | None = None,
        key: str | None = None,
        **about: Unpack[ActOptions],
    ) -> Steps[bool]:
        """Remove a limit set at run time; the limit of the code applies again. False if none was set."""
        target = limit_key(queue=queue, tenant=tenant, task=task, name=name, key=key)
        _require_tenant_of(target)
        op = ClearLimit(kind=target.kind, name=target.name, queue=target.queue, **audited(about))
        return (yield from ask(op)).changed

    def _pause(
        self,
        span: float | timedelta,
        *,
        queue: str | None = None,
        tenant: str | int | None = None,
        task: str | None = None,
        name: str | None = None,
        key: str | None = None,
    ) -> Steps[datetime]:
        """Start no job under a limit for a while, on any worker; returns the end of the pause."""
        target = limit_key(queue=queue, tenant=tenant, task=task, name=name, key=key)
        if target.kind == "tenant":  # Any job may pause a queue, a task or a provider.
            _require_tenant_of(target)
        if target.name == EVERY_TENANT:
            raise InvalidOption("tenant", tenant, "one tenant; to stop everybody, pause the queues")
        op = PauseLimit(kind=target.kind, name=target.name, queue=target.queue, for_s=seconds("for", span), by=_who())
        return (yield from ask(op)).until

    list, alist = both(_list, Right.READ)
    set, aset = both(_set, Right.ACT)
    clear, aclear = both(_clear, Right.ACT)
    pause, apause = both(_pause, Right.ACT)


def _require_tenant_of(key: LimitKey) -> None:
    is_one_tenants = key.kind == "tenant" and key.name != EVERY_TENANT
    require_tenant(key.name if is_one_tenants else None, f'the limit of {key.kind} "{key.name}"')


def _admitted(answer: Limits) -> tuple[StoredLimit, ...]:
    """The limits visible in the caller's context."""
    scope = in_scope(None)
    return tuple(
        kept
        for kept in answer.limits
        if kept.limit.kind != "tenant" or kept.limit.name == EVERY_TENANT or scope.admits(kept.limit.name)
    )


def _who() -> str:
    job = job_in_force.get()
    return BY_DEFAULT if job is None else f"job:{job.id}"
