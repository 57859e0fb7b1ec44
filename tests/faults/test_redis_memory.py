"""A Redis server whose memory is full takes no jobs and says so; what is there goes on, and room is used as soon as it is."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

import pytest

from fairlane.core.ops import ALL_TENANTS, Enqueue, GetStats
from fairlane.errors import ConfigError, StoreUnavailable
from fairlane.stores.failover import CameBack, Failover, News, RefusesJobs, Replayed, Spool
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.samples import Making, completed, died, retried
from fairlane.testing.conformance.scene import Scene
from fairlane.testing.conformance.workflows import Flow
from tests.faults.eventually import eventually
from tests.faults.test_unreachable import both_colours, one_job
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Face


@pytest.fixture
def valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer(appendfsync="everysec") as server:
        yield server


def set_memory(valkey: ValkeyServer, more: int, policy: str = "noeviction") -> None:
    """So many bytes more than are used now."""
    valkey.call("CONFIG", "SET", "maxmemory-policy", policy)
    [used] = re.findall(r"used_memory:(\d+)", valkey.call("INFO", "memory"))
    valkey.call("CONFIG", "SET", "maxmemory", str(int(used) + more))


@pytest.mark.requirement("Q17")
@both_colours
def test_a_full_redis_refuses_jobs_whole_while_workers_go_on_and_retention_makes_room(
    valkey: ValkeyServer, colour: str
) -> None:
    face = Face(RedisStore(valkey.url), colour)
    scene = Scene(face)
    worker = scene.hire()
    scene.finished()  # every script is known
    set_memory(valkey, 2_000_000)
    payload, acknowledged = '"' + "x" * 20_000 + '"', 1
    with contextlib.suppress(StoreUnavailable):
        while acknowledged < 300:
            acknowledged += len(scene.put_many(3, payload=payload))
    set_memory(valkey, -100_000)
    with pytest.raises(StoreUnavailable, match=r"cannot be used: .* its memory is full; raise maxmemory"):
        scene.put_many(3, payload=payload)
    assert 30 < acknowledged < 300
    assert len(scene.list_jobs()) == acknowledged == scene.queue().ready + 1, "nothing of the refused call is there"
    # Full, and still the work is done: nothing of this takes new jobs.
    leases = scene.claim(worker, 300)
    assert len(leases) == acknowledged - 1
    first, second, *rest = leases
    assert not scene.settle(worker, *map(completed, rest), retried(first), died(second)).refused
    scene.renew(worker)
    assert scene.cancel(first.id).refused is None
    scene.later(3600)
    assert scene.retain(finished_before=scene.now, limit=1000) == acknowledged - 1
    assert scene.put_many(3, payload=payload), "there is room again"
    assert scene.discard(second.seq).refused is None
    face.close()


@pytest.mark.requirement("Q17", "L18")
def test_a_full_redis_adds_no_nodes_and_runs_those_that_are_there(valkey: ValkeyServer) -> None:
    face = Face(RedisStore(valkey.url), "sync")
    flow = Flow(Scene(face), {"a": []}).put()
    assert flow.add({"b": ["a"]}).added == 1
    set_memory(valkey, -100_000)
    with pytest.raises(StoreUnavailable, match="its memory is full"):
        flow.add({"c": ["a"]})
    assert flow.add({"b": ["a"]}, known=["a"]).added == 0
    assert flow.run() == ["a", "b"]
    assert flow.status == "completed"
    face.close()


@pytest.mark.requirement("Q5", "Q17")
@both_colours
@pytest.mark.parametrize("is_restarted", [False, True], ids=["running", "restarted"])
def test_a_full_redis_with_a_spool_keeps_its_workers_and_takes_the_spooled_jobs_when_there_is_room(
    valkey: ValkeyServer, colour: str, is_restarted: bool
) -> None:
    news: list[News] = []
    store = Failover(RedisStore(valkey.url), Spool(), on_news=news.append)
    face = Face(store, colour)
    scene = Scene(face)
    worker, making = scene.hire(), Making(1)
    first = scene.put_many(100, payload='"' + "x" * 20_000 + '"')
    if is_restarted:
        valkey.stop()
        valkey.start()
    set_memory(valkey, -100_000)
    late = [making.job() for _ in range(5)]
    for job in late:
        assert face.run(Enqueue(jobs=(job,))).spooled
    assert store.state().reachable
    assert "its memory is full" in (store.state().why or "")
    # Everything else goes to the server, and so the room is made that the spooled jobs need.
    leases = scene.claim(worker, 300)
    assert len(leases) == len(first)
    scene.renew(worker)
    assert not scene.settle(worker, *map(completed, leases)).refused
    assert store.spool.depth().jobs == len(late)
    scene.later(3600)
    assert scene.retain(finished_before=scene.now, limit=1000) == len(first)
    eventually(lambda: store.spool.depth().jobs == 0 and store.state().why is None)
    assert scene.list_jobs()[::-1] == [job.id for job in late]
    assert not face.run(Enqueue(jobs=(making.job(),))).spooled
    assert [type(one) for one in news] == [RefusesJobs, Replayed, CameBack]
    face.close()


@both_colours
@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
def test_a_redis_that_throws_data_away_is_refused_until_it_is_set_right(
    valkey: ValkeyServer, colour: str, policy: str
) -> None:
    set_memory(valkey, 10_000_000, policy)
    face = Face(RedisStore(valkey.url), colour)
    for op in (Enqueue(jobs=(Making().job(),)), GetStats(scope=ALL_TENANTS)):
        with pytest.raises(ConfigError, match=f'maxmemory-policy is "{policy}".*set it to "noeviction"'):
            face.run(op)
    set_memory(valkey, 10_000_000)
    assert face.run(one_job()).receipts[0].disposition == "created"
    face.close()
