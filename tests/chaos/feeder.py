"""Enqueues jobs of every kind for as long as a chaos run lasts, and remembers which were acknowledged."""

from __future__ import annotations

import random
import threading
from collections import Counter
from types import TracebackType
from typing import Any, Literal, Self

from fairlane import Fairlane
from fairlane.errors import FairlaneError
from tests.chaos.recorder import LIMITED_TENANT, LIMITED_TYPE, SHARING_TYPES, Records

Fate = Literal["completed", "dead"]
WAITING = 60
"""Jobs that any worker may run at once: as many wait at any time."""
WAITING_EACH = 12
"""Jobs of every other kind, which may be limited or paused: enough that limits are reached."""
MAY_DIE = ("chaos.crash", "chaos.fail")
TENANTS = ("t1", "t2", "t3", "t4")


class Feeder:
    """Enqueues from a thread of its own, in a `with` block; raises there what the thread raised."""

    def __init__(self, app: Fairlane, records: Records, chance: random.Random) -> None:
        self._app, self._records, self._chance = app, records, chance
        self.fates: dict[str, Fate] = {}
        """How each acknowledged job must end."""
        self._types: dict[str, str] = {}
        self._stopped = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="feeder")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stopped.set()
        self._thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            seen, over = 0, set[str]()
            while not self._stopped.wait(0.05):
                new = self._records.all[seen:]
                seen += len(new)
                over |= {record.job for record in new if record.event == "ended"}
                self._feed(Counter(kind for job, kind in self._types.items() if job not in over))
                for job in over & self._types.keys():
                    del self._types[job]
        except BaseException as error:
            self._error = error

    def _feed(self, waiting: Counter[str]) -> None:
        plain = [self._plain() for _ in range(min(20, WAITING - waiting["plain"]))]
        self._enqueue("plain", "completed", plain)
        for kind in ("limited", "small", "sharing", "keyed", "ordered"):
            if waiting[kind] < WAITING_EACH / 2:
                self._enqueue(kind, "completed", [self._other(kind) for _ in range(WAITING_EACH // 2)])
        for kind in ("alone", "delayed"):
            if waiting[kind] < WAITING_EACH and self._chance.random() < 0.4:
                self._enqueue(kind, "completed", [self._other(kind)])
        if self._chance.random() < 0.03:
            self._enqueue("bad", *self._bad())

    def _plain(self) -> Any:
        # Nobody pauses or limits this tenant: while the store is up there is always work.
        name = self._chance.choice(("work", "work", "block"))
        return self._task(name, "steady", priority=self._chance.choice(("low", "normal", "high"))).bind(self._s())

    def _other(self, kind: str) -> Any:
        if kind == "limited":
            return self._task(LIMITED_TYPE.partition(".")[2], self._tenant()).bind(self._s())
        if kind == "small":
            return self._task(self._chance.choice(("work", "block")), LIMITED_TENANT).bind(self._s())
        if kind == "keyed":
            return self._task("keyed", "keeper").bind(self._s())
        if kind == "ordered":
            return self._task("ordered", "keeper").bind(self._s(), int(self._chance.random() < 0.05))
        if kind == "sharing":
            return self._task(self._chance.choice(SHARING_TYPES).partition(".")[2], self._tenant()).bind(self._s())
        if kind == "alone":
            return self._task("alone", self._tenant()).bind(self._s())
        return self._task("work", self._tenant(), delay=self._chance.uniform(0.0, 2.0)).bind(self._s())

    def _bad(self) -> tuple[Fate, list[Any]]:
        how = self._chance.choice(("crash", "crash once", "fail", "fail once", "log", "words"))
        if how.startswith("crash"):
            times, way = (1, "exit") if "once" in how else (1000, self._chance.choice(("exit", "segv")))
            return "dead" if times > 1 else "completed", [self._task("crash", "crashing").bind(way, times)]
        if how.startswith("fail"):
            times = 1 if "once" in how else 1000
            return "dead" if times > 1 else "completed", [self._task("fail", self._tenant()).bind(times)]
        return "completed", [self._task("spoil", self._tenant()).bind(how)]

    def _enqueue(self, kind: str, fate: Fate, jobs: list[Any]) -> None:
        if not jobs:
            return
        try:
            handles = self._app.enqueue_many(jobs)
        except FairlaneError:
            return  # not acknowledged: it may be there or not
        for handle in handles:
            self.fates[str(handle.id)] = fate
            self._types[str(handle.id)] = kind

    def _task(self, name: str, tenant: str, **options: Any) -> Any:
        return self._app.tasks[f"chaos.{name}"].using(tenant=tenant, **options)

    def _tenant(self) -> str:
        return self._chance.choice(TENANTS)

    def _s(self) -> float:
        return self._chance.choice((0.0, 0.01, 0.03, 0.1))
