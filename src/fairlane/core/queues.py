"""Which queue a task's jobs join, and what that queue grants them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from fairlane.core.ids import EVERY_TENANT
from fairlane.core.job import DEFAULT_QUEUE, PriorityScope
from fairlane.core.limits import FullPolicy, Limit, Rate
from fairlane.core.names import NamedFields, check_queue_name
from fairlane.core.retry import Retry
from fairlane.errors import ConfigError, InvalidOption, nearest

CATEGORIES: tuple[str, ...] = (
    "ingestion",
    "sync",
    "recurrence",
    "orchestration",
    "documents",
    "notifications",
    "export",
    "maintenance",
)


REMEMBERED = 1_000
"""Queues nobody configured, whose empty policy is made once."""

MOST_DAYS = 36_500

_COUNTS = ("max_per_tenant", "rate_per_minute", "running", "tenant_running", "tenant_rate_per_minute")


MOST_SLOTS = 10_000
SLOTS_EXPECTED = 'a number from 1 to 10,000, shared by the processes of a worker, or "100/process" for each of them'
_SLOTS = re.compile(r"(\d{1,5})(/process)?", re.ASCII)


def read_slots(value: int | str, what: str) -> tuple[int, bool]:
    """How many, and whether in each process: `8` is shared by the processes of one worker, `"100/process"` is not."""
    found = None if isinstance(value, bool) else _SLOTS.fullmatch(str(value).strip())
    if found is None or not 1 <= int(found[1]) <= MOST_SLOTS:
        raise InvalidOption(what, value, SLOTS_EXPECTED)
    return int(found[1]), found[2] is not None


class QueuePolicy(Struct, frozen=True, kw_only=True, metaclass=NamedFields):
    """What one queue grants its jobs. None: no limit, or the application's own setting."""

    name: str
    timeout_s: float | None = None
    """How long an attempt may run. None: the fast or the slow timeout of the settings."""
    retry: Retry | None = None
    """How often and when failed jobs run again. None: as the error's class or the application says."""
    fast: bool = False
    """Its jobs take less than 30 s: without a timeout they get the fast one, and a lane of its own is prompt."""
    slots: int | str | None = None
    """Slots of a lane of its own: no other queue uses them, and a lane of all queues leaves this one out. The processes
    of one `fairlane worker` share them; `"100/process"`: each has as many. `running` counts over all workers."""
    max_per_tenant: int | None = None
    """Pending and running jobs of one tenant."""
    when_full: FullPolicy = "warn"
    """What happens to a job beyond `max_per_tenant`: queued with a warning, refused, or held until there is room."""
    rate_per_minute: int | None = None
    """Jobs of this queue that start in any minute, of all tenants together."""
    running: int | None = None
    """Jobs of this queue that run at once, over all workers."""
    tenant_running: int | None = None
    """The same for each tenant."""
    tenant_rate_per_minute: int | None = None
    """Jobs of each tenant in this queue that start in any minute."""
    priority_scope: PriorityScope = "queue"
    """Whether a priority orders all jobs of the queue, or those of one tenant among themselves."""
    aging_s: float | None = None
    """After waiting this long a job moves up by one priority, and again after as long; None: never."""
    retain_days: float | None = None
    """How long its jobs are kept once they are completed or cancelled, or their dead letter is closed. None: as the
    settings `retain_completed_days` and `retain_dead_letter_days` say."""

    def __post_init__(self) -> None:
        check_queue_name(self.name)
        for option in ("timeout_s", "aging_s", "retain_days"):
            value = getattr(self, option)
            if value is not None and (isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0):
                raise InvalidOption(f"{option} of queue {self.name}", value, "a number above 0, or none")
        if self.slots is not None:
            read_slots(self.slots, f"slots of queue {self.name}")
        if self.retain_days is not None and self.retain_days > MOST_DAYS:
            raise InvalidOption(f"retain_days of queue {self.name}", self.retain_days, f"up to {MOST_DAYS:,} days")
        for option in _COUNTS:
            value = getattr(self, option)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 < value < 2**31):
                expected = "a whole number above 0, or none for no limit"
                raise InvalidOption(f"{option} of queue {self.name}", value, expected)
        if not isinstance(self.fast, bool):
            raise InvalidOption(f"fast of queue {self.name}", self.fast, "true or false")
        if self.when_full not in ("warn", "reject", "hold"):
            raise InvalidOption(f"when_full of queue {self.name}", self.when_full, '"warn", "reject" or "hold"')
        if self.priority_scope not in ("queue", "tenant"):
            raise InvalidOption(f"priority_scope of queue {self.name}", self.priority_scope, '"queue" or "tenant"')

    def limits(self) -> Iterator[Limit]:
        """What it allows, as limits of the queue and of every tenant in it."""
        if self.running is not None or self.rate_per_minute is not None:
            rate = None if self.rate_per_minute is None else Rate(self.rate_per_minute, 60.0)
            yield Limit(kind="queue", name=self.name, running=self.running, rate=rate)
        if (self.max_per_tenant, self.tenant_running, self.tenant_rate_per_minute) != (None, None, None):
            yield Limit(
                kind="tenant",
                name=EVERY_TENANT,
                queue=self.name,
                running=self.tenant_running,
                rate=None if self.tenant_rate_per_minute is None else Rate(self.tenant_rate_per_minute, 60.0),
                waiting=self.max_per_tenant,
                when_full=self.when_full,
            )


class Router:
    """Sends job types to queues: by exact name first, then by the first pattern (`mail.*`) that fits."""

    def __init__(
        self,
        routes: Mapping[str, str] | None = None,
        queues: Mapping[str, QueuePolicy] | None = None,
        categories: Mapping[str, str] | None = None,
    ) -> None:
        self._routes, self._queues, self._categories = dict(routes or {}), dict(queues or {}), dict(categories or {})
        self._fast_queue = next((queue.name for queue in self._queues.values() if queue.fast), DEFAULT_QUEUE)
        self._unconfigured: dict[str, QueuePolicy] = {}
        for pattern, queue in self._routes.items():
            if queue not in self._queues and queue != DEFAULT_QUEUE:
                known = ", ".join(sorted(self._queues))
                raise ConfigError(
                    f'route "{pattern}" leads to queue "{queue}", which is not configured; there are {known}.'
                    f"{nearest(queue, self._queues)}"
                )

    def queue_for(self, task: str, *, is_fast: bool = False) -> str:
        """The queue of a job type; one that no route knows joins `default`, or the first fast queue if it is fast."""
        return _look_up(task, self._routes) or (self._fast_queue if is_fast else DEFAULT_QUEUE)

    def category_for(self, task: str) -> str | None:
        return _look_up(task, self._categories)

    def policy_for(self, queue: str) -> QueuePolicy:
        """What a queue grants; one that is not configured grants everything and limits nothing."""
        found = self._queues.get(queue)
        if found is None:
            found = self._unconfigured.get(queue)
            if found is None:
                if len(self._unconfigured) >= REMEMBERED:
                    self._unconfigured.clear()
                found = self._unconfigured[queue] = QueuePolicy(name=queue)
        return found


def _look_up(task: str, patterns: Mapping[str, str]) -> str | None:
    if task in patterns:
        return patterns[task]
    return next((value for pattern, value in patterns.items() if fnmatchcase(task, pattern)), None)
