"""What is paused costs the others nothing, and a timetable is read by its index: pages touched, counted by the server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from fairlane.core.ops import ListSchedules
from fairlane.stores.postgres.store import call_for
from tests.plans.conftest import Session

CROWD = 10_000


def pause(session: Session, tenants: str, count: int) -> None:
    session.conn.execute(
        "insert into fairlane.pause (kind, name, by, at) select 'tenant', format(%s, lpad(n::text, 5, '0')), 'ops', now() "
        "from generate_series(0, %s - 1) n",
        (tenants, count),
    )


def rename(session: Session, tenant: str) -> None:
    """Make what was loaded so far one tenant's, or with a number behind it many tenants'."""
    for table in ("job", "ready"):
        session.conn.execute(
            f"update fairlane.{table} set tenant = format(%s, right(tenant, 5)) where tenant like 'tenant-%%'".encode(),
            (tenant,),
        )


@pytest.mark.requirement("L15", "W5")
def test_a_paused_tenant_with_a_long_line_in_front_costs_the_others_nothing(session: Session) -> None:
    session.load(CROWD)
    session.claim()
    _, alone = session.claim()
    rename(session, "a-paused")
    session.load(CROWD, first=CROWD)
    pause(session, "a-paused", 1)
    session.claim()
    given, touched = session.claim()
    assert given == 100
    assert touched <= alone + 2 * given


@pytest.mark.requirement("L15", "W5")
def test_a_crowd_of_paused_tenants_in_front_is_passed_in_a_fraction_of_a_page_each(session: Session) -> None:
    session.load(CROWD, tenants=CROWD)
    session.claim()
    _, alone = session.claim()
    rename(session, "a-paused-%s")
    session.load(CROWD, tenants=CROWD, first=CROWD)
    pause(session, "a-paused-%s", CROWD)
    session.claim()
    given, past_all = session.claim()
    assert given == 100
    assert past_all <= alone + CROWD // 2
    given, behind = session.claim(cursor="a-paused-99999")
    assert given == 100
    assert behind <= 1.5 * alone


@pytest.mark.requirement("L15", "W5")
def test_a_session_warmed_with_nothing_paused_passes_a_crowd_as_cheaply(session: Session) -> None:
    session.load(CROWD, tenants=CROWD)
    pause(session, "other-%s", 1)
    for _ in range(8):
        assert session.claim()[0] == 100
    pause(session, "tenant-%s", CROWD - 100)
    given, touched = session.claim()
    assert given == 100
    assert touched <= CROWD


@pytest.mark.requirement("L15")
def test_pausing_something_else_hardly_changes_what_a_claim_touches(session: Session) -> None:
    session.load(CROWD, tenants=100)
    session.claim()
    _, alone = session.claim()
    pause(session, "other-%s", 1)
    session.claim()
    given, touched = session.claim()
    assert given == 100
    assert touched <= 1.5 * alone


def pages_of_due(conn: psycopg.Connection[tuple[object, ...]], now: datetime) -> int:
    """How many pages the list of what is due touches, once its plan is made."""
    call = call_for(ListSchedules(due=True, now=now, limit=100))
    with psycopg.ClientCursor(conn) as cursor:
        text = cursor.mogrify(call.sql.replace("{schema}", "fairlane"), call.params)
    for _ in range(2):
        [row] = conn.execute(f"explain (analyze, buffers, format json) {text}".encode()).fetchall()
    plan: dict[str, int] = row[0][0]["Plan"]  # type: ignore[index]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


@pytest.mark.requirement("L12")
def test_due_schedules_are_found_by_their_index_among_thousands_that_are_not(session: Session) -> None:
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    session.conn.execute(
        "insert into fairlane.schedule (name, spec, source, next_at, paused_at, declared_at) "
        "select 's' || n, '{}', 'code', %(noon)s + mod(n, 3) * interval '1 hour', case when mod(n, 3) = 0 and n > 30 then %(noon)s end, %(noon)s "
        "from generate_series(1, 20000) n",
        {"noon": noon},
    )
    session.conn.execute("analyze fairlane.schedule")
    assert pages_of_due(session.conn, noon + timedelta(minutes=1)) < 50
