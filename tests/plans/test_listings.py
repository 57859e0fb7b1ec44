"""A listing by what no job has is answered without reading all of them."""

from __future__ import annotations

import pytest

from fairlane.core.ops import ALL_TENANTS, JobFilter, PageJobs
from tests.plans.conftest import Session
from tests.plans.test_statistics_and_alerts import pages_of

JOBS = 60_000
FILE = """
insert into fairlane.job (id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, category, created_by, enqueued_at, due_at)
select gen_random_uuid(), 'task.' || n %% 20, 'tenant-' || n %% 50, 'queue' || n %% 5, 5, 0, '{"user_id": 7}', 1, 5, 'mail', 'shop', now(), now()
from generate_series(1, %s) n
"""


@pytest.mark.parametrize("by", ["queue", "type", "category", "created_by"])
def test_a_listing_by_what_no_job_has_reads_a_small_part_of_them(session: Session, by: str) -> None:
    session.conn.execute(FILE, (JOBS,))
    session.conn.execute("vacuum analyze fairlane.job")
    row = session.conn.execute("select relpages from pg_class where oid = 'fairlane.job'::regclass").fetchone()
    assert row is not None
    ask = PageJobs(scope=ALL_TENANTS, where=JobFilter(**{by: "nothing"}))
    pages_of(session.conn, ask)
    assert pages_of(session.conn, ask) < row[0] / 5


INSIDE = {"complete", "looked_through", "merge_marks", "resume_lines", "token_wants"}
"""Called by functions that have switched the compiler off."""


def test_what_forbids_a_way_to_read_also_forbids_to_compile(session: Session) -> None:
    """Before PostgreSQL 18 that adds 10 billion to the cost of a plan, which is then compiled: 280 ms for a page of rows."""
    forbidding = session.conn.execute(
        "select p.proname, 'jit=off' = any(p.proconfig) from pg_proc p join pg_namespace n on n.oid = p.pronamespace "
        "where n.nspname = 'fairlane' and p.proconfig::text ~ 'enable_[a-z]+=off'"
    ).fetchall()
    assert len(forbidding) > 10
    assert {name for name, is_off in forbidding if not is_off} == INSIDE
