"""Events: told once, read by whoever may see them, from where they left off."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from fairlane.core.ops import (
    ALL_TENANTS,
    WATCHED_FOR_S,
    AddEvents,
    Event,
    EventDraft,
    EventPage,
    ForgetOld,
    Purge,
    ReadEvents,
    Scope,
    only,
)
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("I13")


def tell(scene: Scene, *kinds: str, tenant: str | None = None, **data: Any) -> bool:
    drafts = tuple(EventDraft(kind=kind, tenant=tenant, data=data) for kind in kinds)
    return scene.run(AddEvents(events=drafts)).watched


def page(scene: Scene, scope: Scope = ALL_TENANTS, **how: Any) -> EventPage:
    return scene.run(ReadEvents(scope=scope, **how))


def read(scene: Scene, scope: Scope = ALL_TENANTS, **how: Any) -> tuple[Event, ...]:
    return page(scene, scope, **how).events


def kinds(events: tuple[Event, ...]) -> list[str]:
    return [event.kind for event in events]


def test_an_event_is_read_as_it_was_told(scene: Scene) -> None:
    data = {"organization": "acme", "queue": "critical", "waiting": 1000, "share": 0.5, "path": [1, {"x": None}, "é"]}
    tell(scene, "job_limit_warning", tenant="acme", **data)
    [event] = read(scene)
    assert (event.kind, event.tenant, event.at, event.data) == ("job_limit_warning", "acme", scene.now, data)


def test_an_event_may_be_nobodys_in_particular_and_say_nothing(scene: Scene) -> None:
    tell(scene, "worker_gone")
    [event] = read(scene)
    assert (event.tenant, event.data) == (None, {})


def test_whoever_keeps_what_was_told_or_read_cannot_change_it(scene: Scene) -> None:
    data: dict[str, Any] = {"names": ["a"]}
    tell(scene, "dlq_alert", **data)
    data["names"].append("b")
    read(scene)[0].data["names"].append("c")
    assert read(scene)[0].data == {"names": ["a"]}


def test_events_are_read_in_the_order_they_were_told(scene: Scene) -> None:
    tell(scene, "a", "b", "c")
    tell(scene, "d")
    events = read(scene)
    assert kinds(events) == ["a", "b", "c", "d"]
    numbers = [event.id for event in events]
    assert numbers == sorted(set(numbers))
    assert page(scene).last == numbers[-1]


def test_a_reader_goes_on_behind_the_last_one_it_saw(scene: Scene) -> None:
    tell(scene, *"abcde")
    seen: list[str] = []
    after = 0
    while events := read(scene, after=after, limit=2):
        seen += kinds(events)
        after = events[-1].id
    assert seen == list("abcde")
    assert (read(scene, after=after), page(scene, after=after).last) == ((), after)
    tell(scene, "f")
    assert kinds(read(scene, after=after)) == ["f"]


def test_a_reader_may_begin_with_what_comes_next(scene: Scene) -> None:
    tell(scene, "old")
    last = page(scene, limit=1).last
    tell(scene, "new")
    assert kinds(read(scene, after=last)) == ["new"]
    assert read(scene, after=2**53) == ()


def test_a_page_holds_one_to_a_thousand(scene: Scene) -> None:
    tell(scene, *["tick"] * 1003)
    assert len(read(scene)) == 200
    assert [len(read(scene, limit=limit)) for limit in (-1, 0, 1, 1000, 1001)] == [1, 1, 1, 1000, 1000]


def test_events_are_read_by_kind(scene: Scene) -> None:
    tell(scene, "a", "b", "c", "a")
    assert kinds(read(scene, kinds=("a",))) == ["a", "a"]
    assert kinds(read(scene, kinds=("c", "a"))) == ["a", "c", "a"]
    assert kinds(read(scene, kinds=("c", "a"), limit=2)) == ["a", "c"]
    assert kinds(read(scene, kinds=("A", "nothing"))) == []


@pytest.mark.requirement("W13")
def test_a_tenant_reads_its_own_events_alone(scene: Scene) -> None:
    for tenant in ("acme", "bolt", None, "acme"):
        tell(scene, "job_completed", tenant=tenant)
    tell(scene, "job_failed", tenant="acme")
    mine = read(scene, only("acme"))
    assert [event.tenant for event in mine] == ["acme"] * 3
    assert kinds(read(scene, only("acme"), kinds=("job_failed",))) == ["job_failed"]
    assert kinds(read(scene, only("acme"), after=mine[0].id, limit=1)) == ["job_completed"]
    assert read(scene, only("Acme")) == read(scene, only("")) == ()
    assert len(read(scene)) == 5


def test_the_last_number_is_told_whatever_the_scope(scene: Scene) -> None:
    before = page(scene).last
    tell(scene, "a", "b", tenant="bolt")
    told = page(scene, only("acme"))
    assert told.events == ()
    assert told.last == page(scene).last > before


def test_nobody_watches_until_somebody_reads_to_watch(scene: Scene) -> None:
    assert tell(scene, "a") is False
    read(scene)
    assert tell(scene, "b") is False
    read(scene, watch=True)
    assert tell(scene, "c") is True


def test_asking_whether_anybody_watches_tells_nothing(scene: Scene) -> None:
    last = page(scene).last
    assert tell(scene) is False
    read(scene, only("acme"), watch=True)
    assert tell(scene) is True
    assert (read(scene), page(scene).last) == ((), last)


def test_who_stops_reading_is_soon_not_watching_any_more(scene: Scene) -> None:
    read(scene, watch=True)
    scene.later(WATCHED_FOR_S - 1)
    assert tell(scene) is True
    read(scene)
    scene.later(1)
    assert tell(scene) is False


def test_every_look_counts_anew(scene: Scene) -> None:
    read(scene, watch=True)
    scene.later(WATCHED_FOR_S - 1)
    read(scene, watch=True)
    scene.later(WATCHED_FOR_S - 1)
    assert tell(scene) is True


def forget(scene: Scene, before: datetime | None, limit: int = 1000) -> int:
    forgotten = scene.run(ForgetOld(events_before=before, limit=limit))
    assert forgotten.credentials == 0
    return forgotten.events


def test_old_events_are_forgotten_oldest_first(scene: Scene) -> None:
    for kind in "abcd":
        tell(scene, kind)
        scene.later(10)
    assert forget(scene, None) == 0
    assert forget(scene, scene.at(-40)) == 0
    assert forget(scene, scene.at(-20), limit=0) == 0
    assert forget(scene, scene.at(-20), limit=1) == 1
    assert kinds(read(scene)) == ["b", "c", "d"]
    assert forget(scene, scene.at(-20)) == 1
    assert kinds(read(scene)) == ["c", "d"]


def test_a_forgotten_number_is_not_given_again(scene: Scene) -> None:
    tell(scene, "a", "b")
    last = page(scene).last
    scene.later(1)
    assert forget(scene, scene.now) == 2
    assert page(scene).last == last
    tell(scene, "c")
    [event] = read(scene, after=last)
    assert event.kind == "c"


def test_a_purge_takes_events_and_watchers_but_gives_no_number_again(scene: Scene) -> None:
    tell(scene, "a", "b")
    last = page(scene, watch=True).last
    scene.run(Purge())
    assert read(scene) == ()
    assert tell(scene, "c") is False
    [event] = read(scene)
    assert event.id > last
