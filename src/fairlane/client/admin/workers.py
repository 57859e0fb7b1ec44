"""`app.workers`: the workers that are registered, and what each serves."""

from __future__ import annotations

from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.ops import ListWorkers, Workers


class WorkerAdmin(Verbs):
    """Methods for workers."""

    __slots__ = ()

    def _list(self) -> Steps[Workers]:
        """Every registered worker: what it serves, how many jobs it holds, and the figures it reports."""
        return (yield from ask(ListWorkers()))

    list, alist = both(_list, Right.READ)
