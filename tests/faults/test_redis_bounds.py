"""Where the store on Redis meets bounds: of Lua's stack, of a script that fails half-way, of what a server may lose."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import NO_LIMIT, Limit
from fairlane.core.ops import (
    ALL_TENANTS,
    Age,
    DeadLetterFilter,
    PageDeadLetters,
    PauseClaims,
    ResumeClaims,
    RollUpEnqueued,
    Want,
)
from fairlane.errors import FairlaneError
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.limits import every_tenant, put, queue, rate, set_limit, tenant
from fairlane.testing.conformance.samples import completed, died, retried
from fairlane.testing.conformance.scene import Scene, wanting
from fairlane.testing.conformance.workflows import Flow
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Face

MANY_LIMITS = 9_000
MANY_LINES = 2_500


@pytest.fixture(scope="module")
def shared() -> Iterator[ValkeyServer]:
    with ValkeyServer(appendfsync="everysec") as server:
        yield server


@pytest.fixture
def valkey(shared: ValkeyServer) -> ValkeyServer:
    shared.call("FLUSHALL")
    return shared


@pytest.fixture
def scene(valkey: ValkeyServer) -> Iterator[Scene]:
    store = RedisStore(valkey.url)
    yield Scene(store)
    store.close()


def test_more_limits_than_lua_can_unpack_are_read(valkey: ValkeyServer, scene: Scene) -> None:
    set_limit(scene, tenant("acme", running=1))
    [document] = valkey.call("HVALS", "{fairlane}:limit")
    for first in range(0, MANY_LIMITS, 1000):
        names = [f"tenant-{number}" for number in range(first, first + 1000)]
        fields = [part for name in names for part in (name, document.replace("acme", name))]
        valkey.call("HSET", "{fairlane}:limit", *fields)
    store = RedisStore(valkey.url)
    other = Scene(store, seed=1)
    jobs = put(other, 2, tenant="acme")
    result = other.turn(other.hire(), wanting(2, queues=("bulk",)))
    assert [lease.id for lease in result.leases] == jobs[:1], "what was set is in force"
    store.close()


def test_what_is_no_longer_counted_is_not_kept(valkey: ValkeyServer, scene: Scene) -> None:
    """Queues and types that were used once, and rates of tenants that have left, take no room for ever."""
    put(scene, 2, tenant="acme")
    worker, limits = scene.hire(), (tenant("acme", rate=rate(9, 10)),)
    leases = scene.turn(worker, wanting(2, queues=("bulk",)), limits=limits).leases
    assert len(leases) == 2
    rated = valkey.call("KEYS", "*rate*:tenant:*")
    assert len(rated) == 2
    assert all(3_600_000 < int(valkey.call("PTTL", key)) <= 3_620_000 for key in rated)
    scene.settle(worker, *map(completed, leases))
    assert all("0" not in valkey.call("HVALS", key) for key in valkey.call("KEYS", "*count*"))
    assert valkey.call("HGETALL", "{fairlane}:counts") in ([], {})


def test_a_turn_that_failed_half_way_gets_its_leases_when_it_is_sent_again(valkey: ValkeyServer, scene: Scene) -> None:
    [first, second] = put(scene, 2)
    worker, limits = scene.hire(), (queue("bulk", rate=rate(9, 10)),)
    got = scene.turn(worker, wanting(1, queues=("bulk",)), claim_no=1, limits=limits)
    assert [lease.id for lease in got.leases] == [first]
    [counter] = [key for key in valkey.call("KEYS", "*rate*") if "used" in key]
    valkey.call("SET", counter, "0.5")
    with pytest.raises(FairlaneError):
        scene.turn(worker, wanting(1, queues=("bulk",)), claim_no=2, limits=limits)
    valkey.call("SET", counter, "1")
    got = scene.turn(worker, wanting(1, queues=("bulk",)), claim_no=2, limits=limits)
    assert [lease.id for lease in got.leases] == [second]


def test_a_queue_may_be_named_like_a_counter(scene: Scene) -> None:
    """`rate:tenant:4:acme` and its counter stand beside the rate of the tenant in a queue `:used`."""
    limits = (tenant("acme", rate=rate(9, 10)), tenant("acme", ":used", rate=rate(9, 10)))
    jobs = put(scene, 2, queue=":used", tenant="acme")
    result = scene.turn(scene.hire(), wanting(2, queues=(":used",)), limits=limits)
    assert [lease.id for lease in result.leases] == jobs


def test_a_job_for_the_end_of_time_is_read_like_any_other(scene: Scene) -> None:
    latest = datetime.max.replace(tzinfo=UTC)
    job = scene.put(run_at=latest)
    assert (scene.see(job.id).scheduled_at, scene.see(job.id).run_at) == (latest, latest)
    assert scene.list_jobs() == [job.id]
    assert scene.promote().next_due_at == latest


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_lost_job_does_not_settle_the_one_that_came_after_the_server_lost_it(colour: str) -> None:
    with ValkeyServer(appendonly="no") as server:
        face = Face(RedisStore(server.url), colour)
        scene = Scene(face)
        worker = scene.hire(3600.0)
        server.call("SAVE")
        scene.put()
        [lost] = scene.claim(worker)
        server.kill9()
        server.start()
        job = scene.put()
        [lease] = scene.claim(worker)
        assert (lease.id, lease.attempt) == (job.id, lost.attempt)
        [refused] = scene.settle(worker, completed(lost)).refused
        assert (refused.seq, scene.status(job.id)) == (lost.seq, "processing")
        assert not scene.settle(worker, completed(lease)).refused
        scene.later(3600)
        assert scene.run(RollUpEnqueued(limit=10)).jobs == 1, "numbers left out are not looked at one by one"
        second = scene.put()
        assert second.seq == lease.seq + 1, "the same server goes on counting"
        face.close()


def calls_of(valkey: ValkeyServer) -> int:
    """Commands of scripts and clients together, so far."""
    return sum(int(number) for number in re.findall(r":calls=(\d+)", valkey.call("INFO", "commandstats")))


def put_for_each(scene: Scene, tenants: int, **options: Any) -> None:
    jobs = tuple(scene.job(tenant=f"t{number:05}", **options) for number in range(tenants))
    for first in range(0, tenants, 1000):
        scene.enqueue(*jobs[first : first + 1000])


def test_lines_at_their_limits_are_passed_a_bounded_number_at_a_time_and_hide_nobody(
    valkey: ValkeyServer, scene: Scene
) -> None:
    """Two tenants with room are found behind all others, in the same band and in a later one."""
    put_for_each(scene, MANY_LINES, priority=1)
    put_for_each(scene, MANY_LINES, priority=5)
    wanted = {scene.put(tenant="yak", priority=1).id, scene.put(tenant="zorro", priority=5).id}
    limits = (every_tenant(running=0), tenant("yak", running=NO_LIMIT), tenant("zorro", running=NO_LIMIT))
    worker, found, most, turns, soon = scene.hire(3600.0), set[JobId](), 0, 0, 0
    while found != wanted:
        before = calls_of(valkey)
        answer = scene.turn(worker, wanting(10), limits=limits)
        most, turns = max(most, calls_of(valkey) - before), turns + 1
        found |= {lease.id for lease in answer.leases}
        soon += answer.limited_until is not None
        assert turns <= 20, f"{len(found)} of 2 found"
    assert most < 1_500, "commands of one Turn"
    assert soon, "a worker that got nothing comes again soon"
    hints = [scene.turn(worker, wanting(10), limits=limits).limited_until for _ in range(20)]
    assert None in hints, "but not for ever: when all were passed over, it waits to be woken"


def test_aging_looks_at_a_bounded_number_of_lines_and_comes_to_all(valkey: ValkeyServer, scene: Scene) -> None:
    put_for_each(scene, MANY_LINES, priority=5)
    scene.later(70)
    moved, most, calls = 0, 0, 0
    while moved < MANY_LINES:
        before = calls_of(valkey)
        moved += scene.run(Age(queue="default", every_s=60.0, limit=10_000)).count
        most, calls = max(most, calls_of(valkey) - before), calls + 1
        assert calls <= 5, f"{moved} moved"
    assert calls > 1
    assert most < 20_000
    assert scene.run(Age(queue="default", every_s=60.0)).count == 0


def test_many_pauses_are_not_read_by_every_claim_and_all_hold(valkey: ValkeyServer, scene: Scene) -> None:
    for kind, name in (("tenant", "yak"), ("queue", "closed"), ("type", "mail.print")):
        scene.run(PauseClaims(kind=kind, name=name, by="ada"))  # type: ignore[arg-type]
    [document, *_] = valkey.call("HVALS", "{fairlane}:pause")
    names = [f"tenant-{number}" for number in range(3_000)]
    fields = [part for name in names for part in (f"tenant:{name}", document.replace("yak", name))]
    valkey.call("HSET", "{fairlane}:pause", *fields)
    for options in ({"tenant": "yak"}, {"tenant": "tenant-7"}, {"queue": "closed"}, {"type": "mail.print"}):
        scene.put(**options)
    wanted = [scene.put(tenant="acme").id, scene.put(tenant="zorro").id]
    worker = scene.hire()
    valkey.call("CONFIG", "RESETSTAT")
    got = scene.turn(worker, wanting(10, queues=("default", "closed")))
    assert [lease.id for lease in got.leases] == wanted
    assert calls_of(valkey) < 60
    assert "cmdstat_hkeys" not in valkey.call("INFO", "commandstats")
    scene.run(ResumeClaims(kind="tenant", name="yak", by="ada"))
    assert [lease.tenant for lease in scene.claim(worker, 10)] == ["yak"]


def commands_of(valkey: ValkeyServer, scene: Scene, worker: WorkerId, *wants: Want, **parts: Any) -> int:
    """Those of one Turn."""
    before = calls_of(valkey)
    scene.turn(worker, *wants, **parts)
    return calls_of(valkey) - before - 1


@pytest.mark.requirement("D24")
def test_an_installation_without_keys_pays_a_turn_one_command_for_them(valkey: ValkeyServer, scene: Scene) -> None:
    scene.put_many(200)
    worker = scene.hire(3600.0)
    leases = scene.claim(worker, 50)
    assert commands_of(valkey, scene, worker) == 12
    assert commands_of(valkey, scene, worker, wanting(50), outcomes=tuple(map(completed, leases))) == 32
    assert valkey.call("KEYS", "*key*") == []


@pytest.mark.requirement("D24")
def test_a_turn_lets_in_at_a_bounded_number_of_keys_and_comes_to_all(valkey: ValkeyServer, scene: Scene) -> None:
    """Nor does somebody who comes behind thousands of keys wait for all of them."""
    jobs = [scene.job(key=JobKey(value=f"customer:{number}"), tenant="acme") for number in range(MANY_LINES)]
    for first in range(0, MANY_LINES, 500):
        scene.enqueue(*jobs[first : first + 500])
    late = scene.put(key=JobKey(value="customer:1"), tenant="zorro")
    worker, got, most, turns = scene.hire(3600.0), list[JobId](), 0, 0
    while len(got) <= MANY_LINES:
        before = calls_of(valkey)
        got += [lease.id for lease in scene.claim(worker, 1000)]
        most, turns = max(most, calls_of(valkey) - before), turns + 1
        assert late.id in got, "in the first Turn"
        assert turns <= 15, f"{len(got)} of {MANY_LINES}"
    assert turns >= 5
    assert most < 6_000, "commands of one Turn"
    assert len(set(got)) == MANY_LINES + 1


@pytest.mark.requirement("D24")
def test_many_jobs_at_one_key_without_a_limit_are_let_in_a_bounded_number_at_a_time(scene: Scene) -> None:
    scene.put_many(MANY_LINES, key=JobKey(value="customer:42", running=NO_LIMIT))
    other = scene.put(key=JobKey(value="shop:1"))
    worker = scene.hire(3600.0)
    first = scene.claim(worker, 5000)
    assert len(first) in range(500, 1002)
    got = {lease.id for lease in first}
    while more := scene.claim(worker, 5000):
        got |= {lease.id for lease in more}
    assert (len(got), other.id in got) == (MANY_LINES + 1, True)


@pytest.mark.requirement("D24")
def test_keys_without_a_place_cost_a_turn_nothing_once_it_has_looked(valkey: ValkeyServer, scene: Scene) -> None:
    keys = [JobKey(value=f"customer:{number}") for number in range(400)]
    for _ in range(2):
        scene.enqueue(*(scene.job(key=key) for key in keys))
    worker = scene.hire(3600.0)
    leases = [lease for _ in range(4) for lease in scene.claim(worker, 1000)]
    assert len(leases) == len(keys)
    assert commands_of(valkey, scene, worker) == 12
    [lease, *_] = leases
    assert commands_of(valkey, scene, worker, outcomes=(completed(lease),)) < 70, "and one that is free, no others"


@pytest.mark.requirement("D24")
def test_keys_that_nobody_uses_any_more_leave_nothing_behind(valkey: ValkeyServer, scene: Scene) -> None:
    rated = JobKey(value="customer:42", running=2, rate=rate(9, 10))
    scene.enqueue(*(scene.job(key=key, delay_s=None) for key in (rated, JobKey(value="shop", ordered=True)) * 3))
    worker, ended = scene.hire(3600.0), 0
    set_limit(scene, Limit(kind="key", name="shop", running=3))
    outcomes = dict(enumerate((died, retried, completed)))
    while leases := scene.claim(worker, 9):
        scene.settle(worker, *(outcomes[(ended + nth) % 3](lease) for nth, lease in enumerate(leases)))
        for letter in scene.run(
            PageDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter(status="pending_review"))
        ).dead_letters:
            scene.resolve(letter.id)
        ended += len(leases)
        scene.later(60)
    assert ended >= 6
    left = {key for key in valkey.call("KEYS", "*key*") if ":audit:" not in key}
    assert left == {"{fairlane}:rate:key:6:systemcustomer:42", "{fairlane}:rate_used:key:6:systemcustomer:42"}
    assert all(3_600_000 < int(valkey.call("PTTL", key)) <= 3_620_000 for key in left), "these go by themselves"


MANY_NODES = 50_000
COPY_JOB = """
local body, state = redis.call('GET', KEYS[1] .. 'job:1'), redis.call('GET', KEYS[1] .. 'state:1')
for seq = ARGV[1], ARGV[2] do
  redis.call('MSET', KEYS[1] .. 'job:' .. seq, body, KEYS[1] .. 'state:' .. seq, state)
  redis.call('ZADD', KEYS[1] .. 'finished', ARGV[3], string.format('%016d', seq))
end
"""


def test_retention_passes_over_nodes_that_are_wanted_a_bounded_number_at_a_time(
    valkey: ValkeyServer, scene: Scene
) -> None:
    """50,000 of one instant: it goes on behind them."""
    flow = Flow(scene, {"a": [], "b": ["a"]}).put()
    assert flow.claim() == ["a"]
    flow.complete("a")
    [node] = valkey.call("ZRANGE", "{fairlane}:finished", "0", "-1")
    at = f"{float(valkey.call('ZSCORE', '{fairlane}:finished', node)):.0f}"
    valkey.call("EVAL", COPY_JOB, "1", "{fairlane}:", "1000", str(1000 + MANY_NODES - 1), at)
    scene.later(10)
    old = [scene.finished(type="mail.send", queue="other").id for _ in range(3)]
    scene.later(3600)
    valkey.call("CONFIG", "RESETSTAT")
    assert scene.retain(finished_before=scene.now, limit=2) == 2
    scripts = int(re.findall(r"cmdstat_evalsha:calls=(\d+)", valkey.call("INFO", "commandstats"))[0])
    assert scripts >= MANY_NODES / 2_000, "each looks at 2,000 at most"
    assert scene.retain(finished_before=scene.now, finished_from=scene.at(-3600)) == 1
    assert all(scene.find(job) is None for job in old)
    assert flow.status == "running"
