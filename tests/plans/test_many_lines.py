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
