"""Limits cost what they count, never what waits behind them: pages touched, counted by the server."""

from __future__ import annotations

import json

import psycopg
import pytest

from fairlane.core.limits import Limit, Rate
from fairlane.core.ops import HasTenants
from fairlane.stores.postgres.turn import claim_limits
from tests.plans.conftest import WORKER, Session
from tests.plans.test_pauses_and_schedules import rename
from tests.plans.test_statistics_and_alerts import pages_of

CROWD = 10_000
ROOMY = {
    "tenants": (Limit(kind="tenant", name="*", running=300, rate=Rate(1000, 60.0)),),
    "queue": (Limit(kind="queue", name="default", running=300, rate=Rate(1000, 60.0)),),
    "type": (Limit(kind="type", name="noop", running=300, rate=Rate(1000, 60.0)),),
    "all of them": (
        Limit(kind="tenant", name="*", running=300),
        Limit(kind="queue", name="default", running=300),
        Limit(kind="named", name="api", types=("noop",), rate=Rate(1000, 60.0)),
    ),
}


def lease_some(session: Session, count: int, tenant: str) -> None:
    """Leases of another worker, as many jobs as run beside each other."""
    session.conn.execute(
        "insert into fairlane.lease (seq, worker, claim_no, nth, lane, leased_at, deadline_at, queue, band, tenant, rank, due_at, type, attempt, "
        "attempts, crashes, suspect, deduped, counted) select 5000000 + n, gen_random_uuid(), 1, 1, 'other', now(), now() + interval '1 hour', "
        "'default', 5, %s, 0, now(), 'noop', 1, 0, 0, false, false, 3 from generate_series(1, %s) n",
        (tenant, count),
    )


@pytest.mark.requirement("I2", "W5")
@pytest.mark.parametrize("what", ROOMY)
@pytest.mark.parametrize("tenants", [1, 20])
def test_limits_with_room_cost_a_claim_at_most_four_pages_a_job_more(session: Session, what: str, tenants: int) -> None:
    session.load(CROWD, tenants=tenants)
    session.claim()
    session.claim(limits=ROOMY[what])
    # Vacuumed before both: neither meets rows of claims undone, and both make their plans anew.
    session.conn.execute("vacuum fairlane.lease, fairlane.rate_use")
    _, without = session.claim()
    session.conn.execute("vacuum fairlane.lease, fairlane.rate_use")
    given, touched = session.claim(limits=ROOMY[what])
    assert given == 100
    assert touched <= without + 4 * given


@pytest.mark.requirement("I2", "W5")
def test_a_saturated_tenant_with_a_long_line_in_front_costs_the_others_nothing(session: Session) -> None:
    session.load(1, first=CROWD)
    session.claim()
    _, alone = session.claim()
    session.conn.execute("delete from fairlane.ready")
    session.conn.execute("delete from fairlane.job")
    session.load(CROWD)
    rename(session, "a-full")
    session.load(1, first=CROWD)
    session.conn.execute("vacuum fairlane.ready")
    lease_some(session, 3, "a-full")
    few = (Limit(kind="tenant", name="*", running=3),)
    session.claim(limits=few)
    given, touched = session.claim(limits=few)
    assert given == 1
    assert touched <= alone + 100


@pytest.mark.requirement("I2", "W5")
def test_a_crowd_of_saturated_tenants_in_front_is_passed_without_a_lock_on_each(session: Session) -> None:
    session.load(3000, tenants=3000)
    rename(session, "a-full-%s")
    session.load(1, first=CROWD)
    session.conn.execute(
        "insert into fairlane.limit_rule (kind, name, said, running, by, at) select 'tenant', 'a-full-' || lpad(n::text, 5, '0'), '{}', 0, 'ops', now() "
        "from generate_series(0, 2999) n"
    )
    session.claim()
    given, touched = session.claim()
    assert given == 1
    assert touched <= 30 * 3000
    with session.conn.transaction(force_rollback=True):
        wants = json.dumps([{"lane": "plan", "queues": ["default"], "limit": 100}])
        session.conn.execute(
            "select fairlane.turn_v2(%s, 900000, null, null, null, null, null, null, null, %s)", (WORKER, wants)
        )
        row = session.conn.execute("select count(*) from pg_locks where locktype = 'advisory'").fetchone()
    assert row is not None
    assert row[0] <= 300


@pytest.mark.requirement("I2", "W5")
def test_more_tenants_with_room_than_a_claim_may_lock_are_left_for_the_next_one(session: Session) -> None:
    session.load(CROWD, tenants=1000)
    session.claim(300, limits=ROOMY["tenants"])
    for wanted in (300, 500):
        given, _ = session.claim(wanted, limits=ROOMY["tenants"])
        assert given == wanted
        assert session.entries <= 5 * wanted, "it walks over the others once and again"


@pytest.mark.requirement("I2", "W5")
def test_a_claim_of_one_job_passes_a_thousand_tenants_for_whom_others_claim(session: Session) -> None:
    session.load(CROWD, tenants=1000)
    session.claim(1, limits=ROOMY["tenants"])
    with psycopg.connect(session.conn.info.dsn, options="-c search_path=fairlane") as other:
        other.execute(
            "select pg_advisory_xact_lock(limit_lock('tenant', tenant)) from (select distinct tenant from ready) t"
        )
        given, touched = session.claim(1, limits=ROOMY["tenants"])
        assert (given, session.entries <= 10 * 1000, touched <= 200 * 1000) == (0, True, True), (
            given,
            session.entries,
            touched,
        )


@pytest.mark.requirement("I2", "W5")
def test_a_type_without_room_in_front_is_passed_within_what_a_claim_looks_at(session: Session) -> None:
    session.load(CROWD, type="noop", due="2026-01-01")
    session.load(100, type="free", first=CROWD)
    none = (Limit(kind="type", name="noop", running=0),)
    given, touched = session.claim(limits=none, types=["noop", "free"], look=1000)
    assert given == 0
    assert touched < 10_000


@pytest.mark.requirement("I2", "W5")
def test_limits_of_types_that_no_job_at_hand_has_are_neither_counted_nor_locked(session: Session) -> None:
    """Otherwise Turns for e-mail wait for each other because SMS have a rate."""
    session.load(CROWD, type="mail")
    session.load(100, type="sms", first=CROWD)
    limits = claim_limits((Limit(kind="type", name="sms", queue="default", running=3, rate=Rate(20, 1.0)),))

    def locks(limit: int) -> tuple[int, int]:
        """Jobs claimed, and locks on the limit of SMS held then."""
        want = {"lane": "plan", "queues": ["default"], "limit": limit, "types": ["mail", "sms"]}
        with session.conn.transaction(force_rollback=True):
            given = session.conn.execute(
                "select count(seq) from fairlane.turn_v2(%s, %s, null, null, null, null, null, null, null, %s, limits => %s)",
                (WORKER, 900_000 + limit, json.dumps([want]), limits),
            ).fetchone()
            held = session.conn.execute(
                "select count(*) from pg_locks where locktype = 'advisory' and objid::bigint = "
                "hashtextextended('fairlane:type:sms', 4) & 4294967295"
            ).fetchone()
        assert given is not None
        assert held is not None
        return given[0], held[0]

    assert locks(100) == (100, 0)
    assert locks(CROWD + 100) == (1000, 0)  # as far as a claim looks
    session.conn.execute("delete from fairlane.ready where type = 'mail' and seq > 50")
    assert locks(10) == (10, 0)
    assert locks(100) == (53, 1)


@pytest.mark.requirement("I2", "Q15")
def test_an_enqueue_counts_no_further_than_the_limit(session: Session) -> None:
    session.load(5 * CROWD)
    session.conn.execute(
        "insert into fairlane.scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, failed) "
        "select 5000000 + n, 'default', 5, 'tenant-00000', 0, now() + interval '1 hour', 'noop', 0, 0, 0, false, false, false from generate_series(1, 10000) n"
    )
    lease_some(session, CROWD, "tenant-00000")
    session.conn.execute("insert into fairlane.counted (kind, name) values ('tenant', 'waiting')")

    def counting(limit: int) -> int:
        [row] = session.conn.execute(
            "explain (analyze, buffers, format json) select fairlane.count_waiting('tenant-00000', 'default', %s, true)",
            (limit,),
        ).fetchall()
        plan = row[0][0]["Plan"]
        touched: int = plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return touched

    for _ in range(7):
        few, many = counting(10), counting(1000)
    assert few < 60
    assert many < 2_200


@pytest.mark.requirement("I2")
@pytest.mark.parametrize("kept", [True, False])
def test_a_claim_without_limits_is_not_touched_by_those_of_other_things(session: Session, kept: bool) -> None:
    session.load(CROWD, tenants=100)
    session.claim()
    _, without = session.claim()
    if kept:
        session.conn.execute(
            "insert into fairlane.limit_rule (kind, name, said, waiting, by, at) select 'tenant', 't' || n, '{}', 5, 'ops', now() "
            "from generate_series(1, 10000) n"
        )
    session.claim()
    given, touched = session.claim()
    assert given == 100
    assert touched <= 1.05 * without


def test_a_step_for_held_jobs_removes_a_bounded_number_of_old_uses(session: Session) -> None:
    with session.conn.transaction(force_rollback=True):
        session.conn.execute(
            "insert into fairlane.rate_use "
            "select 'enqueue', 'tenant' || n, '', now() - interval '2 days', 1 from generate_series(1, 5000) n"
        )
        left = []
        for _ in range(4):
            session.conn.execute("""select fairlane.unhold_v1('{"limits": [], "limit": 100}')""")
            [count] = session.conn.execute("select count(*) from fairlane.rate_use").fetchone() or ()
            left.append(count)
    assert left == [3000, 1000, 0, 0]


@pytest.mark.parametrize("analyzed", [False, True])
def test_whether_there_are_tenants_is_seen_at_the_ends_of_an_index(session: Session, analyzed: bool) -> None:
    session.load(CROWD)
    session.conn.execute("update fairlane.job set tenant = 'system'")
    session.conn.execute("vacuum fairlane.job")
    if analyzed:
        session.conn.execute("analyze fairlane.job")
    assert session.conn.execute("select fairlane.has_tenants_v1('{}')::text").fetchone() == ("false",)
    assert pages_of(session.conn, HasTenants()) < 40
