"""A cluster of three Valkey servers: an installation lives in one slot, found from any node, also after it has moved."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.core.ops import ALL_TENANTS, GetStats
from fairlane.errors import StoreUnavailable
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.samples import completed, died
from fairlane.testing.conformance.scene import Scene, wanting
from tests.faults.eventually import eventually
from tests.faults.test_unreachable import both_colours
from tests.servers.valkey import ValkeyCluster, ValkeyServer
from tests.support.stores import Face


@pytest.fixture(scope="module")
def cluster() -> Iterator[ValkeyCluster]:
    with ValkeyCluster(appendfsync="everysec") as cluster:
        yield cluster


def slot_of(node: ValkeyServer, prefix: str) -> str:
    return str(node.call("CLUSTER", "KEYSLOT", f"{{{prefix}}}"))


def holder(cluster: ValkeyCluster, prefix: str) -> ValkeyServer:
    """The node that has the jobs of an installation."""
    slot = slot_of(cluster.nodes[0], prefix)
    [found] = [node for node in cluster.nodes if int(node.call("CLUSTER", "COUNTKEYSINSLOT", slot)) > 0]
    return found


def move_slot(cluster: ValkeyCluster, prefix: str, to: ValkeyServer) -> None:
    """Move an installation to another node, key by key, as an administrator would."""
    for _ in moving_slot(cluster, prefix, to, at_once=100):
        pass


def moving_slot(cluster: ValkeyCluster, prefix: str, to: ValkeyServer, at_once: int) -> Iterator[None]:
    """The same, with a pause before the first and behind each lot of keys."""
    source, slot = holder(cluster, prefix), slot_of(to, prefix)
    ids = {node: node.call("CLUSTER", "MYID") for node in (source, to)}
    to.call("CLUSTER", "SETSLOT", slot, "IMPORTING", ids[source])
    source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", ids[to])
    yield
    while keys := source.call("CLUSTER", "GETKEYSINSLOT", slot, str(at_once)):
        source.call("MIGRATE", "127.0.0.1", str(to.port), "", "0", "5000", "KEYS", *keys)
        yield
    for node in (to, source, *cluster.nodes):
        node.call("CLUSTER", "SETSLOT", slot, "NODE", ids[to])


@pytest.mark.requirement("Q17")
@both_colours
@pytest.mark.parametrize("number", range(3))
def test_a_job_lives_its_whole_life_whichever_node_the_url_names(
    cluster: ValkeyCluster, number: int, colour: str
) -> None:
    prefix = f"life-{number}-{colour}"
    face = Face(RedisStore(cluster.nodes[number].url, key_prefix=prefix), colour)
    scene = Scene(face)
    scene.now = face.run(GetStats(scope=ALL_TENANTS)).now
    worker = scene.hire(3600.0)
    listener = RedisStore(cluster.nodes[number - 1].url, key_prefix=prefix).listener(worker)
    scene.turn(worker, wanting(1), waiting=True)
    receipts = scene.put_many(20, tenant="acme")
    assert listener.wait(10), "woken by way of another node"
    first, second, *rest = scene.claim(worker, 20)
    assert not scene.settle(worker, *map(completed, rest), died(second), completed(first)).refused
    scene.put(tenant="acme", delay_s=60.0)
    assert scene.reprocess(second.seq).refused is None
    [again] = scene.claim(worker, 20)
    assert not scene.settle(worker, completed(again)).refused
    assert scene.letter(second.seq).status == "retried"
    assert len(scene.list_jobs()) == len(receipts) + 2
    assert (scene.queue().scheduled, scene.stats().completed, scene.stats().dead) == (1, 20, 1)
    listener.close()
    face.close()


def test_installations_spread_over_the_nodes_of_a_cluster(cluster: ValkeyCluster) -> None:
    homes = set()
    for number in range(12):
        store = RedisStore(cluster.nodes[0].url, key_prefix=f"shard{number}")
        Scene(store).put()
        homes.add(holder(cluster, f"shard{number}"))
        store.close()
    assert homes == set(cluster.nodes)


def test_while_a_slot_moves_key_by_key_nothing_is_done_and_afterwards_everything_is_there(
    cluster: ValkeyCluster,
) -> None:
    """ASK is not followed: a script that finds half of its keys would begin to number jobs anew."""
    prefix = "resharded"
    store = RedisStore(cluster.nodes[0].url, key_prefix=prefix)
    scene = Scene(store)
    worker = scene.hire(3600.0)
    first = scene.put()
    [lease] = scene.claim(worker)
    waiting = scene.put()
    [away] = [node for node in cluster.nodes if node is not holder(cluster, prefix)][:1]
    refused, settled = scene.job(), completed(lease)
    for number, _ in enumerate(moving_slot(cluster, prefix, away, at_once=12)):
        if number == 1:
            with pytest.raises(StoreUnavailable, match="gave up after"):
                scene.enqueue(refused)
            with pytest.raises(StoreUnavailable, match="gave up after"):
                scene.settle(worker, settled)
    assert number >= 2, "it was half moved"
    assert [scene.enqueue(refused).receipts[0].disposition for _ in range(2)] == ["created", "replayed"]
    assert not scene.settle(worker, settled).refused
    assert [lease.id for lease in scene.claim(worker, 5)] == [waiting.id, refused.id]
    assert scene.list_jobs() == [refused.id, waiting.id, first.id]
    assert holder(cluster, prefix) is away
    store.close()


@both_colours
def test_a_store_follows_its_slot_and_leaves_a_node_that_is_gone(cluster: ValkeyCluster, colour: str) -> None:
    prefix = f"moving-{colour}"
    home, *others = cluster.nodes
    face = Face(RedisStore(home.url, key_prefix=prefix), colour)
    scene = Scene(face)
    receipt = scene.put()
    [away] = [node for node in others if node is not holder(cluster, prefix)][:1]
    move_slot(cluster, prefix, away)
    assert scene.status(receipt.id) == "pending"
    assert holder(cluster, prefix) is away
    worker = scene.hire()
    [lease] = scene.claim(worker)
    move_slot(cluster, prefix, home)
    assert not scene.settle(worker, completed(lease)).refused
    move_slot(cluster, prefix, away)
    assert scene.put().disposition == "created"
    move_slot(cluster, prefix, home)
    away.kill9()
    try:
        assert len(scene.list_jobs()) == 2, "asked at the address given: the node it knew is gone"
    finally:
        away.start()
        eventually(lambda: all("cluster_slots_ok:16384" in node.call("CLUSTER", "INFO") for node in cluster.nodes))
    face.close()


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_every_conformance_test_passes_on_a_cluster() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/conformance", "-k", "redis"]
    told = subprocess.run(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "REDIS_CLUSTER": "1"},
        capture_output=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-5000:].decode()
