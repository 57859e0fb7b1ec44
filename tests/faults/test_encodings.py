"""Clients, roles and databases whose encoding is not UTF-8, and rows that cannot be read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import psycopg
import pytest
import redis

from fairlane import Fairlane
from fairlane.core.job_keys import JobKey
from fairlane.core.limits import NO_LIMIT
from fairlane.core.ops import Discard, GetStats, HasTenants, PageDeadLetters, PageJobs, ReadWeights, Resolve, Turn
from fairlane.core.ops.base import ALL_TENANTS
from fairlane.errors import StoreError, StoreRefused
from fairlane.stores import SqliteLibrary
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.samples import cancelled, completed, died, released, retried
from fairlane.testing.conformance.scene import Scene, wanting
from fairlane.testing.conformance.schedules import declare, fire, firing, spec
from fairlane.testing.conformance.workflows import Flow
from tests.faults.places import Place
from tests.faults.test_odd_rows import insert
from tests.servers.valkey import ValkeyServer
from tests.support.stores import Face

JAPANESE = "日本語 と ünïcode"
ENCODINGS = ["SQL_ASCII", "LATIN1", "EUC_JP"]
PARENT = UUID(int=1)


def greeting_app(url: str) -> Fairlane:
    app = Fairlane(url, profile="development")

    @app.task(name="greet")
    def greet(name: str) -> str:
        return f"{name}!"

    @app.task(name="agreet")
    async def agreet(name: str) -> str:
        return f"{name}!"

    return app


def greet_everybody(url: str) -> None:
    """Ten others beside one whose text needs UTF-8: enqueued and read, sync and async."""
    with greeting_app(url) as app, app.running(slots=4):
        handles = [app.tasks["greet"].enqueue(name) for name in [JAPANESE, *map(str, range(10))]]
        results = [handle.result(timeout=20) for handle in handles]
        assert results == [f"{name}!" for name in [JAPANESE, *map(str, range(10))]]

        async def on_a_loop() -> object:
            return await (await app.tasks["agreet"].aenqueue(JAPANESE)).aresult(timeout=20)

        assert asyncio.run(on_a_loop()) == f"{JAPANESE}!"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_client_encoding_of_the_environment_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", encoding)
    store = PostgresStore(place.dsn)
    store.migrator().require()
    store.close()
    greet_everybody(place.dsn)


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize("where", ["client_encoding={}", "options=-c%20client_encoding%3D{}"])
def test_a_client_encoding_in_the_address_changes_nothing(place: Place, encoding: str, where: str) -> None:
    greet_everybody(f"{place.dsn}?{where.format(encoding)}")


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_client_encoding_set_for_the_role_or_the_database_changes_nothing(place: Place, encoding: str) -> None:
    place.rows(f'alter database "{place.name}" set client_encoding = {encoding}')
    place.rows(f'alter role postgres in database "{place.name}" set client_encoding = {encoding}')
    greet_everybody(place.dsn)


@pytest.fixture
def ascii_place(place: Place) -> Iterator[Place]:
    """A database that keeps whatever bytes it is given."""
    name = "sql_ascii"
    with psycopg.connect(place.server.dsn("postgres"), autocommit=True) as conn:
        conn.execute(
            f"create database {name} encoding 'SQL_ASCII' locale_provider libc locale 'C' template template0".encode()
        )
    made = Place(place.server, name)
    store = PostgresStore(made.dsn)
    store.migrator().up()
    store.close()
    yield made
    place.server.drop_database(name)


def test_a_job_whose_bytes_are_no_text_is_a_dead_letter_with_the_reason_and_the_others_run(ascii_place: Place) -> None:
    good = insert(ascii_place, '{"name":"before"}', type="greet")
    odd = insert(ascii_place, '{"name":"\ufffe"}', type="greet")
    with psycopg.connect(ascii_place.dsn, client_encoding="SQL_ASCII", autocommit=True) as conn:
        conn.execute(
            b"update fairlane.job set payload = convert_from('\\x7b226e616d65223a22ff227d'::bytea, 'SQL_ASCII')::json where seq = %s",
            (odd,),
        )
    with greeting_app(ascii_place.dsn) as app:
        assert app.runtime.store.run(GetStats(scope=ALL_TENANTS)).queues
        with app.running(slots=2):
            assert app.tasks["greet"].enqueue("after").result(timeout=20) == "after!"
        [letter] = app.dead_letters.list().dead_letters
        assert letter.job.seq == odd
        assert "not valid UTF-8" in letter.reason
        assert {job.seq for job in app.jobs.list(status="completed").jobs} > {good}


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_connection_that_failed_while_it_read_odd_bytes_is_not_used_again(ascii_place: Place, colour: str) -> None:
    ascii_place.rows("""
        create or replace function fairlane.read_weights_v1(_op json) returns json language plpgsql as $$ begin
          if current_setting('client_encoding') = 'SQL_ASCII' then raise 'no such luck'; end if;
          return convert_from('\\x22ff22'::bytea, 'SQL_ASCII')::json;
        end $$;
        create or replace function fairlane.has_tenants_v1(_op json) returns json language sql
          return to_json(current_setting('client_encoding') = 'UTF8');
    """)
    with closing(Face(PostgresStore(ascii_place.dsn), colour)) as face:
        with pytest.raises(StoreError, match="no such luck"):
            face.run(ReadWeights())
        assert face.run(HasTenants()), "UTF-8 again"


@pytest.mark.parametrize("change", ["enqueued_at = 'infinity'", "enqueued_at = '4000-01-01 BC'"])
def test_a_job_whose_row_cannot_be_read_is_a_dead_letter_with_the_reason_and_the_others_run(
    place: Place, change: str
) -> None:
    odd = insert(place, '{"name":"odd"}', type="greet")
    place.rows(f"update fairlane.job set {change}")
    with greeting_app(place.dsn) as app, app.running(slots=2):
        assert app.tasks["greet"].enqueue("after").result(timeout=20) == "after!"
    [(seq, reason)] = place.rows("select seq, reason from fairlane.dead_letter")
    assert seq == odd
    assert "cannot be read" in reason


@pytest.mark.parametrize("library", ["apsw", "stdlib"])
@pytest.mark.parametrize(
    "change", ["payload = cast(x'7b226e616d65223a22ff227d' as text)", "refs = '[1', headers = 'none'"]
)
def test_a_row_of_a_file_that_cannot_be_read_is_set_aside_too(
    tmp_path: Path, library: SqliteLibrary, change: str
) -> None:
    import apsw

    with greeting_app(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.tasks["greet"].enqueue("odd")
        file = apsw.Connection(str(tmp_path / "jobs.db"))
        file.execute(f"update fairlane_job set {change}")
        file.close()
    with Fairlane(f"sqlite:///{tmp_path}/jobs.db", sqlite_library=library, profile="development") as app:

        @app.task(name="greet")
        def greet(name: str) -> str:
            return f"{name}!"

        with app.running(slots=2):
            assert greet.enqueue("after").result(timeout=20) == "after!"
    [(reason,)] = apsw.Connection(str(tmp_path / "jobs.db")).execute("select reason from fairlane_dead_letter")
    assert "cannot be taken" in reason


@pytest.fixture(scope="module")
def shared_valkey() -> Iterator[ValkeyServer]:
    with ValkeyServer(appendfsync="everysec") as server:
        yield server


@pytest.fixture
def valkey(shared_valkey: ValkeyServer) -> redis.Redis:
    direct = redis.Redis(port=shared_valkey.port)
    direct.flushall()
    return direct


BODIES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "invalid text": (lambda kept: kept.replace(b"odd", b"\xff\xfe\xfd"), "not valid UTF-8"),
    "the text of another": (lambda kept: b"garbage", "cannot be read"),
    "the array of another": (lambda kept: b"\x93\x01\x02\x03", "cannot be read"),
    "half of it": (lambda kept: kept[: len(kept) // 2], "cannot be read"),
    "only its head": (lambda kept: kept[:25], "cannot be read"),
    "an unknown place": (lambda kept: kept.replace(b"\xa5ready", b"\xa5steep"), "cannot be read"),
    "the number of another": (lambda kept: kept[:-1] + b"\x01", "it has the number 1 at its end"),
    "nothing": (lambda kept: b"", "cannot be read"),
}


@pytest.mark.requirement("L3")
@pytest.mark.parametrize("body", BODIES)
def test_a_body_on_redis_that_cannot_be_read_is_a_dead_letter_with_the_reason_and_the_others_run(
    shared_valkey: ValkeyServer, valkey: redis.Redis, body: str
) -> None:
    garble, reason = BODIES[body]
    with greeting_app(shared_valkey.url) as app:
        app.tasks["greet"].enqueue("before")
        odd = app.tasks["greet"].enqueue("odd")
        [key] = [f"{{fairlane}}:job:{job.seq}" for job in app.jobs.list().jobs if job.id == odd.id]
        found = garble(cast("bytes", valkey.get(key)))
        valkey.set(key, found) if found else valkey.delete(key)
        assert app.jobs.list().jobs, "the others are listed"
        with app.running(slots=2):
            assert app.tasks["greet"].enqueue("after").result(timeout=20) == "after!"
        [letter] = app.dead_letters.list().dead_letters
        assert (letter.job.seq, letter.job.type) == (int(key.rpartition(":")[2]), "greet")
        assert reason in letter.reason
        assert len(app.jobs.list(status="completed").jobs) == 2
        assert app.runtime.store.run(GetStats(scope=ALL_TENANTS)).queues == (), "nothing is left waiting or running"
        app.dead_letters.discard(letter, by="ada", notes="unreadable")


@pytest.mark.parametrize("found", [b"garbage", b""])
def test_a_claim_of_an_unreadable_body_that_was_given_back_or_lost_is_made_again(
    shared_valkey: ValkeyServer, valkey: redis.Redis, found: bytes
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        first = scene.hire()
        jobs = [scene.put(), scene.put()]
        for lease in scene.claim(first, 2):
            scene.settle(first, released(lease))
        key = f"{{fairlane}}:job:{jobs[0].seq}"
        valkey.set(key, found) if found else valkey.delete(key)
        assert [lease.unreadable is None for lease in scene.claim(first, 2)] == [False, True]
        valkey.set(key, found) if found else valkey.delete(key)
        scene.later(3600)
        assert len(scene.reclaim()) == 2
        assert [lease.seq for lease in scene.claim(scene.hire(), 2)] == [job.seq for job in jobs]


def test_a_workflow_node_whose_body_cannot_be_read_is_a_dead_node_of_its_workflow(
    shared_valkey: ValkeyServer, valkey: redis.Redis
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        flow = Flow(Scene(store), {"a": [], "b": ["a"]}).put()
        key = f"{{fairlane}}:job:{flow.letter('a')}"
        valkey.set(key, cast("bytes", valkey.get(key)).replace(b"\xa5ready", b"\xa5steep"))
        assert flow.claim() == ["a"]
        assert flow.leases["a"].unreadable is not None
        flow.die("a")
        assert (flow.status, flow.figures) == ("blocked", (1, 0, 0, 1, 0, 0))
        assert flow.see().dead == (flow.letter("a"),)
        flow.scene.run(Resolve(scope=ALL_TENANTS, id=flow.letter("a"), by="ada", notes="done by hand"))
        assert flow.claim() == ["b"]


@pytest.mark.parametrize("found", [b"garbage", b""])
def test_a_node_that_waits_and_whose_body_cannot_be_read_counts_as_cancelled(
    shared_valkey: ValkeyServer, valkey: redis.Redis, found: bytes
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        flow = Flow(Scene(store), {"a": [], "b": ["a"], "c": ["a"], "d": ["b"], "e": (["b"], "continue")}).put()
        key = f"{{fairlane}}:job:{flow.letter('b')}"
        valkey.set(key, found) if found else valkey.delete(key)
        assert flow.claim() == ["a"]
        flow.complete("a")
        assert flow.claim() == ["c", "e"]
        assert flow.figures == (0, 2, 1, 0, 2, 0)
        flow.complete("c", "e")
        assert (flow.status, flow.figures) == ("cancelled", (0, 0, 3, 0, 2, 0))
        flow.cancel()
        assert flow.figures == (0, 0, 3, 0, 2, 0), "nothing counts twice"


def test_a_node_that_had_ended_when_its_body_was_lost_is_not_counted_again(
    shared_valkey: ValkeyServer, valkey: redis.Redis
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        flow = Flow(Scene(store), {"a": [], "b": ["a"]}).put()
        key = f"{{fairlane}}:job:{flow.letter('a')}"
        flow.claim()
        flow.complete("a")
        valkey.set(key, b"garbage")
        flow.cancel()
        assert flow.figures == (0, 0, 1, 0, 1, 0)


@pytest.mark.parametrize("when", ["waiting", "leased", "dead"])
def test_a_workflow_with_a_node_whose_body_cannot_be_read_ends_when_it_is_cancelled(
    shared_valkey: ValkeyServer, valkey: redis.Redis, when: str
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        flow, worker = Flow(scene, {"a": [], "b": ["a"]}).put(), scene.hire()
        for name in ("b",) if when == "waiting" else ("a",):
            valkey.set(f"{{fairlane}}:job:{flow.letter(name)}", b"garbage")
        leases = () if when == "waiting" else scene.claim(worker)
        if when == "dead":
            scene.settle(worker, *map(died, leases))
        flow.cancel()
        if when == "leased":
            scene.settle(worker, *(cancelled(lease) for lease in leases))
        assert (flow.status, flow.figures) == ("cancelled", (0, 0, 0, 0, 2, 0))
        flow.cancel()
        assert flow.figures == (0, 0, 0, 0, 2, 0), "nothing counts twice"


def test_scheduled_jobs_without_a_readable_body_do_not_hold_up_the_others(
    shared_valkey: ValkeyServer, valkey: redis.Redis
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        worker = scene.hire(3600.0)
        missing, garbled, good = (scene.put(delay_s=60.0) for _ in range(3))
        valkey.delete(f"{{fairlane}}:job:{missing.seq}")
        valkey.set(f"{{fairlane}}:job:{garbled.seq}", "garbage")
        scene.later(61)
        assert [lease.id for lease in scene.claim(worker, 3)] == [good.id]
        assert scene.promote().next_due_at is None


@pytest.mark.requirement("D24", "L3")
@pytest.mark.parametrize("found", [b"garbage", b""])
@pytest.mark.parametrize("when", ["held", "let in"])
def test_a_job_with_a_key_whose_body_cannot_be_read_leaves_its_place_to_the_next(
    shared_valkey: ValkeyServer, valkey: redis.Redis, when: str, found: bytes
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        worker, key = scene.hire(3600.0), JobKey(value="customer:42")
        odd, good = scene.put(key=key), scene.put(key=key)
        if when == "let in":
            scene.turn(worker)
        body = f"{{fairlane}}:job:{odd.seq}"
        valkey.set(body, found) if found else valkey.delete(body)
        leases = scene.claim(worker, 2)
        if when == "let in":
            assert [(lease.seq, lease.unreadable is None) for lease in leases] == [(odd.seq, False)]
            leases = scene.turn(worker, wanting(2), outcomes=tuple(map(died, leases))).leases
        leases = leases or scene.claim(worker, 2)
        assert [lease.id for lease in leases] == [good.id]
        scene.settle(worker, *map(completed, leases))
        assert valkey.keys("*key*") == []


@pytest.mark.parametrize("place", ["ready", "failed", "scheduled", "at its key"])
def test_no_damaged_byte_of_a_body_holds_up_claims_or_reclaims_or_lists(
    shared_valkey: ValkeyServer, valkey: redis.Redis, place: str
) -> None:
    damages = [(at, value) for at in range(80) for value in (0x00, 0xC0, 0xA1, 0x90, 0xFF, 0xCB)]
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        worker = scene.hire(1e6)
        key = JobKey(value="customer:42", running=NO_LIMIT) if place == "at its key" else None
        delay_s = 60.0 if place == "scheduled" else None
        odd = scene.put_many(len(damages), "odd.task", tenant="acme-odd", delay_s=delay_s, key=key)
        if place == "failed":
            scene.settle(worker, *(retried(lease) for lease in scene.claim(worker, len(odd))))
        keys = [f"{{fairlane}}:job:{job.seq}" for job in odd]
        bodies = dict(zip(keys, map(bytearray, cast("list[bytes]", valkey.mget(keys))), strict=True))
        for body, (at, value) in zip(bodies.values(), damages, strict=True):
            body[at] = value
        valkey.mset({key: bytes(body) for key, body in bodies.items()})
        scene.later(61)
        good = scene.put("good.task", tenant="other")
        assert good.seq in {lease.seq for lease in scene.claim(worker, 1000)}
        assert scene.run(PageJobs(scope=ALL_TENANTS, limit=1000)).jobs
        scene.later(1e5)
        scene.renew(worker, 1e6)
        assert good.seq in {lost.seq for lost in scene.reclaim(1000)}
        assert scene.run(GetStats(scope=ALL_TENANTS)).dead > 0
        assert scene.run(PageDeadLetters(scope=ALL_TENANTS)).dead_letters


@pytest.mark.parametrize("damage", ["cut", "parent", "key"])
def test_a_finished_job_whose_body_cannot_be_read_does_not_hold_up_lists_or_retention(
    shared_valkey: ValkeyServer, valkey: redis.Redis, damage: str
) -> None:
    damages: dict[str, Callable[[bytes], bytes]] = {
        "cut": lambda kept: kept[:-3],
        "parent": lambda kept: kept.replace(PARENT.hex.encode(), b"g" * 32),
        "key": lambda kept: kept.replace(b"\xa1k", b"\x91\x01"),
    }
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        worker = scene.hire(1e6)
        odd, good = (scene.put(idempotency_key=key, parent_id=PARENT) for key in ("k", "l"))
        scene.settle(worker, *(completed(lease) for lease in scene.claim(worker, 2)))
        key = f"{{fairlane}}:job:{odd.seq}"
        found = cast("bytes", valkey.get(key))
        assert damages[damage](found) != found
        valkey.set(key, damages[damage](found))
        scene.later(1000)
        assert [job.id for job in scene.run(PageJobs(scope=ALL_TENANTS)).jobs] == [good.id]
        assert scene.retain(finished_before=scene.now) == 2


@pytest.mark.parametrize("found", [b"garbage", b""])
@pytest.mark.parametrize("keys", [{"idempotency_key": "k"}, {"dedup_key": "k"}])
def test_keys_of_a_body_that_cannot_be_read_are_free(
    shared_valkey: ValkeyServer, valkey: redis.Redis, found: bytes, keys: dict[str, Any]
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        spec = scene.job(**keys)
        [odd] = scene.enqueue(spec).receipts
        key = f"{{fairlane}}:job:{odd.seq}"
        valkey.set(key, found) if found else valkey.delete(key)
        again = scene.enqueue(scene.job(), scene.job(**keys)).receipts
        assert [receipt.disposition for receipt in again] == ["created", "created"]
        [known] = scene.enqueue(scene.job(**keys)).receipts
        assert (known.disposition, known.seq) == ("duplicate", again[1].seq)
        [replay] = scene.enqueue(spec).receipts
        assert replay.disposition == ("conflict" if found else "duplicate")


def test_keys_of_a_replaced_body_are_free_when_its_job_has_ended_or_gone(
    shared_valkey: ValkeyServer, valkey: redis.Redis
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        worker = scene.hire(1e6)
        odd = scene.enqueue(scene.job(dedup_key="d"), scene.job(idempotency_key="i")).receipts
        for job in odd:
            valkey.set(f"{{fairlane}}:job:{job.seq}", b"garbage")
        scene.settle(worker, *(died(lease) for lease in scene.claim(worker, 2)))
        ended = scene.enqueue(scene.job(dedup_key="d"), scene.job(idempotency_key="i")).receipts
        assert [receipt.disposition for receipt in ended] == ["created", "duplicate"]
        for job in odd:
            scene.run(Discard(scope=ALL_TENANTS, id=job.seq, by="ada", notes="unreadable"))
        scene.later(1000)
        assert scene.retain(closed_before=scene.now) == 2
        gone = scene.enqueue(scene.job(dedup_key="d"), scene.job(idempotency_key="i")).receipts
        assert [receipt.disposition for receipt in gone] == ["duplicate", "created"]


def test_a_schedule_fires_though_the_job_with_its_key_cannot_be_read(
    shared_valkey: ValkeyServer, valkey: redis.Redis
) -> None:
    with closing(RedisStore(shared_valkey.url)) as store:
        scene = Scene(store)
        declare(scene, spec())
        [odd] = scene.enqueue(firing(scene)).receipts
        valkey.set(f"{{fairlane}}:job:{odd.seq}", b"garbage")
        job = firing(scene)
        fire(scene, job)
        assert [lease.id for lease in scene.claim(scene.hire(), 2) if lease.unreadable is None] == [job.id]


def test_a_claim_the_store_refuses_does_not_end_the_engine(
    place: Place, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    arun, refusals = PostgresStore.arun, [StoreRefused("postgresql", "it does not like it"), ValueError("no answer")]

    async def refusing(self: PostgresStore, op: object, **options: object) -> object:
        if isinstance(op, Turn) and op.wants and refusals:
            raise refusals.pop()
        return await arun(self, op, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(PostgresStore, "arun", refusing)
    with greeting_app(place.dsn) as app, app.running(slots=2):
        assert app.tasks["greet"].enqueue("after").result(timeout=20) == "after!"
    assert "the store refused to claim, trying again" in caplog.text
    assert "the store did not answer, trying again" in caplog.text
    assert "ended unexpectedly" not in caplog.text


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_borrowed_connection_of_another_encoding_enqueues_what_it_can_carry_and_refuses_the_rest(
    place: Place, encoding: str
) -> None:
    with greeting_app(place.dsn) as app:
        with psycopg.connect(place.dsn, client_encoding=encoding) as conn:
            plain = app.tasks["greet"].using(conn=conn).enqueue("plain")
            wide = None
            if encoding == "SQL_ASCII":  # converts nothing: UTF-8 arrives as it is sent
                wide = app.tasks["greet"].using(conn=conn).enqueue(JAPANESE)
            else:
                with pytest.raises(StoreRefused, match="use UTF8"):
                    app.tasks["greet"].using(conn=conn).enqueue(f"{JAPANESE} 🙂")
        with app.running(slots=2):
            assert plain.result(timeout=20) == "plain!"
            assert wide is None or wide.result(timeout=20) == f"{JAPANESE}!"
