"""Jobs of a tenant at its limit of what may wait, in words."""

from __future__ import annotations

from typing import Any

from fairlane.core.ids import JobId
from fairlane.core.limits import Limit
from fairlane.core.ops import EnqueueResult, LimitHit
from fairlane.testing.conformance.limits import tenant
from fairlane.testing.conformance.scene import Scene


def full_at(waiting: int, policy: Any = "hold", **said: Any) -> Limit:
    return tenant("acme", waiting=waiting, when_full=policy, **said)


def jobs(scene: Scene, count: int, **options: Any) -> list[Any]:
    return [scene.job(**{"tenant": "acme", **options}) for _ in range(count)]


def put(scene: Scene, count: int, *limits: Limit, **options: Any) -> EnqueueResult:
    return scene.enqueue(*jobs(scene, count, **options), limits=limits)


def hit(limit: int, found: int, policy: Any, queue: str = "default", name: str = "acme") -> LimitHit:
    return LimitHit(tenant=name, queue=queue, cause="waiting", limit=limit, found=found, policy=policy)


def held_ids(result: EnqueueResult) -> list[JobId]:
    return [receipt.id for receipt in result.receipts if receipt.held]


def hold(scene: Scene, count: int = 1, **options: Any) -> list[JobId]:
    """Enqueue `count` jobs of acme, which are held at once."""
    ids = held_ids(put(scene, count, full_at(0), **options))
    assert len(ids) == count
    return ids
