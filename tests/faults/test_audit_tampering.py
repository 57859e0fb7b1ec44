"""Whoever reaches past Fairlane for the audit is refused by the database, or found by verifying the chain."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from fairlane.core.audit_chain import BrokenLink, seal, verify
from fairlane.core.ops import (
    ALL_TENANTS,
    PageAudit,
    PauseClaims,
    Purge,
    ReadAuditChain,
    ReadUnsealed,
    SealAudit,
)
from fairlane.stores.base import Store
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.scene import Scene
from tests.faults.conftest import Stores
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.support.stores import Ground

pytestmark = pytest.mark.requirement("W12")

ACTS = 4
SEAL_FIRST = (
    "select fairlane.seal_audit_v1(json_build_object('links', json_build_array("
    "json_build_object('n', 1, 'audit_id', %s::bigint, 'hash', %s::text))))"
)


class Archive:
    """A store whose audit holds a few sealed records, and a way to its tables that is not ours."""

    prefix: str
    refusal: type[Exception]
    unguard: tuple[str, ...]
    """What a hand with every right says first."""

    def __init__(self, store: Store) -> None:
        self.scene = Scene(store)

    def say(self, *statements: str) -> None:
        """All of it in one transaction of one session."""
        raise NotImplementedError

    def tables(self, statement: str) -> str:
        return statement.replace("@", self.prefix)

    def act(self, name: str) -> None:
        self.scene.run(PauseClaims(kind="queue", name=name, by="ada"))

    def seal(self) -> None:
        there = self.scene.run(ReadUnsealed())
        assert self.scene.run(SealAudit(links=seal(there.last, there.records))).sealed

    def broken(self) -> BrokenLink | None:
        return verify(self.scene.run(ReadAuditChain(limit=1000)).sealed).broken


class InSqlite(Archive):
    prefix = "fairlane_"
    refusal = sqlite3.IntegrityError

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(SqliteStore(path, library="stdlib"))

    @property
    def unguard(self) -> tuple[str, ...]:  # type: ignore[override]
        with closing(sqlite3.connect(self._path)) as conn:
            rows = conn.execute("select name from sqlite_schema where type = 'trigger' and name like 'fairlane_audit%'")
            return tuple(f"drop trigger {name}" for (name,) in rows)

    def say(self, *statements: str) -> None:
        with closing(sqlite3.connect(self._path, isolation_level=None)) as conn:
            conn.execute("begin immediate")
            for statement in statements:
                conn.execute(self.tables(statement))
            conn.execute("commit")


class InPostgres(Archive):
    prefix = "fairlane."
    refusal = psycopg.errors.RestrictViolation
    unguard = ("set local session_replication_role = replica",)

    def __init__(self, place: Place, store: PostgresStore) -> None:
        self.place = place
        super().__init__(store)

    def say(self, *statements: str) -> None:
        with psycopg.connect(self.place.dsn) as conn:
            for statement in statements:
                conn.execute(self.tables(statement).encode())


@pytest.fixture
def in_postgres(ground: Ground, stores: Stores) -> InPostgres:
    dsn = ground.address("postgres")
    return InPostgres(Place(ground.server, dsn.rpartition("/")[2]), stores.open(dsn))


@pytest.fixture(params=["sqlite", "postgres"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Archive]:
    archive: Archive = (
        InSqlite(tmp_path / "jobs.db") if request.param == "sqlite" else request.getfixturevalue("in_postgres")
    )
    for number in range(ACTS):
        archive.act(f"q{number}")
    archive.seal()
    yield archive
    if isinstance(archive.scene.store, SqliteStore):
        archive.scene.store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "update @audit set by = 'nobody' where id = 2",
        "delete from @audit where id = 2",
        "delete from @audit",
        "update @audit_seal set hash = 'x' where n = 2",
        "delete from @audit_seal where n = 4",
    ],
)
def test_a_plain_statement_cannot_change_the_audit_or_its_seals(archive: Archive, statement: str) -> None:
    before = archive.scene.audit()
    with pytest.raises(archive.refusal, match="append-only"):
        archive.say(statement)
    assert archive.scene.audit() == before
    assert archive.broken() is None


def test_truncate_is_refused_on_postgres(in_postgres: InPostgres) -> None:
    in_postgres.act("a")
    for table in ("audit", "audit_seal", "audit_unsealed"):
        with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
            in_postgres.say(f"truncate @{table}")
    assert len(in_postgres.scene.audit()) == 1


def test_replacing_a_row_is_refused_on_sqlite(tmp_path: Path) -> None:
    archive = InSqlite(tmp_path / "jobs.db")
    archive.act("a")
    archive.seal()
    for statement in (
        "insert or replace into @audit (id, at, by, action, target) values (1, 0, 'nobody', 'pause', 'queue:a')",
        "insert or replace into @audit_seal values (1, 1, 'x')",
        "insert or replace into @audit_seal values (2, 1, 'x')",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            archive.say(statement)
    assert archive.broken() is None
    archive.act("b")
    archive.scene.store.close()  # type: ignore[attr-defined]


def test_a_record_cannot_be_kept_from_its_seal(archive: Archive) -> None:
    archive.act("late")
    for statement in ("delete from @audit_unsealed", "update @audit_unsealed set id = id + 100"):
        with pytest.raises(archive.refusal):
            archive.say(statement)
    archive.seal()
    chain = archive.scene.run(ReadAuditChain())
    assert (len(chain.sealed), chain.unsealed) == (ACTS + 1, 0)


def test_a_record_taken_out_of_the_line_for_its_seal_is_found(archive: Archive) -> None:
    archive.act("late")
    assert archive.scene.run(ReadAuditChain(also_unaccounted=True)).unaccounted is None
    archive.say(*archive.unguard, archive.tables("delete from @audit_unsealed"))
    chain = archive.scene.run(ReadAuditChain(also_unaccounted=True))
    [newest] = archive.scene.run(PageAudit(scope=ALL_TENANTS, limit=1)).records
    assert (chain.unaccounted, chain.unsealed) == (newest.id, 0)
    assert archive.broken() is None, "no link shows it"


TAMPERING: dict[str, tuple[str, Callable[[BrokenLink], bool]]] = {
    "another name": (
        "update @audit set by = 'nobody' where id = (select audit_id from @audit_seal where n = 2)",
        lambda broken: (broken.n, broken.why) == (2, "record_changed"),
    ),
    "notes put in later": (
        "update @audit set notes = 'x' where id = (select audit_id from @audit_seal where n = 3)",
        lambda broken: (broken.n, broken.why) == (3, "record_changed"),
    ),
    "a record gone": (
        "delete from @audit where id = (select audit_id from @audit_seal where n = 2)",
        lambda broken: (broken.n, broken.why) == (2, "record_gone"),
    ),
    "a hash changed": (
        "update @audit_seal set hash = substr(hash, 2) || 'a' where n = 3",
        lambda broken: (broken.n, broken.why) == (3, "link_changed"),
    ),
    "a link gone": (
        "delete from @audit_seal where n = 2",
        lambda broken: (broken.n, broken.why) == (2, "gap"),
    ),
    "a link sent to another record": (
        "update @audit_seal set audit_id = 1000 where n = 2",
        lambda broken: broken.n == 2,
    ),
}


@pytest.mark.parametrize("how", TAMPERING)
def test_tampering_by_a_hand_with_every_right_is_found_by_verifying(archive: Archive, how: str) -> None:
    statement, expected = TAMPERING[how]
    archive.say(*archive.unguard, statement)
    broken = archive.broken()
    assert broken is not None
    assert expected(broken), broken


def test_later_acts_and_seals_do_not_heal_a_broken_chain(archive: Archive) -> None:
    statement, expected = TAMPERING["another name"]
    archive.say(*archive.unguard, statement)
    archive.act("later")
    archive.seal()
    broken = archive.broken()
    assert broken is not None
    assert expected(broken)


def test_triggers_switched_off_by_the_owner_are_found_as_well(in_postgres: InPostgres) -> None:
    in_postgres.act("a")
    in_postgres.seal()
    in_postgres.say(
        "alter table @audit disable trigger append_only",
        "update @audit set by = 'nobody'",
        "alter table @audit enable trigger append_only",
    )
    broken = in_postgres.broken()
    assert broken is not None
    assert broken.why == "record_changed"


@pytest.mark.parametrize("statement", ["delete from @audit", "update @audit set by = 'x'"])
def test_the_mark_of_a_purge_copied_by_hand_is_found_or_refused(archive: Archive, statement: str) -> None:
    """In SQLite a purge marks its transaction in a table; PostgreSQL has no mark, and the setting it once was is void."""
    in_sqlite = archive.prefix == "fairlane_"
    mark = (
        "insert into @meta values ('purging', 1)"
        if in_sqlite
        else "select set_config('fairlane.purging', 'fairlane', true)"
    )
    if in_sqlite and statement.startswith("delete"):
        archive.say(mark, statement)
        broken = archive.broken()
        assert broken is not None
        assert (broken.n, broken.why) == (1, "record_gone")
    else:
        with pytest.raises(archive.refusal, match="append-only"):
            archive.say(mark, statement)
        assert archive.broken() is None


def test_a_purge_leaves_the_door_closed_behind_it(archive: Archive) -> None:
    archive.scene.run(Purge())
    assert archive.scene.audit() == ()
    archive.act("again")
    with pytest.raises(archive.refusal, match="append-only"):
        archive.say("delete from @audit")
    archive.seal()
    assert archive.broken() is None


def test_an_act_does_not_wait_for_a_sealer_that_has_not_committed(in_postgres: InPostgres) -> None:
    in_postgres.act("a")
    there = in_postgres.scene.run(ReadUnsealed())
    [link] = seal(there.last, there.records)
    with psycopg.connect(in_postgres.place.dsn) as sealer:
        sealer.execute(SEAL_FIRST, (link.audit_id, link.hash))
        in_postgres.act("b")
        sealer.commit()
    in_postgres.seal()
    assert in_postgres.broken() is None
    assert len(in_postgres.scene.run(ReadAuditChain()).sealed) == 2


def test_of_two_sealers_at_once_the_second_writes_nothing(in_postgres: InPostgres) -> None:
    in_postgres.act("a")
    there = in_postgres.scene.run(ReadUnsealed())
    links = seal(there.last, there.records)
    with psycopg.connect(in_postgres.place.dsn) as first:
        first.execute(SEAL_FIRST, (links[0].audit_id, links[0].hash))
        with ThreadPoolExecutor(1) as thread:
            second = thread.submit(in_postgres.scene.run, SealAudit(links=links))
            eventually(in_postgres.place.sessions_waiting)
            first.commit()
            assert second.result(20).sealed is False
    assert in_postgres.broken() is None
    assert len(in_postgres.scene.run(ReadAuditChain()).sealed) == 1


def test_a_record_that_commits_late_is_sealed_late(in_postgres: InPostgres) -> None:
    with psycopg.connect(in_postgres.place.dsn) as slow:
        slow.execute("""select fairlane.pause_claims_v1('{"kind": "queue", "name": "slow", "by": "bob"}')""")
        in_postgres.act("quick")
        in_postgres.seal()
        slow.commit()
    in_postgres.seal()
    sealed = in_postgres.scene.run(ReadAuditChain()).sealed
    assert [link.record.by for link in sealed if link.record is not None] == ["ada", "bob"]
    assert sealed[0].link.audit_id > sealed[1].link.audit_id
    assert in_postgres.broken() is None
