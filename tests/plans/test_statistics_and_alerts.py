"""Groups of dead letters, the roll-up, events and seals cost what they look at, not what is kept: counted by the stores themselves."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from fairlane.core.audit_chain import seal
from fairlane.core.ops import (
    ALL_TENANTS,
    DeadLetterFilter,
    GetStats,
    GroupDeadLetters,
    Op,
    ReadEnqueued,
    ReadEvents,
    ReadStats,
    ReadUnsealed,
    Retain,
    RollUpEnqueued,
    SealAudit,
    only,
)
from fairlane.stores.postgres.store import call_for
from fairlane.stores.sqlite import SqliteStore
from tests.plans.conftest import Session

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
GROUPED = 10_000
"""Dead letters a grouping looks at."""

LETTERS = """
with line as (select n from generate_series(%(first)s + 1, %(first)s + %(count)s) n), filed as (
  insert into fairlane.job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at)
  select n, gen_random_uuid(), 'noop', 'tenant-' || mod(n, 10), 'default', 5, 0, '{}', 1, 5, %(at)s, %(at)s from line
)
insert into fairlane.dead_letter (seq, status, reason, error_class, error_type, fingerprint, died_at)
select n, %(status)s, 'boom', 'transient', 'Boom', 'f' || mod(n, %(groups)s), %(at)s from line
"""


def pages_of(conn: psycopg.Connection[tuple[Any, ...]], op: Op[Any]) -> int:
    """How many pages the server touches for an answer."""
    call = call_for(op)
    with psycopg.ClientCursor(conn) as cursor:
        text = cursor.mogrify(call.sql.replace("{schema}", "fairlane"), call.params)
    with conn.transaction(force_rollback=True):
        [row] = conn.execute(f"explain (analyze, buffers, format json) {text}".encode()).fetchall()
    plan = row[0][0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


def bury(session: Session, count: int, *, first: int = 0, status: str = "pending_review", groups: int = 20) -> None:
    session.conn.execute(
        LETTERS, {"count": count, "first": first, "status": status, "groups": groups, "at": NOON - timedelta(hours=1)}
    )


@pytest.mark.requirement("W10")
@pytest.mark.parametrize("analyzed", [True, False])
def test_grouping_reads_the_newest_dead_letters_and_no_more(session: Session, analyzed: bool) -> None:
    bury(session, GROUPED)
    op = GroupDeadLetters(scope=ALL_TENANTS)
    pages_of(session.conn, op)
    few = pages_of(session.conn, op)
    bury(session, 5 * GROUPED, first=GROUPED)
    bury(session, 5 * GROUPED, first=6 * GROUPED, status="resolved")
    if analyzed:
        session.conn.execute("vacuum analyze fairlane.dead_letter")
        session.conn.execute("vacuum analyze fairlane.job")
    assert pages_of(session.conn, op) <= 1.3 * few


@pytest.mark.requirement("W10")
def test_a_day_in_half_hours_is_not_read_by_its_minutes(session: Session) -> None:
    names = "type, queue, tenant, 1, 1, 0, 0, 0, 5, 5, '{\"7\": 1}'::jsonb, '{\"8\": 1}'::jsonb"
    figures = (
        f"select %s, {names} from generate_series(0, 19) k cross join lateral (select 'task.' || k, 'default', 'n' || k) "
        "as n (type, queue, tenant) cross join generate_series(%s::timestamptz - interval '1 day', %s, %s::interval) at"
    )
    for table, step in (("stat_minute", "1 minute"), ("stat_half_hour", "30 minutes")):
        insert = f"insert into fairlane.{table} {figures}".replace("%s", "at", 1)
        session.conn.execute(insert.encode(), (NOON, NOON, step))
    session.conn.execute("vacuum analyze fairlane.stat_minute, fairlane.stat_half_hour")
    day = ReadStats(since=NOON - timedelta(hours=23), until=NOON + timedelta(minutes=5), step_s=1800, by="type")
    pages_of(session.conn, day)
    halves = pages_of(session.conn, day)
    minutes = pages_of(session.conn, replace(day, since=day.since + timedelta(minutes=1)))
    assert halves * 8 < minutes  # the last minutes are read one by one
    assert pages_of(session.conn, replace(day, step_s=100_001)) < 2 * halves  # all in one step


@pytest.mark.requirement("W10")
def test_the_dead_letters_of_a_tenant_with_few_jobs_cost_its_jobs_not_all_letters(session: Session) -> None:
    bury(session, GROUPED)
    bury(session, GROUPED, first=GROUPED, status="resolved")
    session.conn.execute("update fairlane.job set tenant = 'small' where mod(seq, 100) = 7")
    session.conn.execute("vacuum analyze fairlane.job, fairlane.dead_letter")
    rough = GetStats(scope=only("small"), cap=GROUPED - 50, rough=True, parts=("dead_letters",))
    pages_of(session.conn, rough)
    assert pages_of(session.conn, rough) < 3_000  # by all letters: 80,000
    by_jobs, by_letters = (
        session.conn.execute("select fairlane.count_newest_letters('small', %s)", (newest,)).fetchone()
        for newest in (GROUPED - 50, 100)
    )
    assert by_jobs == ({"pending_review": 99, "resolved": 99},)
    assert by_letters == ({"pending_review": 1, "resolved": 1},)


@pytest.mark.requirement("W10")
def test_one_group_among_many_is_found_by_its_fingerprint(session: Session) -> None:
    bury(session, 5 * GROUPED, groups=GROUPED)
    session.conn.execute("vacuum analyze fairlane.dead_letter")
    op = GroupDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter(fingerprint="f7"))
    pages_of(session.conn, op)
    assert pages_of(session.conn, op) < 200


def rolling(session: Session, counted_to: int) -> int:
    """Pages a roll-up of a thousand jobs touches behind those counted before."""
    session.conn.execute("update fairlane.rolled_up set seq = %s", (counted_to,))
    return pages_of(session.conn, RollUpEnqueued(limit=1000, now=NOON))


@pytest.mark.requirement("L13")
def test_a_roll_up_touches_the_jobs_it_counts_wherever_they_stand_among_the_others(session: Session) -> None:
    session.load(2_000, tenants=10)
    rolling(session, 0)
    few = rolling(session, 0)
    session.load(18_000, tenants=10, first=2_000)
    session.load(20_000, tenants=10, first=20_000)
    session.conn.execute("vacuum analyze fairlane.job")
    for counted_to in (0, 15_000, 39_000):
        assert rolling(session, counted_to) <= 2 * few
    assert rolling(session, 40_000) < 100


@pytest.mark.requirement("D23")
def test_where_jobs_were_enqueued_costs_the_new_ones_however_many_there_are(session: Session) -> None:
    session.load(2_000, tenants=10)
    pages_of(session.conn, ReadEnqueued(after=1_000))
    few = pages_of(session.conn, ReadEnqueued(after=1_000))
    session.load(38_000, tenants=10, first=2_000)
    session.conn.execute("vacuum analyze fairlane.job")
    assert pages_of(session.conn, ReadEnqueued(after=39_000)) <= 2 * few
    assert pages_of(session.conn, ReadEnqueued(limit=1_000)) <= 2 * few
    assert pages_of(session.conn, ReadEnqueued(after=40_000)) < 20


@pytest.mark.requirement("L19")
def test_a_step_of_retention_reads_past_nothing_that_steps_before_have_removed(session: Session) -> None:
    """While somebody holds an old snapshot, what was removed stays in the index."""
    session.load(12_000)
    session.conn.execute(
        "insert into fairlane.done (seq, status, finished_at, due_at, attempt, attempts, crashes) "
        "select seq, 'completed', %s::timestamptz + seq * interval '1 second', due_at, 1, 1, 0 from fairlane.job",
        (NOON,),
    )
    session.conn.execute("vacuum analyze fairlane.done")
    with psycopg.connect(session.conn.info.dsn) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select from fairlane.done limit 1")
        before, reached = NOON + timedelta(days=1), None
        pages_of(session.conn, Retain(finished_before=before, limit=10))
        first = pages_of(session.conn, Retain(finished_before=before, limit=10))
        for _ in range(10):
            call = call_for(Retain(finished_before=before, finished_from=reached, limit=1_000))
            rows = session.conn.execute(call.sql.replace("{schema}", "fairlane").encode(), call.params).fetchall()
            reached = call.read(rows).finished_to
        later = pages_of(session.conn, Retain(finished_before=before, finished_from=reached, limit=10))
        assert later <= first + 20
        assert pages_of(session.conn, Retain(finished_before=before, limit=10)) > first + 80


@pytest.mark.requirement("I13")
@pytest.mark.parametrize("scope", [ALL_TENANTS, only("tenant-7")], ids=["all", "one"])
def test_a_watcher_at_the_end_of_many_events_touches_few_pages(session: Session, scope: Any) -> None:
    session.conn.execute(
        "insert into fairlane.event (at, kind, tenant, data) "
        "select %s, 'job_completed', 'tenant-' || mod(n, 100), '{}' from generate_series(1, 50000) n",
        (NOON,),
    )
    session.conn.execute("vacuum analyze fairlane.event")
    for after in (0, 25_000, 50_000):
        pages_of(session.conn, ReadEvents(scope=scope, after=after, limit=50))
        assert pages_of(session.conn, ReadEvents(scope=scope, after=after, limit=50)) < 100


@pytest.mark.requirement("W12")
def test_looking_for_unsealed_records_costs_the_same_behind_a_long_chain(session: Session) -> None:
    session.conn.execute(
        "insert into fairlane.audit (at, by, action, target) select %s, 'ada', 'pause', 'queue:' || n from generate_series(1, 20000) n",
        (NOON,),
    )
    session.conn.execute(
        "insert into fairlane.audit_seal (n, audit_id, hash) select id, id, 'x' from fairlane.audit where id <= 19990"
    )
    session.conn.execute("delete from fairlane.audit_unsealed where id <= 19990")
    session.conn.execute("vacuum full fairlane.audit_unsealed")
    pages_of(session.conn, ReadUnsealed())
    assert pages_of(session.conn, ReadUnsealed()) < 100


# SQLite counts its own steps, tens of them at a time.


@pytest.fixture
def sqlite(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "jobs.db")
    yield store
    store.close()


def steps_of(store: SqliteStore, op: Op[Any]) -> int:
    steps = 0

    def count() -> bool:
        nonlocal steps
        steps += 1
        return False

    store.run(ReadEvents(scope=ALL_TENANTS))
    for driver in (store._db._writer, store._db._reader):
        driver.connection.set_progress_handler(count, 10)  # type: ignore[union-attr]
    store.run(op)
    for driver in (store._db._writer, store._db._reader):
        driver.connection.set_progress_handler(None)  # type: ignore[union-attr]
    return steps


def fill(store: SqliteStore, count: int, *, first: int = 0) -> None:
    """Dead letters of as many jobs, straight into the file."""
    us = int((NOON - timedelta(hours=1)).timestamp() * 1_000_000)
    numbers = f"with line (n) as (select {first + 1} union all select n + 1 from line where n < {first + count}) "
    store._db.change(
        lambda db: (
            db.execute(
                f"{numbers} insert into fairlane_job (seq, id, type, tenant, queue, band, rank, max_attempts, payload_version, enqueued_at, "
                f"due_at, payload) select n, randomblob(16), 'noop', 't', 'default', 5, 0, 5, 1, {us}, {us}, '{{}}' from line"
            ),
            db.execute(
                f"{numbers} insert into fairlane_dead_letter (seq, reason, error_class, error_type, fingerprint, died_at) "
                f"select n, 'boom', 'transient', 'Boom', 'f' || (n % 20), {us} from line"
            ),
        )
    )


@pytest.mark.requirement("W10")
def test_grouping_in_sqlite_reads_the_newest_dead_letters_and_no_more(sqlite: SqliteStore) -> None:
    fill(sqlite, GROUPED)
    few = steps_of(sqlite, GroupDeadLetters(scope=ALL_TENANTS))
    fill(sqlite, 2 * GROUPED, first=GROUPED)
    assert 0 < steps_of(sqlite, GroupDeadLetters(scope=ALL_TENANTS)) <= 1.3 * few
    assert 0 < steps_of(sqlite, GroupDeadLetters(scope=ALL_TENANTS, where=DeadLetterFilter())) <= 1.3 * few


@pytest.mark.requirement("D23")
def test_where_jobs_were_enqueued_in_sqlite_costs_the_new_ones(sqlite: SqliteStore) -> None:
    fill(sqlite, 1_000)
    few = steps_of(sqlite, ReadEnqueued())
    fill(sqlite, 20_000, first=1_000)
    assert 0 < steps_of(sqlite, ReadEnqueued()) <= 1.3 * few


@pytest.mark.requirement("L13")
def test_a_roll_up_in_sqlite_costs_what_it_counts(sqlite: SqliteStore) -> None:
    fill(sqlite, 1_000)
    few = steps_of(sqlite, RollUpEnqueued(limit=1_000, now=NOON))
    fill(sqlite, 20_000, first=1_000)
    assert 0 < steps_of(sqlite, RollUpEnqueued(limit=1_000, now=NOON)) <= 1.3 * few


@pytest.mark.requirement("W12")
def test_looking_for_unsealed_records_in_sqlite_costs_the_same_behind_a_long_chain(sqlite: SqliteStore) -> None:
    def write(count: int) -> None:
        rows = [(0, "ada", "pause", "queue:a")] * count
        sqlite._db.change(
            lambda db: db.executemany("insert into fairlane_audit (at, by, action, target) values (?, ?, ?, ?)", rows)
        )

    write(10)
    few = steps_of(sqlite, ReadUnsealed())
    write(5_000)
    there = sqlite.run(ReadUnsealed(limit=5_000))
    assert sqlite.run(SealAudit(links=seal(there.last, there.records))).sealed
    assert 0 < steps_of(sqlite, ReadUnsealed()) <= 1.5 * few


def test_a_look_at_alerts_removes_a_bounded_number_of_old_ones(session: Session) -> None:
    with session.conn.transaction(force_rollback=True):
        session.conn.execute(
            "insert into fairlane.alert (rule, about, state, since, resolved_at, value, severity, version) select 'r', "
            "'tenant' || n, 'resolved', now(), now() - interval '2 days', 1, 'warning', 1 from generate_series(1, 3000) n"
        )
        left = []
        for _ in range(2):
            session.conn.execute("""select fairlane.save_alerts_v1('{"alerts": []}')""")
            [count] = session.conn.execute("select count(*) from fairlane.alert").fetchone() or ()
            left.append(count)
    assert left == [1000, 0]
