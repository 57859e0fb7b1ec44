"""`app.workers`: the workers that are registered, and what each serves."""

from __future__ import annotations

from msgspec.structs import replace

from fairlane.client.admin.filters import page_size
from fairlane.client.context import in_scope
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.ops import ALL_TENANTS, ListExceptions, ListWorkers, WorkerException, Workers


class WorkerAdmin(Verbs):
    """Methods for workers."""

    __slots__ = ()

    def _list(self) -> Steps[Workers]:
        """Every registered worker: what it serves, how many jobs it holds, and the figures it reports."""
        return (yield from ask(ListWorkers()))

    def _exceptions(
        self, *, tenant: str | int | None = None, limit: int | None = None
    ) -> Steps[tuple[WorkerException, ...]]:
        """The newest exceptions of jobs, 20 of each registered worker, newest first; at most `limit` (1 to 200).

        A worker reports them within three seconds; those of an ended worker are with the attempts of its jobs. Inside
        a tenant's context the names of workers are None.
        """
        size = None if limit is None else page_size(limit)
        found = (yield from ask(ListExceptions(scope=in_scope(tenant), limit=size))).exceptions
        if in_scope(None) == ALL_TENANTS:
            return found
        return tuple(replace(one, name=None) for one in found)

    list, alist = both(_list, Right.READ)
    exceptions, aexceptions = both(_exceptions, Right.READ)
