"""`app.workers`: the workers that are registered, and what each serves."""

from __future__ import annotations

from msgspec.structs import replace

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

    def _exceptions(self, *, tenant: str | int | None = None) -> Steps[tuple[WorkerException, ...]]:
        """The newest exceptions of jobs, 20 of each registered worker, newest first.

        A worker reports them within three seconds; those of an ended worker are with the attempts of its jobs. Inside
        a tenant's context the names of workers are None.
        """
        found = (yield from ask(ListExceptions(scope=in_scope(tenant)))).exceptions
        if in_scope(None) == ALL_TENANTS:
            return found
        return tuple(replace(one, name=None) for one in found)

    list, alist = both(_list, Right.READ)
    exceptions, aexceptions = both(_exceptions, Right.READ)
