"""A shop at a standing clock, and its metrics as a real parser reads them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from fairlane import Fairlane, FakeClock
from fairlane.core.chance import FixedChance
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddStats, Renew, StatRow
from fairlane.metrics import exposition
from fairlane.metrics.scrape import KEPT_S
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.samples import NOON

COUNTING = ("_total", "_bucket", "_count", "_sum")


class Shop:
    """An application at a standing clock, with one worker that says what the test wants."""

    def __init__(self, kind: type[MemoryStore] = MemoryStore, **settings: Any) -> None:
        self.clock = FakeClock(NOON)
        self.store = kind(clock=self.clock)
        self.app = Fairlane(store=self.store, clock=self.clock, chance=FixedChance(), **settings)
        self.worker = WorkerId(self.app.runtime.new_job_id())
        self.say()
        self._batch = 0

    def say(self, **figures: float) -> None:
        named = {name.replace("__", "."): value for name, value in figures.items()}
        self.store.run(Renew(worker=self.worker, lease_s=10**7, name="box:1", figures=named))

    def add(self, *, ago_s: float = 0.0, type: str = "mail.send", queue: str = "mail", tenant: str = "acme", **of: Any) -> None:  # fmt: skip
        minute = (self.clock.now() - timedelta(seconds=ago_s)).replace(second=0, microsecond=0)
        row = StatRow(minute=minute, type=type, queue=queue, tenant=tenant, **of)
        self._batch += 1
        self.store.run(AddStats(worker=self.worker, batch=self._batch, rows=(row,)))

    def scrape(self, after_s: float = KEPT_S, **options: Any) -> dict[str, Any]:
        self.clock.advance(after_s)
        return read(exposition(self.app, **options))


def read(text: bytes) -> dict[str, Any]:
    """By a real parser."""
    return {family.name: family for family in text_string_to_metric_families(text.decode())}


def value(families: dict[str, Any], sample: str, **labels: str) -> float:
    """The one sample of this name with these labels, whatever others it has; sums where several match."""
    found = [
        one.value
        for family in families.values()
        for one in family.samples
        if one.name == sample and labels.items() <= one.labels.items()
    ]
    assert found, f"no {sample}{labels}"
    return float(sum(found))


def series(families: dict[str, Any]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families.values()
        for sample in family.samples
    }


def labelled(**labels: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted({"queue": "mail", "method": "mail.send", **labels}.items()))
