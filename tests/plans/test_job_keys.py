"""Letting jobs in at their keys reads what the keys allow, never what waits there or beside: pages, counted by the server."""

from __future__ import annotations

import pytest

from tests.plans.conftest import Session

CROWD = 20_000
HELD = """
with filed as (
  insert into fairlane.job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at, key, key_terms)
  select %(first)s + n, gen_random_uuid(), 'noop', 'acme', 'default', 5, 0, '{}', 1, 5, '2026-01-02', '2026-01-02', %(key)s, %(terms)s
  from generate_series(1, %(count)s) n)
insert into fairlane.held (seq, queue, band, tenant, rank, due_at, type, deduped, key, key_nth)
select %(first)s + n, 'default', 5, 'acme', 0, '2026-01-02', 'noop', false, %(key)s,
       case when %(terms)s::json->>'ordered' = 'true' then n end
from generate_series(1, %(count)s) n
"""
BESIDE = """
insert into fairlane.scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, failed, key, key_nth)
select 7000000 + n, 'default', 5, 'acme', 0, '2126-01-02', 'noop', 1, 1, 0, false, false, true, 'other:' || n, n from generate_series(1, 20000) n;
insert into fairlane.dead_letter (seq, reason, error_class, error_type, fingerprint, died_at, tenant, key)
select 8000000 + n, 'no', 'transient', 'E', 'f', now(), 'acme', case when n %% 2 = 0 then 'other:' || n end from generate_series(1, 20000) n;
insert into fairlane.lease (seq, worker, claim_no, nth, lane, leased_at, deadline_at, queue, band, tenant, rank, due_at, type, attempt, attempts,
                            crashes, suspect, deduped, key, placed)
select 9000000 + n, gen_random_uuid(), 1, 1, 'other', now(), now() + interval '1 hour', 'default', 5, 'acme', 0, now(), 'noop', 1, 0, 0, false,
       false, 'other:' || n, true from generate_series(1, 20000) n;
"""


def knock(session: Session, key: str) -> None:
    session.conn.execute("insert into fairlane.knock (at, tenant, key) values ('-infinity', 'acme', %s)", (key,))


@pytest.mark.requirement("D24")
@pytest.mark.parametrize("terms", ['{"value": "customer:1"}', '{"value": "customer:1", "ordered": true}'])
def test_a_place_at_a_key_costs_the_same_however_many_wait_there_and_beside(session: Session, terms: str) -> None:
    said = {"key": "customer:1", "terms": terms}
    session.conn.execute(HELD, {"first": 0, "count": 3, **said})
    knock(session, "customer:1")
    given, alone = session.claim()  # the plans are made now, on tables that are all but empty
    assert given == 1
    given, alone = session.claim()
    session.load(CROWD, first=100_000, due="2026-01-03")
    session.conn.execute(HELD, {"first": 1_000_000, "count": CROWD, **said})
    session.conn.execute(BESIDE.encode().replace(b"%%", b"%"))
    given, touched = session.claim(1)
    assert given == 1
    assert touched <= 3 * alone + 100


@pytest.mark.requirement("D24")
def test_a_turn_pays_for_no_key_that_nobody_has_knocked_at(session: Session) -> None:
    session.load(100)
    session.claim()
    given, alone = session.claim()
    session.conn.execute(HELD, {"first": 1_000_000, "count": CROWD, "key": "customer:1", "terms": "{}"})
    again, touched = session.claim()
    assert (given, again) == (100, 100)
    assert touched <= alone + 10
