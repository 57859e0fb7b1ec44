"""Limits given and set, and what they leave to be claimed, in words."""

from __future__ import annotations

from typing import Any

from fairlane.core.ids import JobId
from fairlane.core.limits import Limit, LimitKind, Rate
from fairlane.core.ops import ALL_TENANTS, ClearLimit, LimitPaused, Limits, PauseLimit, SetLimit, Unhold, Waiting, Why
from fairlane.testing.conformance.scene import Scene


def queue(name: str = "default", **said: Any) -> Limit:
    return Limit(kind="queue", name=name, **said)


def tenant(name: str = "acme", queue: str = "", **said: Any) -> Limit:
    return Limit(kind="tenant", name=name, queue=queue, **said)


def every_tenant(queue: str = "", **said: Any) -> Limit:
    return tenant("*", queue, **said)


def task(name: str = "mail.send", **said: Any) -> Limit:
    return Limit(kind="type", name=name, **said)


def named(name: str, *types: str, **said: Any) -> Limit:
    return Limit(kind="named", name=name, types=types, **said)


def rate(count: int, period_s: float = 60.0) -> Rate:
    return Rate(count, period_s)


def set_limit(scene: Scene, limit: Limit, by: str = "ada", notes: str | None = None) -> Limits:
    return scene.run(SetLimit(limit=limit, by=by, notes=notes))


def clear_limit(scene: Scene, limit: Limit, by: str = "ada", notes: str | None = None) -> Limits:
    return scene.run(ClearLimit(kind=limit.kind, name=limit.name, queue=limit.queue, by=by, notes=notes))


def pause_limit(scene: Scene, kind: LimitKind, name: str, for_s: float, queue: str = "", by: str = "w") -> LimitPaused:
    return scene.run(PauseLimit(kind=kind, name=name, queue=queue, for_s=for_s, by=by))


def unhold(scene: Scene, *limits: Limit, limit: int = 1000) -> int:
    return scene.run(Unhold(limits=limits, limit=limit)).count


def why(scene: Scene, job: JobId, *limits: Limit) -> Waiting:
    told = scene.run(Why(scope=ALL_TENANTS, id=job, limits=limits))
    assert told is not None
    return told


def claimed(scene: Scene, *limits: Limit, limit: int = 9, **want: Any) -> list[JobId]:
    """What a new worker gets under these limits; it keeps them."""
    return [lease.id for lease in scene.claim(scene.hire(6000), limit, limits=limits, **want)]


HERE = {"type": "report.make", "queue": "bulk", "tenant": "acme"}
BOTH_QUEUES = ("bulk", "default")


def each_kind(**said: Any) -> dict[str, Limit]:
    """The same said of everything that a job put here is under."""
    return {
        "queue": queue("bulk", **said),
        "tenant": tenant("acme", **said),
        "every tenant": every_tenant(**said),
        "tenant in a queue": tenant("acme", "bulk", **said),
        "every tenant in a queue": every_tenant("bulk", **said),
        "type": task("report.make", **said),
        "named": named("printer", "report.make", "report.print", **said),
    }


def put(scene: Scene, count: int = 1, **options: Any) -> list[JobId]:
    return [scene.put(**HERE | options).id for _ in range(count)]


def got(scene: Scene, *limits: Limit, limit: int = 9, **want: Any) -> list[JobId]:
    want.setdefault("queues", BOTH_QUEUES)
    return claimed(scene, *limits, limit=limit, **want)
