"""`app.queues`: count jobs by queue; pause, resume and drain one."""

from __future__ import annotations

from datetime import datetime
from typing import ClassVar

from msgspec.structs import asdict

from fairlane.client.admin.pauses import PausingVerbs
from fairlane.client.context import in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, ask, both
from fairlane.core.names import check_queue_name
from fairlane.core.ops import COUNT_CAP, ROUGH_CAP, GetStats, ListPauses, PauseKind, QueueStats


class QueueState(QueueStats, frozen=True, kw_only=True):
    """One queue as it is now. Counts are exact up to 100,000."""

    oldest_pending_s: float | None = None
    """How long the oldest ready job has been due."""
    paused: bool = False


class QueueAdmin(PausingVerbs):
    """Methods for queues."""

    __slots__ = ()
    _kind: ClassVar[PauseKind] = "queue"

    def _list(self, *, tenant: str | int | None = None, rough: bool = False) -> Steps[tuple[QueueState, ...]]:
        """Every queue with unfinished jobs, and every paused one, by name; for one tenant: queues with its jobs.

        With `rough` numbers over 10,000 are estimates: for those who ask often.
        """
        scope = in_scope(tenant)
        stats = yield from ask(
            GetStats(scope=scope, cap=ROUGH_CAP if rough else COUNT_CAP, rough=rough, parts=("queues",))
        )
        paused = {pause.name for pause in (yield from ask(ListPauses())).pauses if pause.kind == "queue"}
        known = {counts.queue: _state(counts, stats.now, is_paused=counts.queue in paused) for counts in stats.queues}
        if scope.tenant is None:
            known |= {name: QueueState(queue=name, paused=True) for name in paused - known.keys()}
        return tuple(known[name] for name in sorted(known))

    def _depth(self, queue: str | None = None, *, tenant: str | int | None = None) -> Steps[int]:
        """How many jobs are ready or scheduled, in one queue or in all."""
        named = None if queue is None else check_queue_name(queue)
        stats = yield from ask(GetStats(scope=in_scope(tenant), parts=("queues",)))
        return sum(one.ready + one.scheduled for one in stats.queues if named in (None, one.queue))

    list, alist = both(_list, Right.READ)
    depth, adepth = both(_depth, Right.READ)


def _state(counts: QueueStats, now: datetime, *, is_paused: bool) -> QueueState:
    due_at = counts.oldest_due_at
    oldest_s = None if due_at is None else max((now - due_at).total_seconds(), 0.0)
    return QueueState(**asdict(counts), oldest_pending_s=oldest_s, paused=is_paused)
