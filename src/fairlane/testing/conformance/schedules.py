"""Schedules of hourly reports: declared, listed and fired in words."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from fairlane.core.job import JobSpec
from fairlane.core.ops import Declared, DeclareSchedules, Fire, Fired, ListSchedules, Planned
from fairlane.core.schedules import Schedule, ScheduleSource, ScheduleSpec
from fairlane.testing.conformance.samples import NOON
from fairlane.testing.conformance.scene import Scene

HOUR = timedelta(hours=1)


def spec(name: str = "nightly", **words: Any) -> ScheduleSpec:
    return ScheduleSpec(**{"name": name, "type": "report.make", "cron": "0 * * * *", **words})


def declare(
    scene: Scene,
    *specs: ScheduleSpec,
    next_at: datetime | None = NOON,
    source: ScheduleSource = "code",
    prune: bool = False,
    by: str | None = None,
) -> Declared:
    planned = tuple(Planned(spec=one, next_at=next_at) for one in specs)
    return scene.run(DeclareSchedules(schedules=planned, source=source, prune=prune, by=by))


def listed(scene: Scene, **how: Any) -> tuple[Schedule, ...]:
    return scene.run(ListSchedules(**how)).schedules


def names(scene: Scene, **how: Any) -> list[str]:
    return [schedule.spec.name for schedule in listed(scene, **how)]


def firing(scene: Scene, nominal: datetime = NOON, name: str = "nightly") -> JobSpec:
    key = f"schedule:{name}:{nominal.isoformat()}"
    return scene.job("report.make", idempotency_key=key)


def fire(
    scene: Scene, *jobs: JobSpec, at: datetime = NOON, next_at: datetime | None = None, name: str = "nightly"
) -> Fired:
    following = at + HOUR if next_at is None else next_at
    return scene.run(Fire(name=name, expected_at=at, jobs=jobs, fired_at=at, next_at=following))
