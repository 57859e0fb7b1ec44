"""The store itself: what it says of itself, when it is closed, and whose connections it takes."""

from __future__ import annotations

import pytest

from fairlane.core.ops import Check, Enqueue, GetStats, PageJobs, Purge
from fairlane.core.ops.base import ALL_TENANTS
from fairlane.errors import StoreClosed, UnsupportedConnection
from fairlane.stores.base import Capability
from fairlane.testing.conformance.faces import Face
from fairlane.testing.conformance.scene import Scene


def test_a_store_says_what_it_can_do(new_face: Face) -> None:
    health = new_face.run(Check())
    assert health.durable is (Capability.DURABLE in new_face.capabilities)
    assert new_face.store.name


def test_a_store_begins_empty_at_the_schema_it_needs(new_face: Face) -> None:
    migrator = new_face.store.migrator()
    if migrator is not None:
        migrator.require()
        assert migrator.state().expanded == migrator.needed.expanded == new_face.run(Check()).schema_version
        assert migrator.pending() == ()
        assert migrator.up() == ()
    assert new_face.run(PageJobs(scope=ALL_TENANTS)).jobs == ()


@pytest.mark.requirement("Q6")
def test_a_closed_store_refuses_everything(new_face: Face) -> None:
    scene = Scene(new_face)
    scene.put()
    new_face.close_store()
    for op in (Enqueue(jobs=(scene.job(),)), GetStats(scope=ALL_TENANTS), Purge()):
        with pytest.raises(StoreClosed):
            scene.run(op)


def test_closing_twice_is_fine(new_face: Face) -> None:
    new_face.run(Check())
    new_face.close_store()
    new_face.close_store()


def test_a_connection_the_store_cannot_write_through_is_refused_and_nothing_is_enqueued(new_face: Face) -> None:
    scene = Scene(new_face)
    with pytest.raises(UnsupportedConnection):
        new_face.run(Enqueue(jobs=(scene.job(),), now=scene.now), on=object())
    assert scene.list_jobs() == []


def test_the_stores_own_clock_is_used_where_no_instant_is_given(new_face: Face) -> None:
    scene = Scene(new_face)
    before = new_face.run(Check()).now
    job = scene.job()
    new_face.run(Enqueue(jobs=(job,)))
    assert before <= scene.see(job.id).enqueued_at <= new_face.run(Check()).now


def test_a_listener_that_hears_nothing_says_so_and_may_be_closed_twice(new_face: Face) -> None:
    listener = new_face.store.listener(Scene(new_face).making.worker_id())
    assert listener.wait(0.0) is False
    listener.close()
    listener.close()
