"""One scrape: a bounded read of the store, kept for ten seconds, as text in Prometheus's format."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from msgspec import Struct
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.client.admin.statistics import read_minutes
from fairlane.client.app import Fairlane
from fairlane.client.context import in_scope
from fairlane.client.steps import Steps, arun_steps, run_steps
from fairlane.core.breaker import BreakerRecord
from fairlane.core.ops import (
    ALL_TENANTS,
    MAX_PAGE,
    ROUGH_CAP,
    Alert,
    Check,
    GetStats,
    Health,
    KeyUse,
    ListBreakers,
    ListKeys,
    ListWorkers,
    ReadAlerts,
    Scope,
    Stats,
    Workers,
    only,
)
from fairlane.errors import StoreError
from fairlane.metrics import families
from fairlane.metrics.counters import WINDOW, MinuteCounters, WorkerCounters

TENANTS_PER_READ = 5
"""Tenants whose queues are counted in one read; the others keep their last counts."""


class Gauges(Struct, frozen=True, kw_only=True):
    stats: Stats
    health: Health | None = None
    """None, like the fields below, in the metrics of one tenant."""
    workers: Workers | None = None
    breakers: tuple[BreakerRecord, ...] = ()
    alerts: tuple[Alert, ...] = ()


def read_gauges(scope: Scope) -> Steps[Gauges]:
    stats = yield GetStats(scope=scope, cap=ROUGH_CAP, rough=True, parts=("queues", "dead_letters", "types"))
    if scope != ALL_TENANTS:
        return Gauges(stats=stats)
    return Gauges(
        stats=stats,
        health=(yield Check()),
        workers=(yield ListWorkers()),
        breakers=(yield ListBreakers()).breakers,
        alerts=(yield ReadAlerts()).alerts,
    )


class TenantCounts:
    """Unfinished jobs of the tenants with labels of their own, by queue: a few tenants in each read."""

    def __init__(self) -> None:
        self.counts: dict[str, dict[str, int]] = {}

    def read(self, named: frozenset[str]) -> Steps[None]:
        for gone in self.counts.keys() - named:
            del self.counts[gone]
        new = sorted(named - self.counts.keys())
        # Oldest first: a new count moves to the end.
        for tenant in [*new, *(tenant for tenant in self.counts)][:TENANTS_PER_READ]:
            stats: Stats = yield GetStats(scope=only(tenant), cap=ROUGH_CAP, rough=True, parts=("queues",))
            self.counts.pop(tenant, None)
            self.counts[tenant] = {
                queue.queue: queue.pending + queue.failed + queue.processing for queue in stats.queues
            }


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

KEPT_S = 10.0
LATELY = timedelta(minutes=3)
"""The span that most reads cover: statistics of older minutes seldom change."""
WHOLE_EVERY_S = 300.0
"""How often the whole window is read, for statistics that arrived late."""
KEYS_EVERY_S = 60.0
"""How often the keys at which jobs wait are read, while jobs are held: all of these are looked through."""
MOST_READS = 20
MOST_SCOPES = 100
"""Tenants whose own metrics are kept for each application."""


def exposition(app: Fairlane, *, tenant: str | int | None = None) -> bytes:
    """The metrics of this application, or of one tenant alone. Blocks; in async code use `aexposition`."""
    scrape = _scrape(app, tenant)
    if scrape.is_due():
        with scrape.reading():
            run_steps(app.runtime.access, scrape.steps())
    return scrape.text


async def aexposition(app: Fairlane, *, tenant: str | int | None = None) -> bytes:
    scrape = _scrape(app, tenant)
    if scrape.is_due():
        with scrape.reading():
            await arun_steps(app.runtime.access, scrape.steps())
    return scrape.text


class Scrape(Collector):
    """The metrics of one application, or of one tenant of it."""

    def __init__(self, app: Fairlane, scope: Scope) -> None:
        self._monotonic, self._access = app.runtime.clock.monotonic, app.runtime.access
        self._scope = scope
        self._counters = MinuteCounters(app.runtime.settings.metrics_tenants if scope.tenant is None else 1)
        self._workers, self._tenants = WorkerCounters(), TenantCounts()
        self._gauges: Gauges | None = None
        self._keys: tuple[KeyUse, ...] = ()
        self._keys_s = float("-inf")
        self._read_s = self._whole_s = float("-inf")
        self._lock = threading.Lock()
        self._is_reading = False
        self.text = b""

    def is_due(self) -> bool:
        """Whether the caller must read the store. Meanwhile other callers get the last text."""
        with self._lock:
            is_fresh = self._monotonic() - self._read_s < KEPT_S
            if self.text and (is_fresh or self._is_reading):
                return False
            self._is_reading = True
            return True

    def steps(self) -> Steps[None]:
        began_s = self._monotonic()
        gauges = yield from read_gauges(self._scope)
        is_whole = began_s - self._whole_s >= WHOLE_EVERY_S
        now: datetime = gauges.stats.now
        since = now - (WINDOW if is_whole else LATELY)
        minutes = yield from read_minutes(
            since, now + timedelta(minutes=2), tenant=self._scope.tenant, most_reads=MOST_READS
        )
        with self._lock:
            self._counters.add(minutes.rows, now, is_whole=is_whole and not minutes.is_cut)
            if gauges.workers is not None:
                self._workers.add(gauges.workers)
        if self._scope.tenant is None:
            yield from self._tenants.read(self._counters.named)
            yield from self._read_keys(gauges.stats, began_s)
        with self._lock:
            if is_whole:
                self._whole_s = began_s
            self._gauges, self._read_s = gauges, began_s
            self.text = generate_latest(self)

    def _read_keys(self, stats: Stats, now_s: float) -> Steps[None]:
        if not any(queue.held for queue in stats.queues):
            self._keys = ()
        elif now_s - self._keys_s >= KEYS_EVERY_S:
            self._keys = (yield ListKeys(scope=ALL_TENANTS, limit=MAX_PAGE)).keys
            self._keys_s = now_s

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Handles an unreachable store: counters keep their values and gauges are omitted."""
        try:
            yield
        except StoreError:
            with self._lock:
                self._gauges, self._read_s = None, self._monotonic()
                self.text = generate_latest(self)
        finally:
            self._is_reading = False

    def collect(self) -> Iterator[Metric]:
        gauges, totals = self._gauges, self._counters.totals
        yield from families.counters(totals)
        yield from families.histograms(totals)
        if self._scope.tenant is None:
            yield from families.store(None if gauges is None else gauges.health, self._access.name)
            yield from families.spool(self._access.spool_state())
        if gauges is None:
            return
        yield from families.depths(gauges.stats)
        if self._scope.tenant is not None:
            own = {queue.queue: queue.pending + queue.failed + queue.processing for queue in gauges.stats.queues}
            yield from families.tenant_counts({self._scope.tenant: own}, None)
            return
        yield from families.tenant_counts(self._tenants.counts, gauges.stats)
        yield from families.breakers(gauges.breakers)
        yield from families.alerts(gauges.alerts)
        yield from families.job_keys(self._keys)
        if gauges.workers is not None:
            yield from families.workers(gauges.workers, self._workers)


_scrapes: WeakKeyDictionary[Fairlane, OrderedDict[str | None, Scrape]] = WeakKeyDictionary()
_guard = threading.Lock()


def _scrape(app: Fairlane, tenant: str | int | None) -> Scrape:
    scope = in_scope(tenant)
    with _guard:
        mine = _scrapes.setdefault(app, OrderedDict())
        if scope.tenant not in mine:
            mine[scope.tenant] = Scrape(app, scope)
        mine.move_to_end(scope.tenant)
        while len(mine) > MOST_SCOPES:
            mine.popitem(last=False)
        return mine[scope.tenant]
