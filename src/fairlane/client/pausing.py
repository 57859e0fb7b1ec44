"""Pausing: stop claims of a queue, a task or a tenant, at run time and over restarts. Enqueueing goes on, and so does what runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from fairlane.client.enqueue.options import seconds
from fairlane.client.handle import BY_DEFAULT, Surroundings
from fairlane.client.steps import Ask, both
from fairlane.client.tenant_scope import in_scope, require_tenant
from fairlane.client.waiting import growing_pauses
from fairlane.core.names import check_key, check_queue_name, check_task_name, check_tenant
from fairlane.core.ops import (
    ALL_TENANTS,
    JobFilter,
    JobPage,
    ListPauses,
    PageJobs,
    Pause,
    PauseClaims,
    PauseKind,
    Pauses,
    ResumeClaims,
    only,
)
from fairlane.errors import InvalidOption, StillRunning

if TYPE_CHECKING:
    from fairlane.client.store_access import StoreAccess

QUIET_S = 3.0
"""Nothing may run for so long before something counts as drained. A worker gives back what it claimed ahead within two seconds of a pause."""

_CHECKS = {"queue": check_queue_name, "type": check_task_name, "tenant": check_tenant}


class Target(NamedTuple):
    """What is paused or drained: one queue, one task or one tenant."""

    kind: PauseKind
    name: str

    def running(self) -> PageJobs:
        where = JobFilter(
            statuses=("processing",),
            queue=self.name if self.kind == "queue" else None,
            type=self.name if self.kind == "type" else None,
        )
        return PageJobs(scope=only(self.name) if self.kind == "tenant" else ALL_TENANTS, where=where, limit=1)

    def __str__(self) -> str:
        return f'{"task" if self.kind == "type" else self.kind} "{self.name}"'


def target(*, queue: str | None = None, type: str | None = None, tenant: str | int | None = None) -> Target:
    kinds: dict[PauseKind, Any] = {"queue": queue, "type": type, "tenant": tenant}
    given = {kind: name for kind, name in kinds.items() if name is not None}
    if len(given) != 1:
        raise InvalidOption("queue, type, tenant", given, "exactly one of them")
    [(kind, name)] = given.items()
    found = Target(kind, _CHECKS[kind](name))
    require_tenant(found.name if kind == "tenant" else None, str(found))
    return found


def _pause(
    *,
    queue: str | None = None,
    type: str | None = None,
    tenant: str | int | None = None,
    by: str = BY_DEFAULT,
    notes: str | None = None,
) -> Ask[Pauses, tuple[Pause, ...]]:
    """From now on nothing of this queue, task (by its type) or tenant is claimed; what runs goes on. All pauses in force."""
    kind, name = target(queue=queue, type=type, tenant=tenant)
    op = PauseClaims(kind=kind, name=name, by=check_key("by", by), notes=notes)
    return Ask(op, lambda answer: answer.pauses)


def _resume(
    *,
    queue: str | None = None,
    type: str | None = None,
    tenant: str | int | None = None,
    by: str = BY_DEFAULT,
    notes: str | None = None,
) -> Ask[Pauses, tuple[Pause, ...]]:
    """Lift a pause; waiting workers are woken. What is not paused stays as it is. All pauses still in force."""
    kind, name = target(queue=queue, type=type, tenant=tenant)
    op = ResumeClaims(kind=kind, name=name, by=check_key("by", by), notes=notes)
    return Ask(op, lambda answer: answer.pauses)


def _pauses() -> Ask[Pauses, tuple[Pause, ...]]:
    """Every pause in force, with who made it and why."""
    scope = in_scope(None)
    return Ask(
        ListPauses(), lambda answer: tuple(p for p in answer.pauses if p.kind != "tenant" or scope.admits(p.name))
    )


class Pausing:
    """The verbs of `Fairlane` that stop and start claims."""

    if TYPE_CHECKING:

        @property
        def access(self) -> StoreAccess: ...

        _around: Surroundings

    pause, apause = both(_pause)
    resume, aresume = both(_resume)
    pauses, apauses = both(_pauses)

    def drain(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        tenant: str | int | None = None,
        timeout: float | timedelta | None = None,
        by: str = BY_DEFAULT,
        notes: str | None = None,
    ) -> None:
        """Pause it, then wait until nothing of it runs. Raises `StillRunning` if something does after `timeout`; it stays paused either way.

        That nothing runs any more is sure only after three seconds of quiet: these are waited for beyond `timeout`, too.
        """
        watch = _Drain(target(queue=queue, type=type, tenant=tenant), self._around, timeout)
        self.pause(queue=queue, type=type, tenant=tenant, by=by, notes=notes)
        for pause_s in watch.pauses():
            if watch.is_over(self.access.run(watch.question)):
                return
            self._around.pause.sleep(pause_s)

    async def adrain(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        tenant: str | int | None = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - the twin of drain(timeout=…)
        by: str = BY_DEFAULT,
        notes: str | None = None,
    ) -> None:
        watch = _Drain(target(queue=queue, type=type, tenant=tenant), self._around, timeout)
        await self.apause(queue=queue, type=type, tenant=tenant, by=by, notes=notes)
        for pause_s in watch.pauses():
            if watch.is_over(await self.access.arun(watch.question)):
                return
            await self._around.pause.asleep(pause_s)


class _Drain:
    """Watches what still runs, look by look."""

    def __init__(self, target: Target, around: Surroundings, timeout: float | timedelta | None) -> None:
        self._target, self._clock = target, around.clock
        self._timeout_s = None if timeout is None else seconds("timeout", timeout)
        self._began_s = self._clock.monotonic()
        self._quiet_since_s: float | None = None
        self.question = target.running()

    def is_over(self, running: JobPage) -> bool:
        now_s = self._clock.monotonic()
        if not running.jobs:
            if self._quiet_since_s is None:
                self._quiet_since_s = now_s
            return now_s - self._quiet_since_s >= QUIET_S
        self._quiet_since_s = None
        if self._timeout_s is not None and now_s - self._began_s >= self._timeout_s:
            raise StillRunning(str(self._target), self._timeout_s)
        return False

    def pauses(self) -> Iterator[float]:
        return growing_pauses()
