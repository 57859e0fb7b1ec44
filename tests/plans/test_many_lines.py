"""Marks of very many lines are put together without comparing each with all others."""

from __future__ import annotations

from tests.plans.conftest import Session

MARKS = "array(select ('default', 5::smallint, 'tenant-' || n, 0::smallint, now(), n, 1)::line_mark from generate_series({}, {}) n)"
OLD, NEW = MARKS.format(1, 10_000), MARKS.format(9_001, 19_000)
AS_IN_A_TURN = (
    "set search_path = fairlane; set enable_hashjoin = off; set enable_mergejoin = off; set statement_timeout = '3s'"
)


def test_marks_of_ten_thousand_lines_are_found_and_merged_at_once(session: Session) -> None:
    session.conn.execute(AS_IN_A_TURN)
    merged = session.conn.execute(f"select cardinality(merge_marks({OLD}, {NEW}))".encode()).fetchone()
    assert merged == (19_000,)
    tenants = "array(select 'tenant-' || n from generate_series(1, 10000) n)"
    found = session.conn.execute(
        f"select count(*) filter (where looked > 0) from unnest(lines_at('default', 5::smallint, {tenants}, {NEW}))".encode()
    ).fetchone()
    assert found == (1_000,)


def test_one_free_slot_passes_a_crowd_of_tenants_whose_jobs_it_does_not_know(session: Session) -> None:
    session.load(6_000, tenants=6_000, type="new")
    session.conn.execute("update fairlane.ready set type = 'noop' where tenant = 'tenant-05999'")
    session.conn.execute("set statement_timeout = '3s'")
    assert session.claim(limit=1)[0] == 1
