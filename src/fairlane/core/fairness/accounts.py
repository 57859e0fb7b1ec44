"""What each tenant has had of one lane: run time by weight, so that a share is one of time and not of job counts.

    account = (run time of ended jobs + elapsed time of running ones, or what they are expected to take if that is more
               + expected time of claimed ones that have not begun) ÷ weight

The tenant with the smallest account is served next. A job is expected to take what its tenant's jobs took so far, else
what the lane's took, else the same as any other: then shares are by count.

Long jobs count from their beginning, and not when they end. With elapsed time alone two jobs of 30 s were started for
each that was due, until the elapsed time caught up: their tenant had 0.70 of the time of ten slots in 75 s, not half.

A tenant that appears begins with the smallest account of the active ones: with no credit for the time it was away, and
no debt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from fairlane.core.job import Lease

UNIT_S = 0.001
"""What a job is expected to cost while nothing was measured."""
LEAST_S = 1e-6
FOLLOW = 0.05
"""A mean follows a change within some twenty jobs and forgets a single outlier."""
KEPT = 10_000
"""Accounts of tenants that are away are forgotten beyond this many, those first that would be lifted anyway."""


class Account:
    """One tenant's, kept by Accounts."""

    __slots__ = ("began_s", "held", "job_s", "paid", "running", "tenant", "turn", "waits", "weight")

    def __init__(self, tenant: str, weight: float, paid: float) -> None:
        self.tenant, self.weight = tenant, weight
        self.paid = paid
        """For what has ended: run time ÷ weight."""
        self.running = self.held = 0
        self.began_s = 0.0
        """The sum of the instants at which what is running began."""
        self.job_s = 0.0
        self.turn = 0
        """Grows from tenant to tenant as they are picked: between equals, who was picked longest ago comes first."""
        self.waits = False
        """It has ready jobs in the lines that are served now."""

    def had(self, now_s: float) -> float:
        """What it has had up to now, divided by its weight."""
        return self.paid + (self.running * now_s - self.began_s) / self.weight if self.running else self.paid


class Accounts:
    """The accounts of one lane in one process, and whom they put first."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._busy: dict[str, Account] = {}
        """Those with jobs held or running here: few, and what they owe grows by the moment."""
        self._idle: list[tuple[float, int, str]] = []
        """Those that wait and have nothing here, as a heap; entries that no longer hold are passed over."""
        self._weights: Mapping[str, float] = {}
        self._level = 0.0
        """What the least active tenant has had; never falls."""
        self.job_s = 0.0
        """What a job of this lane takes, of whatever tenant."""
        self._turn = 0

    def claim(self, tenant: str, count: int, now_s: float) -> None:
        """Counts `count` claimed jobs of the tenant."""
        account = self._active(tenant, now_s)
        account.held += count
        self._busy[tenant] = account

    def begin(self, tenant: str, began_s: float) -> None:
        account = self._accounts[tenant]
        account.held -= 1
        account.running += 1
        account.began_s += began_s

    def end(self, tenant: str, began_s: float, ran_s: float) -> None:
        account = self._accounts[tenant]
        account.running -= 1
        account.began_s -= began_s
        account.paid += ran_s / account.weight
        account.job_s += (ran_s - account.job_s) * (FOLLOW if account.job_s else 1.0)
        self.job_s += (ran_s - self.job_s) * (FOLLOW if self.job_s else 1.0)
        if not account.running:
            account.began_s = 0.0
            if not account.held:
                self._rest(account)

    def release(self, tenant: str) -> None:
        """A claimed job went back before it began."""
        account = self._accounts[tenant]
        account.held -= 1
        if not account.held and not account.running:
            self._rest(account)

    def weigh(self, weights: Mapping[str, float]) -> None:
        """From now on time counts by these weights; 1 for whom they do not name."""
        self._weights = weights
        for account in self._accounts.values():
            account.weight = weights.get(account.tenant, 1.0)

    def await_turn(self, tenants: Iterable[str], now_s: float) -> None:
        """These have ready jobs."""
        for tenant in tenants:
            account = self._accounts.get(tenant)
            if account is not None and account.waits:
                continue
            account = self._active(tenant, now_s)
            account.waits = True
            if tenant not in self._busy:
                heappush(self._idle, (account.paid, account.turn, tenant))

    def leave(self, tenants: Iterable[str]) -> None:
        """These have nothing ready any more."""
        for tenant in tenants:
            account = self._accounts.get(tenant)
            if account is not None:
                account.waits = False
        if len(self._idle) > 4 * len(self._accounts) + 64:
            self._idle = [entry for entry in self._idle if self._holds(entry)]
            heapify(self._idle)
        if len(self._accounts) > KEPT:
            self._forget()

    def picks(self, count: int, now_s: float, singly: set[str]) -> list[str]:
        """Whose jobs to take, one by one: always of the smallest account, which then grows by that job's expected cost.

        Tenants in `singly` are picked once at most.
        """
        order = [
            (self.value(account, now_s), account.turn, account.tenant)
            for account in self._busy.values()
            if account.waits
        ]
        heapify(order)
        idle, popped = self._idle, set[str]()
        picked: list[str] = []
        while len(picked) < count:
            while idle and not self._holds(idle[0]):
                heappop(idle)
            if idle and (not order or idle[0] < order[0]):
                entry = heappop(idle)
                if entry[2] not in popped:
                    popped.add(entry[2])
                    heappush(order, entry)
                continue
            if not order:
                break
            value, _, tenant = order[0]
            picked.append(tenant)
            account = self._accounts[tenant]
            self._turn += 1
            account.turn = self._turn
            if tenant in singly:
                heappop(order)
            else:
                heapreplace(order, (value + self.cost_s(account, now_s) / account.weight, self._turn, tenant))
        for tenant in popped:
            account = self._accounts[tenant]
            heappush(idle, (account.paid, account.turn, tenant))
        return picked

    def in_order(self, leases: Sequence[Lease], now_s: float, urgency: Mapping[str, int]) -> list[Lease]:
        """Claimed jobs in the order in which they should begin: by queue, band and account."""
        tags: dict[str, float] = {}
        keyed = []
        for place, lease in enumerate(leases):
            account = self._accounts[lease.tenant]
            tag = tags.get(lease.tenant)
            if tag is None:
                tag = self._begun(account, now_s)
            tags[lease.tenant] = tag + self.cost_s(account, now_s) / account.weight
            keyed.append((urgency.get(lease.queue, 0), lease.band, tag, place))
        keyed.sort()
        return [leases[place] for *_, place in keyed]

    def value(self, account: Account, now_s: float) -> float:
        begun = self._begun(account, now_s)
        return begun + account.held * self.cost_s(account, now_s) / account.weight if account.held else begun

    def _begun(self, account: Account, now_s: float) -> float:
        """Without what waits here for a slot."""
        if not account.running:
            return account.paid
        elapsed_s = account.running * now_s - account.began_s
        expected_s = account.running * (account.job_s or self.job_s or UNIT_S)
        return account.paid + max(elapsed_s, expected_s) / account.weight

    def cost_s(self, account: Account, now_s: float) -> float:
        """What one more job of this tenant will probably take.

        As long as its others took, or as those that run have taken so far. While none has ended: as all of these
        together, so that jobs nobody knows yet do not take every slot before it shows how long they are
        (tests/unit/test_fairness.py: 9 of 10 otherwise, beside jobs of 50 ms).
        """
        cost_s = account.job_s or self.job_s or UNIT_S
        if account.running:
            elapsed_s = account.running * now_s - account.began_s
            cost_s = max(cost_s, elapsed_s / account.running if account.job_s else elapsed_s)
        return max(cost_s, LEAST_S)

    def of(self, tenant: str) -> Account | None:
        return self._accounts.get(tenant)

    def level(self, now_s: float) -> float:
        """What the least of the active tenants has had."""
        while self._idle and not self._holds(self._idle[0]):
            heappop(self._idle)
        had = [account.had(now_s) for account in self._busy.values()]
        if self._idle:
            had.append(self._idle[0][0])
        if had:
            self._level = max(self._level, min(had))
        return self._level

    def _active(self, tenant: str, now_s: float) -> Account:
        """The account of a tenant that has work here; one that had none begins level with the others."""
        account = self._accounts.get(tenant)
        if account is None:
            account = Account(tenant, self._weights.get(tenant, 1.0), self.level(now_s))
            self._accounts[tenant] = account
        elif not account.waits and tenant not in self._busy:
            account.paid = max(account.paid, self.level(now_s))
        return account

    def _rest(self, account: Account) -> None:
        """Nothing of it is here any more."""
        del self._busy[account.tenant]
        if account.waits:
            heappush(self._idle, (account.paid, account.turn, account.tenant))

    def _holds(self, entry: tuple[float, int, str]) -> bool:
        paid, turn, tenant = entry
        account = self._accounts.get(tenant)
        return (
            account is not None
            and account.waits
            and account.paid == paid
            and account.turn == turn
            and tenant not in self._busy
        )

    def _forget(self) -> None:
        away = [
            account for account in self._accounts.values() if not account.waits and account.tenant not in self._busy
        ]
        away.sort(key=lambda account: account.paid)
        for account in away[: len(self._accounts) - KEPT // 2]:
            del self._accounts[account.tenant]
