"""Which tenants have figures of their own: the busiest, so that labels stay few however many tenants there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from fairlane.core.ops import StatRow

OTHER = "other"
"""Every tenant that has no name of its own here."""


class Busiest:
    """A tenant keeps its name until another has twice its jobs: names that come and go make graphs nobody can read."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.named: frozenset[str] = frozenset()

    def judge(self, rows: Iterable[StatRow], *, is_whole: bool) -> frozenset[str]:
        """Give free places to the busiest; on a look at the whole window, those of the least busy, too. Who lost theirs."""
        jobs: Counter[str] = Counter()
        for row in rows:
            jobs[row.tenant] += row.enqueued + row.completed + row.failed + row.dead + row.cancelled
        del jobs[OTHER]
        top = sorted(jobs, key=lambda tenant: (-jobs[tenant], tenant))[: self._most]
        staying = set(self.named)
        idle = sorted(staying.difference(top), key=lambda tenant: (-jobs[tenant], tenant))
        for tenant in top:
            if tenant in staying:
                continue
            if len(staying) >= self._most and is_whole and idle and jobs[tenant] > 2 * jobs[idle[-1]]:
                staying.remove(idle.pop())
            if len(staying) < self._most:
                staying.add(tenant)
        gone, self.named = self.named - staying, frozenset(staying)
        return gone
