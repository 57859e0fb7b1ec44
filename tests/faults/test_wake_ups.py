"""Who is woken by an enqueue: a worker that waits, once a call, and only when the job can be seen."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from fairlane import Fairlane
from fairlane.core.ops import Enqueue, Turn
from fairlane.core.ops.enqueue import Notify
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.scene import Scene
from tests.faults.places import Place


class Ear:
    """A session of its own that hears every wake-up."""

    def __init__(self, dsn: str) -> None:
        self._conn = psycopg.connect(dsn, autocommit=True)
        self._conn.execute("listen fairlane_wake")

    def heard(self) -> int:
        """How many wake-ups were sent since the last time.

        Ours is the last one: notifications arrive in the order of the commits that sent them.
        """
        self._conn.execute("notify fairlane_wake, 'ours'")
        for count, notification in enumerate(self._conn.notifies(timeout=10)):
            if notification.payload == "ours":
                return count
        raise AssertionError("the session hears nothing")

    def close(self) -> None:
        self._conn.close()


@pytest.fixture
def ear(place: Place) -> Iterator[Ear]:
    ear = Ear(place.dsn)
    yield ear
    ear.close()


@pytest.fixture
def scene(store: PostgresStore) -> Scene:
    return Scene(store)


def wait_for_work(scene: Scene, waiting: bool = True) -> None:
    scene.run(Turn(worker=scene.hire(), claim_no=1, waiting=waiting))


def enqueue(scene: Scene, count: int = 1, notify: Notify = "if_waiting", **options: str) -> Enqueue:
    return Enqueue(jobs=tuple(scene.job(**options) for _ in range(count)), notify=notify)


@pytest.mark.requirement("Q3")
def test_an_enqueue_wakes_once_a_call_and_only_when_a_worker_waits(scene: Scene, ear: Ear) -> None:
    scene.run(enqueue(scene, 5))
    assert ear.heard() == 0
    wait_for_work(scene, waiting=False)
    scene.run(enqueue(scene, 5))
    assert ear.heard() == 0
    wait_for_work(scene)
    wait_for_work(scene)
    scene.run(enqueue(scene, 5))
    assert ear.heard() == 1
    scene.run(enqueue(scene, 5, dedup_key="one"))
    assert ear.heard() == 1


@pytest.mark.requirement("Q3")
def test_a_worker_that_found_work_is_not_woken_any_more(scene: Scene, ear: Ear) -> None:
    worker = scene.hire()
    scene.turn(worker, waiting=True)
    scene.turn(worker)
    scene.run(enqueue(scene))
    assert ear.heard() == 0


@pytest.mark.requirement("Q3")
def test_a_call_that_made_no_job_wakes_nobody(scene: Scene, ear: Ear) -> None:
    wait_for_work(scene)
    op = enqueue(scene, idempotency_key="k")
    scene.run(op)
    assert ear.heard() == 1
    scene.run(op)
    scene.run(enqueue(scene, idempotency_key="k"))
    scene.run(Enqueue(jobs=()))
    assert ear.heard() == 0


@pytest.mark.requirement("Q3")
def test_never_and_always_mean_it(scene: Scene, ear: Ear) -> None:
    scene.run(enqueue(scene, 5, "always"))
    assert ear.heard() == 1
    wait_for_work(scene)
    scene.run(enqueue(scene, 5, "never"))
    assert ear.heard() == 0


@pytest.mark.requirement("Q3")
def test_a_wake_up_from_a_borrowed_connection_comes_with_its_commit_and_not_without(
    place: Place, store: PostgresStore, scene: Scene, ear: Ear
) -> None:
    with psycopg.connect(place.dsn) as conn:
        store.run(enqueue(scene, 3, "always"), on=conn)
        assert ear.heard() == 0
        conn.rollback()
        assert ear.heard() == 0
        store.run(enqueue(scene, 3, "always"), on=conn)
        conn.commit()
        assert ear.heard() == 1


@pytest.mark.requirement("Q3")
def test_a_worker_that_begins_to_wait_during_a_long_transaction_is_woken_by_its_commit(
    place: Place, scene: Scene, ear: Ear
) -> None:
    with Fairlane(place.dsn) as app:
        task = app.task(name="mail.send")(lambda: None)
        with psycopg.connect(place.dsn) as conn:
            task.using(conn=conn).enqueue()
            wait_for_work(scene)  # too late for the enqueue to see it, in time for the commit
        assert ear.heard() == 1
        with psycopg.connect(place.dsn) as conn:
            app.enqueue_many([task.bind(), task.bind()], conn=conn)
        assert ear.heard() == 1


def test_a_signal_emitted_in_a_long_transaction_wakes_those_who_wait_when_it_commits(
    place: Place, scene: Scene, ear: Ear
) -> None:
    with Fairlane(place.dsn) as app, psycopg.connect(place.dsn) as conn:
        app.signals.emit("paid", conn=conn)  # nobody waits yet
        wait_for_work(scene)
        assert ear.heard() == 0
        conn.commit()
        assert ear.heard() == 1


@pytest.mark.requirement("Q3")
def test_an_application_that_turned_wake_ups_off_sends_none_from_a_borrowed_connection_either(
    place: Place, scene: Scene, ear: Ear
) -> None:
    wait_for_work(scene)
    with Fairlane(place.dsn, notify="never") as app, psycopg.connect(place.dsn) as conn:
        app.task(name="mail.send")(lambda: None).using(conn=conn).enqueue()
        conn.commit()
    assert ear.heard() == 0
