"""Marks of very many lines are put together without comparing each with all others."""

from __future__ import annotations

from tests.plans.conftest import Session

LINES = """array(
  select ('default', 5::smallint, 'tenant-' || n, 0::smallint, now(), n, {looked}, null, null, null, true, false)::claim_line
  from generate_series({first}, {last}) n)"""
OLD, NEW = LINES.format(looked=1, first=1, last=10_000), LINES.format(looked=1, first=9_001, last=19_000)
AS_IN_A_TURN = (
    "set search_path = fairlane; set enable_hashjoin = off; set enable_mergejoin = off; set statement_timeout = '3s'"
)


def test_marks_of_ten_thousand_lines_are_found_and_merged_at_once(session: Session) -> None:
    session.conn.execute(AS_IN_A_TURN)
    merged = session.conn.execute(f"select cardinality(merge_marks({OLD}, {NEW}))".encode()).fetchone()
    assert merged == (19_000,)
    lines = LINES.format(looked=0, first=1, last=10_000)
    found = session.conn.execute(
        f"select count(*) filter (where looked > 0) from unnest(resume_lines({lines}, {NEW}))".encode()
    ).fetchone()
    assert found == (1_000,)


def test_one_free_slot_passes_a_crowd_of_tenants_whose_jobs_it_does_not_know(session: Session) -> None:
    session.load(6_000, tenants=6_000, type="new")
    session.conn.execute("update fairlane.ready set type = 'noop' where tenant = 'tenant-05999'")
    session.conn.execute("set statement_timeout = '3s'")
    assert session.claim(limit=1)[0] == 1
