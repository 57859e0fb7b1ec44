"""Databases left behind by the first schema are upgraded in place: every job is found, and what waits runs."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from fairlane.core import ops
from fairlane.core.audit_chain import seal, verify
from fairlane.core.ids import JobId
from fairlane.errors import SchemaOutOfDate
from fairlane.stores.migrations import SchemaState
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.schema import FUNCTIONS_RELEASE
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene, wanting
from tests.servers.postgres import shared_server
from tests.servers.programs import run_by_psql
from tests.upgrade.make_fixtures import FIXTURES, job_facts, other_facts

FACTS = json.loads((FIXTURES / "version_1.json").read_text())
QUEUES = tuple(sorted({job["queue"] for job in FACTS["postgres"]["jobs"].values()}))
WAITS = {"pending", "failed", "processing"}


class Fixture(NamedTuple):
    store: SqliteStore | PostgresStore
    facts: dict[str, Any]


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    file = tmp_path / "jobs.db"
    file.write_bytes(gzip.decompress((FIXTURES / "version_1.db.gz").read_bytes()))
    store = SqliteStore(file)
    yield store
    store.close()


@pytest.fixture
def postgres() -> Iterator[PostgresStore]:
    server = shared_server()
    dsn = server.new_database("upgrade_fixture")
    dump = gzip.decompress((FIXTURES / "version_1.sql.gz").read_bytes()).decode()
    # Written by the pg_dump of 18; servers before 17 do not know that setting.
    run_by_psql(server, dsn.rpartition("/")[2], dump.replace("SET transaction_timeout = 0;\n", "", 1))
    store = PostgresStore(dsn)
    yield store
    store.close()


@pytest.fixture(params=["sqlite", "postgres"])
def upgraded(request: pytest.FixtureRequest) -> Fixture:
    store = request.getfixturevalue(request.param)
    store.migrator().up()
    store.migrator().require()
    return Fixture(store, FACTS[request.param])


def test_the_first_installations_are_recognised(sqlite: SqliteStore, postgres: PostgresStore) -> None:
    assert sqlite.migrator().state() == SchemaState(1)
    migrator = postgres.migrator()
    assert migrator.state() == SchemaState(1)
    with pytest.raises(SchemaOutOfDate, match=r"the schema is version 1 .*run `fairlane migrate up`"):
        migrator.require()
    ran = migrator.up()
    assert 1 not in {step.version for step in ran if step.phase == "expand"}
    assert migrator.state() == SchemaState(migrator.needed.expanded, 0, FUNCTIONS_RELEASE)
    assert migrator.up() == ()


def test_every_job_is_found_in_its_state_and_so_is_all_else(upgraded: Fixture) -> None:
    scene = Scene(upgraded.store)
    for story, facts in upgraded.facts["jobs"].items():
        assert job_facts(scene, JobId(UUID(facts["id"]))) == facts, story
    assert other_facts(scene) == {name: facts for name, facts in upgraded.facts.items() if name != "jobs"}


def test_the_schedules_it_has_are_no_others_when_they_are_declared_again(upgraded: Fixture) -> None:
    """Changed words would move them on, past a time that is due."""
    kept = upgraded.store.run(ops.ListSchedules()).schedules
    planned = tuple(ops.Planned(spec=schedule.spec, next_at=None) for schedule in kept)
    assert len(planned) > 1
    assert upgraded.store.run(ops.DeclareSchedules(schedules=planned, source="person")) == ops.Declared()
    assert upgraded.store.run(ops.ListSchedules()).schedules == kept


def test_the_chain_of_the_audit_holds_and_goes_on(upgraded: Fixture) -> None:
    store = upgraded.store
    unsealed = store.run(ops.ReadUnsealed())
    assert store.run(ops.SealAudit(links=seal(unsealed.last, unsealed.records))).sealed
    chain = store.run(ops.ReadAuditChain())
    verified = verify(chain.sealed)
    assert (verified.links, verified.broken, chain.unsealed) == (upgraded.facts["audit"], None, 0)


def test_what_waits_runs_and_what_is_over_stays(upgraded: Fixture) -> None:
    scene = Scene(upgraded.store, seed=1)
    scene.later(7200)
    scene.reclaim()
    scene.run(ops.ResumeClaims(kind="queue", name="paused", by="ada"))
    worker = scene.hire(lease_s=600)
    for _ in range(3):
        scene.promote()
        leases = scene.turn(worker, wanting(50, queues=QUEUES)).leases
        assert not scene.settle(worker, *(completed(lease) for lease in leases)).refused
        scene.run(ops.Unhold(limit=100))
    found = {story: scene.status(JobId(UUID(job["id"]))) for story, job in upgraded.facts["jobs"].items()}
    expected = {
        story: "completed" if job["status"] in WAITS else job["status"] for story, job in upgraded.facts["jobs"].items()
    } | {"scheduled for long": "pending", "running, asked to stop": "cancelled"}
    assert found == expected
