"""A line stays sorted however jobs join and leave it."""

from __future__ import annotations

from bisect import insort
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from fairlane.core.ids import Seq
from fairlane.stores.memory.facts import Row, Scheduled
from fairlane.stores.memory.lines import Line, Ready
from tests.support.making import NOON, Making

MAKING = Making()


def row(seq: int, rank: int = 0, due_s: float = 0, tenant: str = "acme") -> Row:
    spec = MAKING.job(priority=rank, priority_scope="tenant", tenant=tenant)
    due_at = NOON + timedelta(seconds=due_s)
    return Row(spec, Seq(seq), spec.type, (spec.queue, spec.band, tenant), spec.rank, "{}", NOON, due_at, due_at)


def entry(of: Row) -> Any:
    return (of.rank, of.due_at, of.seq, of)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 50)), max_size=200))
def test_a_line_is_a_sorted_list(steps: list[tuple[bool, int, int]]) -> None:
    line, plain = Line("acme"), []
    for seq, (joins, rank, number) in enumerate(steps):
        if joins or not plain:
            joining = entry(row(seq, rank, number))
            line.add(joining)
            insort(plain, joining)
        else:
            at = number % len(plain)
            leaving = plain.pop(at)
            found = line.find(leaving[:3])
            assert line.entries[found] is leaving
            following = line.remove(found)
            assert line.entries[following:] == plain[at:]
        assert line.entries[line.head :] == plain
        assert len(line) == len(plain)
        assert line.oldest_due_at() == min((due_at for _, due_at, _, _ in plain), default=None)


@pytest.mark.parametrize("claimed", [1, 100, 199])
def test_jobs_given_back_go_to_the_head_again(claimed: int) -> None:
    line = Line("acme")
    entries = [entry(row(seq, due_s=seq)) for seq in range(200)]
    for each in entries:
        line.add(each)
    for _ in range(claimed):
        line.remove(line.head)
    for each in reversed(entries[:claimed]):
        line.add(each)
    assert line.entries[line.head :] == entries


def test_a_long_line_that_is_emptied_and_filled_does_not_grow() -> None:
    line = Line("acme")
    for seq in range(20_000):
        line.add(entry(row(seq, due_s=seq)))
        if seq >= 10:
            line.remove(line.head)
    assert len(line.entries) < 1_000


def test_a_line_nobody_stands_in_is_dropped() -> None:
    ready, only = Ready(), row(1)
    ready.add(only)
    ready.drop_if_empty(only.line)
    assert ready.lines
    ready.remove(only)
    ready.drop_if_empty(only.line)
    assert (ready.lines, ready.tenants, ready.count) == ({}, {}, 0)


def test_scheduled_jobs_that_left_early_are_forgotten() -> None:
    scheduled, rows = Scheduled(), [row(seq, due_s=seq) for seq in range(1000)]
    for each in rows:
        scheduled.add(each)
    for each in rows[:-1]:
        scheduled.remove(each)
    assert scheduled.next_due_at() == rows[-1].due_at
    assert len(scheduled._heap) < 100
    assert scheduled.pop() is rows[-1]
