"""What a caller sees when a Redis server cannot be reached or used: one typed error, in time; then it goes on by itself."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvloop
from redis.exceptions import ResponseError

from fairlane.core.clock import FakeClock
from fairlane.core.ops import ALL_TENANTS, Cancel, Check, Enqueue, GetJob, GetStats, Renew, Turn
from fairlane.errors import ConfigError, StoreUnavailable
from fairlane.stores.instants import to_us
from fairlane.stores.redis import RedisStore
from fairlane.stores.redis.connection import RedisConnector
from fairlane.stores.redis.errors import translated
from fairlane.stores.redis.listener import PROBE_EVERY_S, RedisListener
from fairlane.stores.retries import Again
from fairlane.testing.conformance.samples import Making
from fairlane.testing.conformance.scene import Scene, wanting
from tests.faults.eventually import eventually
from tests.faults.test_unreachable import both_colours, ends_within, one_job
from tests.servers import proxy as proxies
from tests.servers.ports import free_port
from tests.servers.proxy import BLACKHOLE, PASS, Proxy
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Face

CERTIFICATE = Path(proxies.__file__).with_name("certificate.pem")
QUICK_S = 0.5
"""How long an answer is waited for; calls that are sent twice take twice as long."""


@pytest.fixture(scope="module")
def shared() -> Iterator[ValkeyServer]:
    with ValkeyServer(appendfsync="everysec") as server:
        yield server


@pytest.fixture
def valkey(shared: ValkeyServer) -> ValkeyServer:
    """A server without jobs."""
    shared.call("FLUSHALL")
    return shared


@pytest.fixture
def proxy(valkey: ValkeyServer) -> Iterator[Proxy]:
    with Proxy(valkey.port) as proxy:
        yield proxy


def jobs(valkey: ValkeyServer) -> int:
    return int(valkey.call("HLEN", "{fairlane}:id"))


def opened(port: int, colour: str = "sync") -> Face:
    return Face(RedisStore(f"redis://127.0.0.1:{port}", connect_timeout_s=1, answer_within_s=QUICK_S), colour)


@contextmanager
def stopped(valkey: ValkeyServer) -> Iterator[None]:
    """The server neither answers nor hangs up."""
    os.kill(valkey.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(valkey.pid, signal.SIGCONT)


@both_colours
def test_a_call_on_a_frozen_connection_to_redis_goes_on_over_a_new_one(
    valkey: ValkeyServer, proxy: Proxy, colour: str
) -> None:
    face = opened(proxy.port, colour)
    face.run(GetStats(scope=ALL_TENANTS))
    proxy.cut_all("silent")
    with ends_within(6):
        [receipt] = face.run(one_job()).receipts
    assert receipt.disposition == "created"
    assert jobs(valkey) == 1
    assert face.run(one_job()).receipts[0].disposition == "replayed"
    face.close()


@both_colours
@pytest.mark.parametrize("op", ["enqueue", "cancel"])
def test_a_call_to_redis_into_a_black_hole_ends_and_says_whether_it_may_have_been_done(
    proxy: Proxy, colour: str, op: str
) -> None:
    face = opened(proxy.port, colour)
    face.run(GetStats(scope=ALL_TENANTS))
    proxy.plan = BLACKHOLE
    proxy.cut_all("silent")
    with ends_within(6), pytest.raises(StoreUnavailable) as caught:
        face.run(one_job() if op == "enqueue" else Cancel(scope=ALL_TENANTS, id=Making().job_id(), by="ada"))
    # An act is sent only on a connection that has just answered: this one never went out.
    assert ("may or may not have taken effect" in str(caught.value)) == (op == "enqueue")
    assert "\n" not in str(caught.value)
    proxy.plan = PASS
    assert face.run(one_job()).receipts[0].disposition == "created"
    face.close()


@both_colours
def test_a_stopped_redis_ends_calls_in_time_and_each_is_done_once_when_it_goes_on(
    valkey: ValkeyServer, colour: str
) -> None:
    face = opened(valkey.port, colour)
    face.run(GetStats(scope=ALL_TENANTS))
    with stopped(valkey), ends_within(6), pytest.raises(StoreUnavailable, match="may or may not"):
        face.run(one_job())
    assert face.run(one_job()).receipts[0].disposition in ("created", "replayed")
    assert jobs(valkey) == 1
    face.close()


@pytest.mark.requirement("Q17")
@pytest.mark.parametrize("how", ["reset", "close"])
@pytest.mark.parametrize("where", ["sent", "received"])
@both_colours
def test_a_turn_cut_off_anywhere_is_sent_again_and_done_once(
    valkey: ValkeyServer, proxy: Proxy, colour: str, where: str, how: proxies.Cut
) -> None:
    direct = RedisStore(valkey.url)
    scene = Scene(direct)
    worker = scene.hire()
    for offset in (1, 20, 200):
        face = opened(proxy.port, colour)
        face.run(GetStats(scope=ALL_TENANTS))
        proxy.cut_later(**{where: offset}, how=how)
        scene.put_many(3)
        through = Scene(face, seed=offset)
        through._claim_nos = scene._claim_nos
        leases = through.claim(worker, 3)
        assert len({lease.seq for lease in leases}) == 3
        assert [lease.attempt for lease in leases] == [1, 1, 1]
        face.close()
    assert scene.queue().processing == 9
    direct.close()


@both_colours
def test_no_redis_at_all_is_reported_at_once_and_in_one_line(colour: str) -> None:
    face = Face(RedisStore(f"redis://ada:s3cret@127.0.0.1:{free_port()}/0"), colour)
    with ends_within(5), pytest.raises(StoreUnavailable, match="Error 111 connecting") as caught:
        face.run(one_job())
    assert "\n" not in str(caught.value)
    assert "s3cret" not in str(caught.value)
    with pytest.raises(StoreUnavailable, match="Error 111 connecting"):
        face.store.listener(Making().worker_id())
    face.close()


@both_colours
def test_a_server_that_forgot_the_scripts_gets_them_again(valkey: ValkeyServer, colour: str) -> None:
    face = opened(valkey.port, colour)
    scene = Scene(face)
    worker = scene.hire()
    for _ in range(2):
        receipt = scene.put()
        valkey.call("SCRIPT", "FLUSH")
        [lease] = scene.claim(worker)
        assert lease.id == receipt.id
    face.close()


@pytest.mark.requirement("Q17")
def test_a_store_and_its_listener_go_on_when_redis_was_away(valkey: ValkeyServer) -> None:
    store = RedisStore(valkey.url)
    scene = Scene(store)
    scene.now = store.run(GetStats(scope=ALL_TENANTS)).now
    worker = scene.hire(3600.0)
    listener = store.listener(worker)
    scene.turn(worker, wanting(1), waiting=True)
    valkey.kill9()
    assert not listener.wait(0.01)
    assert not listener.wait(0.01), "still away"
    with pytest.raises(StoreUnavailable):
        scene.put()
    valkey.start()
    eventually(lambda: listener.wait(0.01))  # a wake-up may have been missed
    assert not listener.wait(0.01)
    [receipt] = scene.enqueue(scene.job()).receipts
    assert listener.wait(10), "subscribed again, and the worker still waits"
    [lease] = scene.claim(worker)
    assert lease.id == receipt.id
    listener.close()
    store.close()


def test_a_listener_that_cannot_hear_redis_any_more_finds_out_and_comes_back(
    valkey: ValkeyServer, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.stores.redis.listener.PROBE_WITHIN_S", 0.3)
    clock, worker = FakeClock(), Making().worker_id()
    connector = RedisConnector(f"redis://127.0.0.1:{proxy.port}", connect_timeout_s=1, answer_within_s=QUICK_S)
    listener = RedisListener(connector, "{fairlane}", worker, clock)
    clock.advance(PROBE_EVERY_S + 1)
    assert not listener.wait(0.01)  # asks, and is answered
    assert proxy.connections == 1
    proxy.cut_all("silent")
    assert not listener.wait(0.01)
    clock.advance(PROBE_EVERY_S + 1)
    assert not listener.wait(0.01)  # asks, hears nothing, gives the connection up
    assert listener.wait(0.01)  # subscribes anew
    valkey.call("PUBLISH", f"{{fairlane}}:wake:{worker.hex}", "")
    assert listener.wait(10)
    clock.advance(PROBE_EVERY_S + 1)
    valkey.call("PUBLISH", f"{{fairlane}}:wake:{worker.hex}", "")
    assert listener.wait(10), "a message that comes before the answer to a probe counts"
    listener.close()


class Guarded(ValkeyServer):
    """Asks for a password, and knows a user who may do what the reference lists."""

    def __init__(self) -> None:
        super().__init__(requirepass="r1ght", appendfsync="everysec")

    def add_users(self) -> None:
        rights = ("~{jobs}*", "&{jobs}*", "+@all", "-@admin", "-@dangerous", "+info")
        self.call("ACL", "SETUSER", "ada", "on", ">pass word", *rights)
        self.call("ACL", "SETUSER", "eve", "on", ">eve", "~other*", "+@all")


@pytest.fixture(scope="module")
def guarded() -> Iterator[Guarded]:
    with Guarded() as server:
        server.add_users()
        yield server


@both_colours
@pytest.mark.parametrize(
    ("user", "said"),
    [
        ("", "it asks for a password; put it into the url"),
        (":wr0ng@", "does not know this user and password"),
        ("ada:wr0ng@", "does not know this user and password"),
        ("eve:eve@", "lacks a right"),
    ],
)
def test_who_may_not_use_redis_is_told_why_without_the_password(
    guarded: Guarded, colour: str, user: str, said: str
) -> None:
    face = Face(RedisStore(f"redis://{user}127.0.0.1:{guarded.port}/0", key_prefix="jobs"), colour)
    with pytest.raises(StoreUnavailable, match=said) as caught:
        face.run(one_job())
    assert "cannot be used" in str(caught.value)
    assert "wr0ng" not in str(caught.value)
    face.close()


@both_colours
@pytest.mark.parametrize("user", [":r1ght@", "ada:pass%20word@"])
def test_a_user_with_the_rights_of_the_reference_can_do_everything(guarded: Guarded, colour: str, user: str) -> None:
    face = Face(RedisStore(f"redis://{user}127.0.0.1:{guarded.port}/0", key_prefix="jobs"), colour)
    listener = face.store.listener(Making().worker_id())
    Scene(face, seed=hash(user) % 1000 + len(colour)).finished()
    health = face.run(Check())
    assert health.durable
    [fsync] = [text for text in health.degraded if "appendfsync" in text]
    assert ("unknown" in fsync) == ("ada" in user), "CONFIG is no right that a user needs"
    listener.close()
    face.close()


@both_colours
def test_redis_is_reached_over_tls_with_a_certificate_that_is_checked(valkey: ValkeyServer, colour: str) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    with Proxy(valkey.port, tls=context) as proxy:
        address = f"rediss://127.0.0.1:{proxy.port}/0"
        stranger = Face(RedisStore(address), colour)
        with pytest.raises(StoreUnavailable, match="certificate verify failed"):
            stranger.run(one_job())
        stranger.close()
        face = Face(RedisStore(f"{address}?ssl_ca_certs={CERTIFICATE}"), colour)
        listener = face.store.listener(Making().worker_id())
        Scene(face).finished()
        listener.close()
        face.close()
    assert jobs(valkey) == 1


@both_colours
def test_redis_is_reached_over_a_socket_of_the_system(valkey: ValkeyServer, colour: str) -> None:
    face = Face(RedisStore(valkey.socket_url), colour)
    listener = face.store.listener(Making().worker_id())
    Scene(face).finished()
    listener.close()
    face.close()
    assert jobs(valkey) == 1


def connections(valkey: ValkeyServer) -> int:
    return len([line for line in valkey.call("CLIENT", "LIST").splitlines() if "name=looped" in line])


def test_connections_of_a_loop_that_has_ended_end_too(valkey: ValkeyServer) -> None:
    store = RedisStore(f"{valkey.url}?client_name=looped")
    loops = [asyncio.new_event_loop() for _ in range(3)]
    for loop in loops[:2]:
        loop.run_until_complete(store.arun(Check()))
    loops[0].close()
    loops[2].run_until_complete(store.arun(Check()))  # finds the first one ended
    eventually(lambda: connections(valkey) == 2)
    loops[1].close()
    loops[2].run_until_complete(store.aclose())
    loops[2].close()
    eventually(lambda: connections(valkey) == 0)


def test_a_store_is_closed_on_a_loop_of_uvloop(valkey: ValkeyServer) -> None:
    async def story() -> None:
        store = RedisStore(f"{valkey.url}?client_name=looped")
        await store.arun(Check())
        assert connections(valkey) == 1
        await store.aclose()

    uvloop.run(story())
    eventually(lambda: connections(valkey) == 0)


@pytest.mark.parametrize("url", ["redis://cache/0?colour=red", "redis://cache/0?ssl_ca_certs=x", "redis://cache:x/0"])
def test_an_address_of_redis_that_means_nothing_is_refused_when_the_store_is_made(url: str) -> None:
    with pytest.raises(ConfigError, match="url = "):
        RedisStore(url)


@pytest.mark.parametrize(
    "password", ["s3cr/et", "s3cr#et", "s3cr?et", "[s3cr]/et", "6379/s3cr", "6379#s3cr", "6379?s3cr"]
)
@pytest.mark.parametrize("address", ["redis://:{}@cache:6379/0", "rediss://ada:{}@cache", "unix://:{}@/run/redis.sock"])
def test_a_password_that_is_not_escaped_is_refused_and_not_shown(address: str, password: str) -> None:
    with pytest.raises(ConfigError, match=r"write / # .* as %2F %23 %3F") as caught:
        RedisStore(address.format(password))
    assert "s3cr" not in str(caught.value)


@pytest.mark.parametrize("code", ["READONLY", "CLUSTERDOWN", "LOADING", "MASTERDOWN", "TRYAGAIN"])
def test_what_redis_6_answers_to_a_command_of_a_script_means_the_same_as_outside_of_one(code: str) -> None:
    wrapped = f"Error running script (call to f_1a2b): @user_script:9: @user_script: 9: -{code} cannot do this now."
    for text in (wrapped, f"{code} cannot do this now."):
        assert isinstance(translated(ResponseError(text)), Again), text


@both_colours
def test_a_replica_is_no_store_until_it_takes_writes(valkey: ValkeyServer, colour: str) -> None:
    with ValkeyServer(appendfsync="everysec") as replica:
        face = Face(RedisStore(replica.url), colour)
        face.run(Check())
        replica.call("REPLICAOF", "127.0.0.1", str(valkey.port))
        with pytest.raises(StoreUnavailable, match=f"is a replica of 127.0.0.1:{valkey.port}"):
            face.run(Check())
        replica.call("REPLICAOF", "NO", "ONE")
        face.run(Check())
        face.close()


@both_colours
@pytest.mark.parametrize("way", ["enqueue", "enqueue with a key", "renew", "turn"])
def test_a_servers_clock_is_held_where_it_goes_back_a_little_and_taken_as_it_is_where_it_goes_back_further(
    valkey: ValkeyServer, colour: str, way: str
) -> None:
    face, making = opened(valkey.port, colour), Making()

    def now_us() -> int:
        seconds, micros = map(int, valkey.call("TIME"))
        return seconds * 1_000_000 + micros

    def seen_at(instant_us: int) -> int:
        """The instant of an operation, after the server was seen at this one."""
        valkey.call("HSET", "{fairlane}:meta", "latest", str(instant_us))
        worker = making.worker_id()
        if way == "renew":
            return to_us(face.run(Renew(worker=worker)).now)
        if way == "turn":
            return to_us(face.run(Turn(worker=worker, claim_no=1)).now)
        job = making.job(dedup_key=str(instant_us) if "key" in way else None)
        face.run(Enqueue(jobs=(job,)))
        found = face.run(GetJob(scope=ALL_TENANTS, id=job.id))
        assert found is not None
        return to_us(found.job.enqueued_at)

    latest = now_us() + 1_900_000
    assert seen_at(latest) >= latest
    latest = now_us() + 3600_000_000
    assert seen_at(latest) <= now_us()
    if way != "renew":  # whose script reads first: its instant is kept by the next Turn
        assert int(valkey.call("HGET", "{fairlane}:meta", "latest")) <= now_us()
    face.close()
