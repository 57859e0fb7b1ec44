"""A claim costs what it takes, not what waits: pages touched, counted by the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec
import psycopg
import pytest

from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.ids import WorkerId
from fairlane.core.ops import Turn
from fairlane.stores.postgres.store import call_for
from tests.plans.conftest import WORKER, Session

SMALL, LARGE = 10_000, 1_000_000 if os.environ.get("FAIRLANE_LONG") else 150_000
CROWD = 50_000


@contextmanager
def grown(session: Session, tenants: int) -> Iterator[tuple[int, int]]:
    """What a claim of 100 touches with a small backlog and with a large one."""
    session.load(SMALL, tenants=tenants)
    session.claim()
    given, small = session.claim()
    assert given == 100
    session.load(LARGE - SMALL, tenants=tenants, first=SMALL, due="2026-01-03")
    given, large = session.claim()
    assert given == 100
    yield small, large


@pytest.mark.requirement("W5", "W14")
@pytest.mark.parametrize("tenants", [1, 10_000])
def test_a_long_line_costs_a_claim_hardly_more_pages_than_a_short_one(session: Session, tenants: int) -> None:
    with grown(session, tenants) as (small, large):
        assert large <= 1.5 * small


@pytest.mark.requirement("W5")
def test_a_session_warmed_on_an_empty_table_claims_as_cheaply_from_a_full_one(session: Session) -> None:
    session.conn.execute("vacuum analyze fairlane.ready")
    for _ in range(8):
        assert session.claim()[0] == 0
    session.load(CROWD)
    assert session.claim()[0] == 100
    _, warmed = session.claim()
    other = Session(session.conn.info.dsn)
    other.conn.execute("analyze fairlane.ready")
    other.claim()
    _, fresh = other.claim()
    other.conn.close()
    assert warmed <= 1.5 * fresh


@pytest.mark.requirement("W5")
def test_jobs_of_types_a_worker_does_not_know_are_passed_over_within_bounds(session: Session) -> None:
    session.load(CROWD, type="foreign", due="2026-01-01")
    session.load(SMALL, type="noop", first=LARGE, due="2026-01-02")
    given, touched = session.claim(look=1000)
    assert given == 0
    assert touched < 5_000
    mark = ["default", 5, "tenant-00000", 0, "2026-01-01T00:00:00+00:00", CROWD]
    take = {"queue": "default", "band": 5, "tenant": "tenant-00000", "limit": 100, "after": mark}
    session.claim(takes=[take], discover=False)
    given, behind = session.claim(takes=[take], discover=False)
    assert given == 100
    assert behind < 2_500


@pytest.mark.requirement("W5")
def test_a_mark_skips_what_an_old_snapshot_keeps_the_server_from_forgetting(session: Session) -> None:
    session.load(SMALL * 5)
    session.claim()
    _, before = session.claim()
    holder = Session(session.conn.info.dsn)
    with holder.conn.transaction():
        holder.conn.execute("set transaction isolation level repeatable read")
        holder.conn.execute("select count(*) from fairlane.ready")
        session.conn.execute("delete from fairlane.ready where seq <= %s", (SMALL * 4,))
        mark = ["default", 5, "tenant-00000", 0, "2026-01-02T00:00:00+00:00", SMALL * 4]
        take = {"queue": "default", "band": 5, "tenant": "tenant-00000", "limit": 100, "after": mark}
        session.claim(takes=[take], discover=False)
        given, marked = session.claim(takes=[take], discover=False)
        _, unmarked = session.claim()
    holder.conn.close()
    assert given == 100
    assert marked <= 1.5 * before
    assert unmarked > 1.5 * marked


@pytest.mark.requirement("W5")
@pytest.mark.parametrize("tenants", [1, 20])
def test_beneath_an_old_snapshot_a_new_job_is_claimed_without_reading_over_those_claimed_before(
    session: Session, tenants: int
) -> None:
    session.load(SMALL, tenants=tenants)
    planner, now_s, claimed = ClaimPlanner("plan", ("default",), ("noop",)), 100.0, 0
    with closing(psycopg.connect(session.conn.info.dsn)) as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select count(*) from fairlane.ready")
        while claimed < SMALL:
            session.claim_no += 1
            want = planner.want(500, now_s, woken=True)
            call = call_for(Turn(worker=WorkerId(WORKER), claim_no=session.claim_no, wants=(want,)))  # type: ignore[arg-type]
            rows = session.conn.execute(call.sql.replace("{schema}", "fairlane").encode(), call.params).fetchall()
            answer, took_s = call.read(rows), 0.1 if want.discover else 0.01
            claimed, now_s = claimed + len(answer.leases), now_s + took_s
            planner.learn(want, answer, took_s, now_s)
        session.conn.execute("delete from fairlane.lease")
        session.load(1, first=SMALL, tenants=tenants, due="2026-01-03")
        want = planner.want(10, now_s, woken=True)
        session.claim(**msgspec.to_builtins(want))
        given, touched = session.claim(**msgspec.to_builtins(want))
        marked = session.entries
        session.claim(10)
    assert given == 1
    assert touched <= 20 * tenants + 400
    assert marked <= 10
    assert session.entries >= SMALL
