"""Limits that people set: listed, changed, taken back, paused, and written down."""

from __future__ import annotations

import msgspec
import pytest

from fairlane.core.limits import NO_LIMIT, Limit, StoredLimit
from fairlane.core.ops import Limits, ListLimits, Purge
from fairlane.testing.conformance.limits import (
    claimed,
    clear_limit,
    every_tenant,
    named,
    pause_limit,
    queue,
    rate,
    set_limit,
    task,
    tenant,
)
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I2", "I5")

EVERYTHING_SAID = tenant(
    "acme",
    running=3,
    rate=rate(5, 1.5),
    waiting=100,
    when_full="hold",
    enqueue_rate=rate(7, 60.0),
    payload_bytes=10_000,
)
ONE_OF_EACH = {
    "queue": queue("bulk", running=4),
    "every tenant": every_tenant(waiting=10),
    "every tenant in a queue": every_tenant("bulk", waiting=5),
    "tenant": EVERYTHING_SAID,
    "tenant in a queue": tenant("acme", "bulk", when_full="reject"),
    "type": task("mail.send", rate=rate(50)),
    "named": named("smtp", "mail.send", "mail.digest", running=NO_LIMIT),
}
each_limit = pytest.mark.parametrize("limit", ONE_OF_EACH.values(), ids=list(ONE_OF_EACH))


def listed(scene: Scene) -> tuple[StoredLimit, ...]:
    told = scene.run(ListLimits())
    assert not told.changed
    return told.limits


def test_nothing_is_set_at_first(scene: Scene) -> None:
    assert scene.run(ListLimits()) == Limits(limits=())


@each_limit
def test_a_limit_is_kept_exactly_as_it_was_set(scene: Scene, limit: Limit) -> None:
    told = set_limit(scene, limit, by="grace")
    kept = StoredLimit(limit=limit, by="grace", at=scene.now)
    assert told == Limits(limits=(kept,), changed=True)
    assert listed(scene) == (kept,)


def test_limits_are_listed_by_kind_name_and_queue(scene: Scene) -> None:
    for limit in reversed(ONE_OF_EACH.values()):
        set_limit(scene, limit)
    set_limit(scene, queue("Bulk", running=1))
    assert [record.limit.key for record in listed(scene)] == [
        ("named", "smtp", ""),
        ("queue", "Bulk", ""),
        ("queue", "bulk", ""),
        ("tenant", "*", ""),
        ("tenant", "*", "bulk"),
        ("tenant", "acme", ""),
        ("tenant", "acme", "bulk"),
        ("type", "mail.send", ""),
    ]


def test_setting_again_replaces_all_that_was_said_before(scene: Scene) -> None:
    set_limit(scene, EVERYTHING_SAID)
    scene.later(5)
    told = set_limit(scene, tenant("acme", running=1), by="grace")
    assert told == Limits(
        limits=(StoredLimit(limit=tenant("acme", running=1), by="grace", at=scene.now),), changed=True
    )


@each_limit
def test_setting_what_is_set_already_writes_nothing(scene: Scene, limit: Limit) -> None:
    first = set_limit(scene, limit)
    scene.later(5)
    assert set_limit(scene, limit, by="grace", notes="again") == Limits(limits=first.limits)
    assert len(scene.audit()) == 1


def test_a_cleared_limit_is_gone_and_the_others_stay(scene: Scene) -> None:
    for limit in (tenant("acme", running=1), tenant("acme", "bulk", running=2), tenant("bolt", running=3)):
        set_limit(scene, limit)
    told = clear_limit(scene, tenant("acme", "bulk"))
    assert told.changed
    assert [record.limit.running for record in told.limits] == [1, 3]
    assert listed(scene) == told.limits


def test_clearing_what_was_never_set_writes_nothing(scene: Scene) -> None:
    set_limit(scene, tenant("acme", running=1))
    for other in (tenant("acme", "bulk"), tenant("Acme"), queue("acme"), task("acme"), named("acme")):
        assert not clear_limit(scene, other).changed
    assert len(scene.audit()) == len(listed(scene)) == 1


TARGETS = {
    "queue": ("limit:queue:bulk", None),
    "every tenant": ("limit:tenant:*", None),
    "every tenant in a queue": ("limit:tenant:*@bulk", None),
    "tenant": ("limit:tenant:acme", "acme"),
    "tenant in a queue": ("limit:tenant:acme@bulk", "acme"),
    "type": ("limit:type:mail.send", None),
    "named": ("limit:named:smtp", None),
}


@pytest.mark.requirement("W12")
@pytest.mark.parametrize("what", ONE_OF_EACH)
def test_setting_and_clearing_are_written_down(scene: Scene, what: str) -> None:
    limit, (target, whose) = ONE_OF_EACH[what], TARGETS[what]
    other = msgspec.structs.replace(limit, running=99)
    set_limit(scene, limit, notes="too many")
    scene.later(1)
    set_limit(scene, other, by="grace")
    scene.later(1)
    clear_limit(scene, limit, notes="never mind")
    cleared, changed, made = scene.audit()
    assert [record.action for record in (made, changed, cleared)] == ["limit_set", "limit_set", "limit_clear"]
    assert {(record.target, record.tenant) for record in (made, changed, cleared)} == {(target, whose)}
    assert [(record.by, record.notes) for record in (made, changed, cleared)] == [
        ("ada", "too many"),
        ("grace", None),
        ("ada", "never mind"),
    ]
    first, second = (msgspec.json.decode(msgspec.json.encode(said)) for said in (limit, other))
    assert (made.before, made.after) == (None, first)
    assert (changed.before, changed.after) == (first, second)
    assert (cleared.before, cleared.after) == (second, None)
    assert (made.at, changed.at, cleared.at) == (scene.at(-2), scene.at(-1), scene.now)


def test_the_audit_tells_a_limit_as_it_was_written(scene: Scene) -> None:
    set_limit(scene, tenant("acme", "bulk", running=0, rate=rate(5, 1.5)))
    [record] = scene.audit()
    said = {"kind": "tenant", "name": "acme", "queue": "bulk", "running": 0, "rate": {"count": 5, "period_s": 1.5}}
    assert record.after == said


# Pausing a limit.


def test_a_pause_makes_a_record_that_says_nothing_else(scene: Scene) -> None:
    told = pause_limit(scene, "named", "smtp", 30, by="worker 1")
    assert told.until == scene.at(30)
    nothing = Limit(kind="named", name="smtp")
    assert listed(scene) == (StoredLimit(limit=nothing, by="worker 1", at=scene.now, paused_until=scene.at(30)),)
    assert scene.audit() == ()


def test_a_pause_is_never_shortened_by_a_later_one(scene: Scene) -> None:
    first = pause_limit(scene, "type", "mail.send", 30)
    scene.later(10)
    assert pause_limit(scene, "type", "mail.send", 5) == first
    assert pause_limit(scene, "type", "mail.send", 25).until == scene.at(25)
    scene.later(60)
    assert pause_limit(scene, "type", "mail.send", 1).until == scene.at(1)
    assert [record.paused_until for record in listed(scene)] == [scene.at(1)]


def test_a_pause_keeps_what_was_set_and_who_set_it(scene: Scene) -> None:
    set_limit(scene, task(running=2), by="grace")
    at = scene.now
    scene.later(5)
    pause_limit(scene, "type", "mail.send", 30)
    assert listed(scene) == (StoredLimit(limit=task(running=2), by="grace", at=at, paused_until=scene.at(30)),)


def test_setting_a_limit_leaves_its_pause(scene: Scene) -> None:
    until = pause_limit(scene, "type", "mail.send", 30).until
    scene.later(5)
    told = set_limit(scene, task(running=2))
    assert told == Limits(
        limits=(StoredLimit(limit=task(running=2), by="ada", at=scene.now, paused_until=until),), changed=True
    )
    [record] = scene.audit()
    assert (record.before, record.after) == (None, {"kind": "type", "name": "mail.send", "running": 2})


def test_clearing_a_limit_takes_its_pause_too(scene: Scene) -> None:
    set_limit(scene, task(running=2))
    pause_limit(scene, "type", "mail.send", 30)
    job = scene.put().id
    assert claimed(scene) == []
    assert clear_limit(scene, task()) == Limits(limits=(), changed=True)
    assert claimed(scene) == [job]


def test_clearing_only_a_pause_is_not_audited(scene: Scene) -> None:
    pause_limit(scene, "type", "mail.send", 30)
    assert clear_limit(scene, task()) == Limits(limits=(), changed=True)
    assert scene.audit() == ()


def test_setting_a_limit_as_it_is_leaves_the_pause_and_writes_nothing(scene: Scene) -> None:
    set_limit(scene, task(running=2))
    pause_limit(scene, "type", "mail.send", 30)
    before = listed(scene)
    assert not set_limit(scene, task(running=2)).changed
    assert listed(scene) == before


def test_a_purge_takes_limits_and_what_was_counted_with_it(scene: Scene) -> None:
    scene.put()
    set_limit(scene, task(rate=rate(1)))
    assert len(claimed(scene)) == 1
    scene.run(Purge())
    assert listed(scene) == ()
    job = scene.put().id
    assert claimed(scene, task(rate=rate(1))) == [job]
