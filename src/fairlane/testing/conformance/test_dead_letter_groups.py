"""Dead letters that failed alike, put together for review."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, DeadLetterFilter, DeadLetterGroup, GroupDeadLetters, Purge, Scope, only
from fairlane.testing.conformance.samples import died, failure
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("W10")


def dies(scene: Scene, fingerprint: str = "f00d", message: str = "the server hung up", **options: Any) -> Lease:
    error = {name: options.pop(name) for name in ("error_type", "error_class") if name in options}
    worker, lease = scene.leased(**options)
    scene.settle(worker, died(lease, failure(message, fingerprint=fingerprint, **error)))
    return lease


def groups(scene: Scene, scope: Scope = ALL_TENANTS, limit: int = 50, **where: Any) -> tuple[DeadLetterGroup, ...]:
    if not where:
        return scene.run(GroupDeadLetters(scope=scope, limit=limit)).groups
    return scene.run(GroupDeadLetters(scope=scope, limit=limit, where=DeadLetterFilter(**where))).groups


def counts(found: tuple[DeadLetterGroup, ...]) -> dict[str, int]:
    return {group.fingerprint: group.count for group in found}


def test_without_dead_letters_there_are_no_groups(scene: Scene) -> None:
    scene.finished()
    assert groups(scene) == ()


def test_a_group_shows_what_its_letters_have_in_common(scene: Scene) -> None:
    dies(scene, message="hung up on 7", tenant="acme", error_type="OSError")
    first_at = scene.now
    scene.later(60)
    dies(scene, message="hung up on 8", tenant="bolt", error_type="OSError")
    scene.later(60)
    newest = dies(scene, message="hung up on 9", tenant="acme", error_type="OSError")
    assert groups(scene) == (
        DeadLetterGroup(
            fingerprint="f00d",
            type="mail.send",
            error_type="OSError",
            reason="hung up on 9",
            count=3,
            tenants=2,
            first_at=first_at,
            last_at=scene.now,
            newest=newest.seq,
        ),
    )


def test_the_newest_letter_speaks_for_its_group(scene: Scene) -> None:
    """Newest by number, as letters are listed; a job that waited long may have died last and still be an older one."""
    old = scene.put()
    newest = dies(scene, type="report.make", message="second", error_type="KeyError", queue="bulk")
    scene.later(30)
    worker = scene.hire()
    [lease] = scene.claim(worker)
    assert lease.id == old.id
    scene.settle(worker, died(lease, failure("first", error_type="OSError")))
    [group] = groups(scene)
    assert (group.newest, group.type, group.error_type, group.reason) == (
        newest.seq,
        "report.make",
        "KeyError",
        "second",
    )
    assert (group.first_at, group.last_at) == (scene.at(-30), scene.now)


def test_a_reason_is_shortened_as_in_the_letter(scene: Scene) -> None:
    lease = dies(scene, message="é" * 2100)
    assert groups(scene)[0].reason == scene.letter(lease.seq).reason == "é" * 2000


def test_the_biggest_groups_come_first_then_by_fingerprint(scene: Scene) -> None:
    for fingerprint in ("b", "c", "a", "c", "B", "d", "d"):
        dies(scene, fingerprint)
    found = groups(scene)
    assert [(group.fingerprint, group.count) for group in found] == [("c", 2), ("d", 2), ("B", 1), ("a", 1), ("b", 1)]
    assert groups(scene, limit=3) == found[:3]


def test_the_limit_bounds_groups_and_not_the_letters_in_them(scene: Scene) -> None:
    for fingerprint in "aabab":
        dies(scene, fingerprint)
    [group] = groups(scene, limit=1)
    assert (group.fingerprint, group.count) == ("a", 3)


def test_only_letters_that_wait_for_review_are_put_together_by_default(scene: Scene) -> None:
    kept, discarded, resolved, retried = (dies(scene) for _ in range(4))
    scene.discard(discarded.seq)
    scene.resolve(resolved.seq)
    scene.reprocess(retried.seq)
    [group] = groups(scene)
    assert (group.count, group.newest) == (1, kept.seq)
    everything = scene.run(GroupDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter())).groups
    assert counts(everything) == {"f00d": 4}
    assert counts(groups(scene, status="resolved")) == {"f00d": 1}


def test_an_acknowledged_letter_still_waits_for_review(scene: Scene) -> None:
    mine, _ = dies(scene), dies(scene)
    scene.acknowledge(mine.seq)
    assert groups(scene)[0].count == 2
    [group] = groups(scene, acknowledged=True)
    assert (group.count, group.newest) == (1, mine.seq)
    assert counts(groups(scene, acknowledged=False)) == {"f00d": 1}


def test_every_filter_of_the_listing_holds_for_groups(scene: Scene) -> None:
    dies(scene, "q", queue="bulk", category="export")
    dies(scene, "t", type="report.make")
    dies(scene, "c", error_class="non_retryable")
    dies(scene, "e", error_type="KeyError")
    dies(scene, "o", correlation_id="order-1")
    assert counts(groups(scene, queue="bulk")) == {"q": 1}
    assert counts(groups(scene, type="report.make")) == {"t": 1}
    assert counts(groups(scene, category="export")) == {"q": 1}
    assert counts(groups(scene, error_class="non_retryable")) == {"c": 1}
    assert counts(groups(scene, error_type="KeyError")) == {"e": 1}
    assert counts(groups(scene, correlation_id="order-1")) == {"o": 1}
    assert counts(groups(scene, fingerprint="o")) == {"o": 1}
    assert counts(groups(scene, queue="default", error_type="ConnectionResetError")) == {"t": 1, "c": 1, "o": 1}
    assert groups(scene, fingerprint="nobody's") == ()


@pytest.mark.requirement("W13")
def test_a_tenant_sees_its_own_letters_alone(scene: Scene) -> None:
    for tenant in ("acme", "bolt", "acme"):
        dies(scene, tenant=tenant, message=f"for {tenant}")
    newest = dies(scene, tenant="bolt", message="for bolt")
    [mine] = groups(scene, only("acme"))
    assert (mine.count, mine.tenants, mine.reason) == (2, 1, "for acme")
    assert mine.newest != newest.seq
    assert groups(scene, only("corp")) == ()
    [all_of_them] = groups(scene)
    assert (all_of_them.count, all_of_them.tenants) == (4, 2)


def test_a_letter_that_is_removed_leaves_its_group(scene: Scene) -> None:
    gone, _ = dies(scene), dies(scene)
    scene.resolve(gone.seq)
    assert scene.retain(closed_before=scene.at(1)) == 1
    assert counts(scene.run(GroupDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter())).groups) == {"f00d": 1}
    scene.run(Purge())
    assert groups(scene) == ()


def test_what_people_and_foremen_ended_is_put_together_too(scene: Scene) -> None:
    for _ in range(2):
        scene.bury(scene.put(tenant="acme").id, reason="never mind")
    [group] = groups(scene)
    assert (group.error_type, group.count, group.reason) == ("Buried", 2, "never mind")
