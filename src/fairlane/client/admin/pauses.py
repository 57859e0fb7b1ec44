"""`app.pauses`, and the methods that pause in `app.queues`, `app.tasks` and `app.tenants`.

A pause stops claims at run time and outlives restarts. The jobs that run continue, and so does enqueueing unless the
pause refuses it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import ClassVar, Unpack

from fairlane.client.context import in_scope, require_tenant
from fairlane.client.enqueue.options import seconds
from fairlane.client.handle import ActOptions, audited
from fairlane.client.logs import GuardedLogger
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both, growing_sleeps
from fairlane.core.names import BUILT_IN_TASKS, check_queue_name, check_task_name, check_tenant
from fairlane.core.ops import (
    ALL_TENANTS,
    MAX_PAGE,
    GetStats,
    JobFilter,
    ListPauses,
    ListWorkers,
    PageJobs,
    Pause,
    PauseClaims,
    PauseKind,
    ResumeClaims,
    only,
)
from fairlane.errors import StillRunning, StoreError, nearest

logger = GuardedLogger("fairlane.client")

QUIET_S = 3.0
"""How long no job may run before it counts as drained: workers release prefetched jobs within two seconds."""

_CHECKS = {"queue": check_queue_name, "type": check_task_name, "tenant": check_tenant}
_WORDS: dict[PauseKind, str] = {"queue": "queue", "type": "task", "tenant": "tenant"}


class PauseAdmin(Verbs):
    """Methods for pauses of all kinds."""

    __slots__ = ()

    def _list(self) -> Steps[tuple[Pause, ...]]:
        """Every pause in force, with who made it and why."""
        scope = in_scope(None)
        pauses = (yield from ask(ListPauses())).pauses
        return tuple(pause for pause in pauses if pause.kind != "tenant" or scope.admits(pause.name))

    list, alist = both(_list, Right.READ)


class PausingVerbs(Verbs):
    """Methods that pause, resume and drain queues, tasks or tenants."""

    __slots__ = ()
    _kind: ClassVar[PauseKind]

    def _pause(self, name: str | int, *, refuse: bool = False, **about: Unpack[ActOptions]) -> Steps[tuple[Pause, ...]]:
        """Stop claiming its jobs; running jobs continue. Returns all pauses in force.

        With `refuse`, whoever enqueues such a job gets `QueuePaused` with the notes, until it is resumed. A queue or
        task that neither this application nor the store knows is paused all the same, with a warning.
        """
        op = PauseClaims(kind=self._kind, name=self._named(name), refuse=refuse, **audited(about))
        pauses = (yield from ask(op)).pauses
        yield from self._warn_if_unknown(op.name)
        return pauses

    def _resume(self, name: str | int, **about: Unpack[ActOptions]) -> Steps[tuple[Pause, ...]]:
        """Lift a pause; waiting workers are woken.

        Does nothing if it is not paused. Returns all pauses still in force.
        """
        op = ResumeClaims(kind=self._kind, name=self._named(name), **audited(about))
        return (yield from ask(op)).pauses

    def _is_paused(self, name: str | int) -> Steps[bool]:
        """Whether it is paused itself; other pauses may also stop its jobs."""
        key = (self._kind, self._named(name))
        return any((pause.kind, pause.name) == key for pause in (yield from ask(ListPauses())).pauses)

    def _running(self, name: str | int) -> Steps[int]:
        """How many of its jobs run now, counted up to 200."""
        return len((yield from ask(self._running_jobs(self._named(name), MAX_PAGE))).jobs)

    def _drain(
        self,
        name: str | int,
        *,
        timeout: float | timedelta | None = None,
        refuse: bool = False,
        **about: Unpack[ActOptions],
    ) -> Steps[None]:
        """Pause it, then wait until none of its jobs run; `refuse` is that of `pause`.

        Raises `StillRunning` if some still run after `timeout`; it stays paused either way. Adds three seconds without
        running jobs, even beyond `timeout`: only then is it certain that none run.
        """
        target = self._named(name)
        timeout_s = None if timeout is None else seconds("timeout", timeout)
        monotonic = self._runtime.clock.monotonic
        began_s, quiet_since_s = monotonic(), None
        yield from self._pause(name, refuse=refuse, **about)
        for sleep in growing_sleeps():
            page, now_s = (yield from ask(self._running_jobs(target, 1))), monotonic()
            if page.jobs:
                quiet_since_s = None
                if timeout_s is not None and now_s - began_s >= timeout_s:
                    raise StillRunning(f'{_WORDS[self._kind]} "{target}"', timeout_s)
            elif quiet_since_s is None:
                quiet_since_s = now_s
            elif now_s - quiet_since_s >= QUIET_S:
                return
            yield sleep

    pause, apause = both(_pause, Right.ACT)
    resume, aresume = both(_resume, Right.ACT)
    is_paused, ais_paused = both(_is_paused, Right.READ)
    running, arunning = both(_running, Right.READ)
    drain, adrain = both(_drain, Right.ACT)

    def _warn_if_unknown(self, name: str) -> Steps[None]:
        """Only read what the store knows if this application does not know the name."""
        known = set(self._runtime.preparer.queues if self._kind == "queue" else self._runtime.tasks)
        if self._kind == "tenant" or name in known:
            return
        try:
            for worker in (yield from ask(ListWorkers())).workers:
                known.update(worker.queues if self._kind == "queue" else worker.types)
            if self._kind == "queue":
                stats = yield from ask(GetStats(scope=ALL_TENANTS, cap=1, parts=("queues",)))
                known.update(each.queue for each in stats.queues)
            elif (yield from ask(PageJobs(scope=ALL_TENANTS, where=JobFilter(type=name), limit=1))).jobs:
                return
        except StoreError:
            return  # It is paused; that the name cannot be compared changes nothing.
        if name not in known:
            said = 'paused %s "%s", which nothing here knows: no task, worker, job or setting has that name.%s'
            logger.warning(said, _WORDS[self._kind], name, nearest(name, known - BUILT_IN_TASKS))

    def _named(self, name: str | int) -> str:
        checked = _CHECKS[self._kind](name)
        require_tenant(checked if self._kind == "tenant" else None, f'{_WORDS[self._kind]} "{checked}"')
        return checked

    def _running_jobs(self, name: str, limit: int) -> PageJobs:
        if self._kind == "tenant":
            return PageJobs(scope=only(name), where=JobFilter(statuses=("processing",)), limit=limit)
        where = JobFilter(
            statuses=("processing",),
            queue=name if self._kind == "queue" else None,
            type=name if self._kind == "type" else None,
        )
        return PageJobs(scope=ALL_TENANTS, where=where, limit=limit)
