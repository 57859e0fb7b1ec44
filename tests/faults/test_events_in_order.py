"""Events are seen in the order of their ids, however slowly those who tell them commit."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from fairlane.core.ops import ALL_TENANTS, AddEvents, EventDraft, ForgetOld, ReadEvents
from fairlane.stores.postgres import PostgresStore
from tests.faults.eventually import eventually
from tests.faults.places import Place

pytestmark = pytest.mark.requirement("I13")

TELL = """select fairlane.add_events_v1('{"events": [{"kind": "slow"}]}')"""


def test_a_slow_event_is_never_stepped_over(place: Place, store: PostgresStore) -> None:
    with psycopg.connect(place.dsn) as slow, ThreadPoolExecutor(1) as thread:
        slow.execute(TELL)
        quick = thread.submit(store.run, AddEvents(events=(EventDraft(kind="quick"),)))
        eventually(place.sessions_waiting)
        page = store.run(ReadEvents(scope=ALL_TENANTS))
        assert (page.events, page.last) == ((), 0)
        slow.commit()
        quick.result(20)
    assert [event.kind for event in store.run(ReadEvents(scope=ALL_TENANTS, after=page.last)).events] == [
        "slow",
        "quick",
    ]


def test_an_event_taken_back_leaves_nobody_waiting_for_it(place: Place, store: PostgresStore) -> None:
    with psycopg.connect(place.dsn) as slow:
        slow.execute(TELL)
        slow.rollback()
    store.run(AddEvents(events=(EventDraft(kind="quick"),)))
    page = store.run(ReadEvents(scope=ALL_TENANTS))
    assert [event.kind for event in page.events] == ["quick"]
    assert page.last == page.events[-1].id


def test_the_last_id_stays_when_all_events_are_forgotten(store: PostgresStore) -> None:
    store.run(AddEvents(events=(EventDraft(kind="a"), EventDraft(kind="b"))))
    page = store.run(ReadEvents(scope=ALL_TENANTS))
    future = page.events[-1].at.replace(year=page.events[-1].at.year + 1)
    assert store.run(ForgetOld(events_before=future)).events == 2
    assert store.run(ReadEvents(scope=ALL_TENANTS)).last == page.last


def test_who_follows_many_tellers_sees_each_event_once_and_in_order(store: PostgresStore) -> None:
    tellers, told_by_each = 4, 25
    done = threading.Event()

    def tell(teller: int) -> None:
        for number in range(told_by_each):
            drafts = (EventDraft(kind="first", data={"at": [teller, number]}), EventDraft(kind="second"))
            store.run(AddEvents(events=drafts))

    def follow() -> list[int]:
        seen: list[int] = []
        while True:
            finished = done.is_set()
            page = store.run(ReadEvents(scope=ALL_TENANTS, after=seen[-1] if seen else 0, limit=7))
            seen += [event.id for event in page.events]
            if finished and not page.events:
                return seen

    with ThreadPoolExecutor(tellers + 1) as threads:
        following = threads.submit(follow)
        for telling in [threads.submit(tell, teller) for teller in range(tellers)]:
            telling.result(60)
        done.set()
        seen = following.result(60)
    assert len(seen) == 2 * tellers * told_by_each
    assert seen == sorted(set(seen))
