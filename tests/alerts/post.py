"""An application whose alerts are looked at whenever the test says so."""

from __future__ import annotations

import asyncio
from typing import Any

from fairlane import Fairlane, FakeClock, NonRetryable
from fairlane.alerts import AlertDuty
from fairlane.alerts.duty import EVERY_S
from fairlane.core.chance import FixedChance
from fairlane.core.ids import WorkerId
from fairlane.core.ops import ALL_TENANTS, AddEvents, EventDraft, ReadEvents, Renew
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import NOON


class Post:
    """An application at a standing clock, and what its watchers are told."""

    def __init__(self, store: Any = None, clock: FakeClock | None = None, **settings: Any) -> None:
        self.clock = clock or FakeClock(NOON)
        self.store = store or MemoryStore(clock=self.clock)
        self.app = Fairlane(store=self.store, clock=self.clock, chance=FixedChance(), **settings)
        self.duty = AlertDuty(self.app)
        self._last = 0

        @self.app.task(name="post.work")
        def work(n: int = 0) -> int:
            return n

        @self.app.task(name="post.break")
        def break_() -> None:
            raise NonRetryable("no")

        self.work, self.break_ = work, break_

    def step(self, after_s: float = EVERY_S) -> list[str]:
        self.clock.advance(after_s)
        asyncio.run(self.duty.step())
        return self.told()

    def steps(self, seconds: float) -> list[str]:
        told = []
        for _ in range(round(seconds / EVERY_S)):
            told += self.step()
        return told

    def told(self) -> list[str]:
        kinds = ("alert_fired", "alert_resolved", "dlq_alert")
        page = self.app.runtime.store.run(ReadEvents(scope=ALL_TENANTS, after=self._last, kinds=kinds))
        self._last = page.last
        return [f"{e.kind} {e.data.get('rule', '')} {e.data.get('about', '')}".strip() for e in page.events]

    def worker(self, **figures: float) -> WorkerId:
        worker = WorkerId(self.app.runtime.new_job_id())
        named = {name.replace("__", "."): value for name, value in figures.items()}
        self.app.runtime.store.run(Renew(worker=worker, lease_s=86_400, figures=named))
        return worker

    def happen(self, kind: str, tenant: str | None = None) -> None:
        self.app.runtime.store.run(AddEvents(events=(EventDraft(kind=kind, tenant=tenant),)))
