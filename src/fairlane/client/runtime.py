"""State shared by the parts of one application: settings, clock, store, and the declarations of its code."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from fairlane.client.admin.breakers import Circuits
from fairlane.client.enqueue.enqueuer import Enqueuer
from fairlane.client.enqueue.prepare import Preparer
from fairlane.client.enqueue.quotas import CodeLimits
from fairlane.client.hooks import Hooks
from fairlane.client.settings.model import Settings
from fairlane.client.steps import Sleeper, SystemSleeper
from fairlane.client.store_access import StoreAccess
from fairlane.core.chance import Chance, SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.error_classes import Classifier
from fairlane.core.ids import JobId
from fairlane.core.job import ErrorClass
from fairlane.core.ops.workers import CaughtException
from fairlane.core.payload.validator import PayloadValidator
from fairlane.core.schedules import ScheduleSpec
from fairlane.stores.base import Store

if TYPE_CHECKING:
    from fairlane.client.task import Task

KEPT = 100


class LastExceptions:
    """The newest exceptions of jobs that ran in this process, oldest first: bounded, for tests and for debugging."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept: deque[CaughtException] = deque(maxlen=kept)
        self.total = 0
        """How many were raised in total, including those no longer kept."""

    def add(self, caught: CaughtException) -> None:
        self.total += 1
        self._kept.append(caught)

    def clear(self) -> None:
        self._kept.clear()

    def __iter__(self) -> Iterator[CaughtException]:
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)

    def __repr__(self) -> str:
        newest = "".join(f"\n  {one.task} of {one.tenant}: {one.type}: {one.error}" for one in list(self._kept)[-3:])
        return f"<{self.total} exceptions of jobs, {len(self)} kept{'; the newest:' if newest else ''}{newest}>"

    def __getitem__(self, at: int) -> CaughtException:
        return self._kept[at]


class Runtime:
    """Behind `app.runtime`: for workers, servers and tests. Applications use the methods of `Fairlane` instead."""

    def __init__(
        self,
        settings: Settings,
        *,
        store: Store | None = None,
        clock: Clock | None = None,
        chance: Chance | None = None,
        sleeper: Sleeper | None = None,
        errors: Mapping[type[BaseException], ErrorClass] | None = None,
        validator: PayloadValidator | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or SystemClock()
        self.chance = chance or SystemChance()
        self.access = StoreAccess(settings, clock, store, sleeper or SystemSleeper())
        self.classifier = Classifier(errors)
        self.preparer = Preparer(settings, self.clock, self.chance, validator)
        """The application's rules for a job, whichever store it then goes to."""
        self.tasks: dict[str, Task[..., Any]] = {}
        self.unknown_tasks: set[str] = set()
        """Names that were called here and are none of those, as a warning said."""
        self.limits = CodeLimits(settings)
        self.schedules: dict[str, ScheduleSpec] = {}
        """Schedules declared by code; workers write them to the store when they start."""
        self.queue_slots: dict[str, int | str] = {}
        """Queues to which the code gives a lane of this many slots, unless the settings give them slots."""
        self.circuits = Circuits(self.access, self.clock, self.chance, self.classifier, settings.breaker)
        self.enqueuer = Enqueuer(self)
        self._enqueuers: dict[Runtime, Enqueuer] = {}
        """For jobs of other applications, by their rules."""
        self.claim_cursors: dict[tuple[str, ...], str] = {}
        """Of claims by hand: the tenant that was served last, by queues."""
        self.last_exceptions = LastExceptions()
        self.has_resources = False
        self.hooks = Hooks()

    def copied(self, settings: Settings, access: StoreAccess, clock: Clock) -> Runtime:
        """The same declarations over other settings, another store and another clock: for tests."""
        found = copy(self)
        found.settings, found.access, found.clock = settings, access, clock
        found._enqueuers = {}
        found.preparer = self.preparer.copied(settings, clock)
        found.tasks, found.schedules = dict(self.tasks), dict(self.schedules)
        found.limits = self.limits.copied(settings)
        found.circuits = self.circuits.copied(access, clock, settings.breaker)
        found.last_exceptions = LastExceptions()
        found.hooks = self.hooks.copied()
        return found

    def enqueuer_under(self, rules: Runtime | None) -> Enqueuer:
        """The one for jobs that follow the rules of another application; None: this one's. It is kept, as it remembers
        what it has counted and warned of."""
        if rules is None or rules is self:
            return self.enqueuer
        if rules not in self._enqueuers:
            self._enqueuers[rules] = Enqueuer(self, rules)
        return self._enqueuers[rules]

    @property
    def store(self) -> Store:
        """The store itself, opened if it is not yet."""
        return self.access.store

    def new_job_id(self) -> JobId:
        return self.preparer.new_id()
