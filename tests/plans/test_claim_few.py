"""The short way of a claim gives what the long one gives, in the same order, and reads no more than it may."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from psycopg.rows import dict_row

from tests.plans.conftest import WORKER, Session

QUEUES, TYPES = ("critical", "default", "bulk"), ("noop", "other", "foreign")
ROWS = st.lists(
    st.tuples(
        st.sampled_from(QUEUES),
        st.integers(0, 2),
        st.sampled_from(["a", "b", "c", "é"]),
        st.integers(0, 1),
        st.sampled_from(TYPES[:2]) | st.sampled_from(TYPES),
        st.booleans(),
    ),
    max_size=8,
)
WANTS = st.lists(
    st.fixed_dictionaries(
        {
            "lane": st.sampled_from(["general", "fast"]),
            "queues": st.lists(st.sampled_from(QUEUES), min_size=1, unique=True),
            "limit": st.just(1) | st.integers(0, 10),
            "start": st.integers(0, 4),
            "types": st.sampled_from([TYPES[:2], TYPES]),
            "cursor": st.sampled_from(["", "a", "bb", "z"]),
            "survey": st.sampled_from([0, 2, 1000]),
            "look": st.sampled_from([1, 3, 1000]),
        },
        optional={"leaves": st.just(["other"]), "timeout_s": st.just(7), "start_by_s": st.just(9)},
    ),
    min_size=1,
    max_size=2,
    unique_by=lambda want: want["lane"],
)
RUNNING = st.lists(st.tuples(st.sampled_from(TYPES), st.sampled_from(QUEUES), st.booleans()), max_size=3)
"""Jobs of this worker, and whether the Turn ends them."""
LOAD_LEASE = """
insert into fairlane.lease (seq, worker, claim_no, nth, lane, leased_at, deadline_at, queue, band, tenant, rank, due_at, type, attempt, attempts,
                            crashes, suspect, deduped, counted)
values (%s, %s, 1, 1, 'general', '2026-01-01', '2026-03-01', %s, 0, 'a', 0, '2026-01-01', %s, 1, 0, 0, false, false, 3)
"""
LOAD_ROW = """
with filed as (
  insert into fairlane.job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at)
  values (%(seq)s, gen_random_uuid(), %(type)s, %(tenant)s, %(queue)s, %(band)s, %(rank)s, '{}', 1, 5, '2026-01-01', '2026-01-01'))
insert into fairlane.ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, put_off)
values (%(seq)s, %(queue)s, %(band)s, %(tenant)s, %(rank)s, '2026-01-01', %(type)s, 0, 0, 0, false, false, %(put_off)s)
"""
LONG_WAY = "insert into fairlane.pause (kind, name, by, at) values ('queue', 'of nobody', 'test', now())"
"""Something is paused: what concerns nobody here, but claims by the long way."""


def load(cursor: Any, rows: list[Any]) -> None:
    names = ("queue", "band", "tenant", "rank", "type", "put_off")
    for seq, row in enumerate(rows, 1):
        cursor.execute(LOAD_ROW, {"seq": seq, **dict(zip(names, row, strict=True))})


def claimed(
    session: Session, rows: list[Any], running: list[Any], wants: list[Any], limits: str | None, *, long: bool
) -> Any:
    """What a Turn gives on these rows, all of which is undone."""
    ended = [900 + place for place, (*_, is_ended) in enumerate(running) if is_ended]
    with session.conn.transaction(force_rollback=True), session.conn.cursor(row_factory=dict_row) as cursor:
        if long:
            cursor.execute(LONG_WAY)
        load(cursor, rows)
        for place, (name, queue, _) in enumerate(running):
            cursor.execute(LOAD_LEASE, (900 + place, WORKER, queue, name))
        turn = cursor.execute(
            "select * from fairlane.turn_v2(%s, 7, %s, %s, %s, null, null, null, null, %s, _at => '2026-01-02', limits => %s)",
            (WORKER, ended or None, [1] * len(ended), [0.1] * len(ended), json.dumps(wants), limits),
        ).fetchall()
        answer = json.loads(turn[0].pop("answer"))
        answer.pop("held_back")  # a hint, which the long way gives also where nothing was passed over
        answer.pop("limited_until")
        for row in turn:
            row.pop("id")
        left = cursor.execute("select seq from fairlane.ready order by seq").fetchall()
        leases = cursor.execute("select * from fairlane.lease order by seq").fetchall()
        made = cursor.execute("select worker, claim_no from fairlane.claim_made").fetchall()
    return answer, turn, left, leases, made


LIMITS = {
    "none": None,
    "unrelated": json.dumps([{"kind": "type", "name": "unknown", "queue": "", "running": 3, "types": []}]),
    "of a type": json.dumps([{"kind": "type", "name": "other", "queue": "", "running": 2, "types": []}]),
    "of a queue": json.dumps([{"kind": "queue", "name": "bulk", "queue": "", "running": 2, "types": []}]),
    "named": json.dumps([{"kind": "named", "name": "api", "queue": "", "running": 1, "types": ["noop"]}]),
    "of tenants": json.dumps([{"kind": "tenant", "name": "*", "queue": "", "running": 1, "types": []}]),
}


@pytest.mark.requirement("W5")
@pytest.mark.parametrize("limits", LIMITS)
def test_both_ways_give_the_same_jobs_in_the_same_order(session: Session, limits: str) -> None:
    session.conn.execute("update fairlane.worker set expires_at = '2026-02-01'")
    session.conn.execute("set synchronous_commit = off")

    @settings(max_examples=60)
    @given(ROWS, RUNNING, WANTS)
    def compare(rows: list[Any], running: list[Any], wants: list[Any]) -> None:
        few = claimed(session, rows, running, wants, LIMITS[limits], long=False)
        assert few == claimed(session, rows, running, wants, LIMITS[limits], long=True)

    compare()
    session.conn.execute("delete from fairlane.counted")


@pytest.mark.requirement("W5")
def test_a_claim_reads_little_before_it_knows_that_more_is_ready_than_it_wants(session: Session) -> None:
    for _ in range(8):
        assert session.claim(10, survey=1000)[0] == 0  # planned on an empty table
    session.load(1)
    for _ in range(2):  # its plans are made by the first
        given_one, touched_one = session.claim(10, survey=1000)
    assert given_one == 1
    assert session.rows <= 4
    assert touched_one < 60
    session.load(50_000, first=1)
    for _ in range(2):
        given_ten, touched = session.claim(10, survey=1000)
    assert given_ten == 10
    assert session.rows <= 100
    assert touched < 250
    for _ in range(2):
        given_one_of_many, touched_one = session.claim(1, survey=1000)
    assert given_one_of_many == 1
    assert session.rows <= 12
    assert touched_one < 100


@pytest.mark.requirement("W5")
def test_a_lane_served_the_short_way_does_not_lift_the_limits_of_the_lanes_behind_it(session: Session) -> None:
    session.conn.execute("update fairlane.worker set expires_at = '2026-02-01'")
    limits = json.dumps([{"kind": "type", "name": "other", "queue": "", "running": 2, "types": []}])
    kinds = ("critical", "other"), ("critical", "other"), ("critical", "other"), ("default", "noop"), ("bulk", "other")
    rows = [(queue, 0, "a", 0, kind, False) for queue, kind in kinds]
    wants = [{"lane": queue, "queues": [queue], "limit": 10, "start": 10} for queue in QUEUES]
    _, _, left, leases, _ = claimed(session, rows, [], wants, limits, long=False)
    session.conn.execute("delete from fairlane.counted")
    assert [row["seq"] for row in leases] == [1, 2, 4]
    assert [row["seq"] for row in left] == [3, 5]


@pytest.mark.requirement("W5")
def test_a_lane_served_the_short_way_does_not_hide_when_the_rate_of_another_has_room_again(session: Session) -> None:
    session.conn.execute("update fairlane.worker set expires_at = '2026-02-01'")
    rate = {"kind": "type", "name": "other", "queue": "", "rate": {"count": 1, "period_s": 60}, "types": []}
    slots = {"kind": "type", "name": "unknown", "queue": "", "running": 3, "types": []}
    rows = [("critical", 0, "a", 0, "other", False), ("default", 0, "a", 0, "noop", False)]
    wants = [{"lane": queue, "queues": [queue], "limit": 10, "start": 10} for queue in QUEUES[:2]]
    with session.conn.transaction(force_rollback=True):
        session.conn.execute("insert into fairlane.rate_use values ('type', 'other', '', '2026-01-01 23:59:30Z', 1)")
        load(session.conn, rows)
        found = session.conn.execute(
            "select answer from fairlane.turn_v2(%s, 7, null, null, null, null, null, null, null, %s, _at => '2026-01-02Z', limits => %s)",
            (WORKER, json.dumps(wants), json.dumps([rate, slots])),
        ).fetchone()
    assert found is not None
    assert json.loads(found[0])["limited_until"] == "2026-01-02T00:00:30+00:00"
