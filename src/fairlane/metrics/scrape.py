"""One scrape: a bounded look at the store, kept for ten seconds, written down as text."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.client.admin.statistics import read_minutes
from fairlane.client.app import Fairlane
from fairlane.client.context import in_scope
from fairlane.client.steps import Steps, arun_steps, run_steps
from fairlane.core.ops import Scope
from fairlane.errors import StoreError
from fairlane.metrics import families
from fairlane.metrics.counters import WINDOW, Tally, WorkerTally
from fairlane.metrics.gauges import Gauges, TenantCounts, look

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

KEPT_S = 10.0
LATELY = timedelta(minutes=3)
"""What nearly every look reads: figures of older minutes seldom change."""
WHOLE_EVERY_S = 300.0
"""How often figures that came late are looked for."""
MOST_READS = 20
MOST_SCOPES = 100
"""Tenants whose own figures are kept for each application."""


def exposition(app: Fairlane, *, tenant: str | int | None = None) -> bytes:
    """The metrics of this application, or of one tenant alone. Blocks; in async code use `aexposition`."""
    scrape = _scrape(app, tenant)
    if not scrape.is_due():
        return scrape.text
    try:
        run_steps(app.runtime.access, scrape.steps())
    except StoreError:
        scrape.store_is_away()
    finally:
        scrape.is_looking = False
    return scrape.text


async def aexposition(app: Fairlane, *, tenant: str | int | None = None) -> bytes:
    scrape = _scrape(app, tenant)
    if not scrape.is_due():
        return scrape.text
    try:
        await arun_steps(app.runtime.access, scrape.steps())
    except StoreError:
        scrape.store_is_away()
    finally:
        scrape.is_looking = False
    return scrape.text


class Scrape(Collector):
    """What is known for one application, or for one tenant of it."""

    def __init__(self, app: Fairlane, scope: Scope) -> None:
        self._monotonic, self._store_name = app.runtime.clock.monotonic, app.runtime.access.name
        self._scope = scope
        self._tally = Tally(app.runtime.settings.metrics_tenants if scope.tenant is None else 1)
        self._workers, self._tenants = WorkerTally(), TenantCounts()
        self._gauges: Gauges | None = None
        self._looked_s = self._whole_s = float("-inf")
        self._lock = threading.Lock()
        self.is_looking = False
        self.text = b""

    def is_due(self) -> bool:
        """Whether the caller is to look. While somebody does, the others get what there was."""
        with self._lock:
            is_fresh = self._monotonic() - self._looked_s < KEPT_S
            if self.text and (is_fresh or self.is_looking):
                return False
            self.is_looking = True
            return True

    def steps(self) -> Steps[None]:
        began_s = self._monotonic()
        gauges = yield from look(self._scope)
        is_whole = began_s - self._whole_s >= WHOLE_EVERY_S
        now: datetime = gauges.stats.now
        since = now - (WINDOW if is_whole else LATELY)
        minutes = yield from read_minutes(
            since, now + timedelta(minutes=2), tenant=self._scope.tenant, most_reads=MOST_READS
        )
        with self._lock:
            self._tally.take_in(minutes.rows, now, is_whole=is_whole and not minutes.is_cut)
            if gauges.workers is not None:
                self._workers.take_in(gauges.workers)
        if self._scope.tenant is None:
            yield from self._tenants.look(self._tally.named)
        with self._lock:
            if is_whole:
                self._whole_s = began_s
            self._gauges, self._looked_s = gauges, began_s
            self.text = generate_latest(self)

    def store_is_away(self) -> None:
        """Counters stay as they are; how things are is not known."""
        with self._lock:
            self._gauges, self._looked_s = None, self._monotonic()
            self.text = generate_latest(self)

    def collect(self) -> Iterator[Metric]:
        gauges, totals = self._gauges, self._tally.totals
        yield from families.counters(totals)
        yield from families.histograms(totals)
        if self._scope.tenant is None:
            yield from families.store(None if gauges is None else gauges.health, self._store_name)
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
