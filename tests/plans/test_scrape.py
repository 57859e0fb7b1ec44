"""What a scrape asks for costs the same however many jobs wait and are kept: pages touched, counted by the server."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import Struct

from fairlane.client.steps import Steps
from fairlane.core.ops import ALL_TENANTS, GetStats, Op, Scope, Stats, only
from fairlane.metrics.scrape import TenantCounts, read_gauges
from fairlane.stores.postgres.store import call_for
from tests.plans.conftest import Session
from tests.plans.test_statistics_and_alerts import NOON, pages_of

SMALL, LARGE = 30_000, 60_000
"""Jobs, three quarters of them one tenant's: each of its numbers is beyond the cap."""
TENANT = "busy"

FILL = """
with line as (
  select n, case when n %% 4 > 0 then 'busy' else 'tenant-' || n %% 40 end as tenant, 'default' as queue
  from generate_series(%(first)s::integer + 1, %(first)s::integer + %(count)s::integer) n
), filed as (
  insert into fairlane.job (seq, id, type, tenant, queue, band, rank, payload, payload_version, max_attempts, enqueued_at, due_at)
  select n, gen_random_uuid(), 'noop', tenant, queue, 5, 0, '{}', 1, 5, %(at)s, %(at)s from line
), ended as (
  insert into fairlane.done (seq, status, finished_at, due_at, attempt, attempts, crashes)
  select n, case n %% 20 when 0 then 'dead' when 1 then 'cancelled' else 'completed' end, %(at)s, %(at)s, 1, 1, 0 from line
), letters as (
  insert into fairlane.dead_letter (seq, status, reason, error_class, error_type, fingerprint, died_at)
  select n, 'pending_review', 'boom', 'transient', 'Boom', 'f', %(at)s from line
), later as (
  insert into fairlane.scheduled (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped, failed)
  select n, queue, 5, tenant, 0, %(at)s, 'noop', 0, 0, 0, false, false, n %% 8 < 4 from line
), kept_back as (
  insert into fairlane.held (seq, queue, band, tenant, rank, due_at, type, deduped)
  select n, queue, 5, tenant, 0, %(at)s, 'noop', false from line
)
insert into fairlane.ready (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped)
select n, queue, 5, tenant, 0, %(at)s, 'noop', 0, 0, 0, false, false from line
"""


class Asked(Struct):
    """What a scrape asks, as it asks it."""

    ops: list[Op[Any]]

    def of(self, steps: Steps[Any], answer: Stats) -> None:
        op = next(steps)
        while isinstance(op, GetStats):
            self.ops.append(op)
            try:
                op = steps.send(answer)
            except StopIteration:
                return


def scraped(scope: Scope) -> tuple[Op[Any], ...]:
    asked, nothing = Asked([]), Stats(now=NOON, queues=(), completed=0, dead=0, cancelled=0, dead_letters={})
    asked.of(read_gauges(scope), nothing)
    if scope.tenant is not None:
        asked.of(TenantCounts().read(frozenset({scope.tenant})), nothing)
    return tuple(asked.ops)


def fill(session: Session, count: int, first: int = 0) -> None:
    """So many jobs, each in every place at once."""
    session.conn.execute(FILL, {"first": first, "count": count, "at": NOON})


@pytest.mark.requirement("I11")
@pytest.mark.parametrize("analyzed", [False, True])
@pytest.mark.parametrize("scope", [ALL_TENANTS, only(TENANT)], ids=["all", "one"])
def test_a_scrape_counts_at_the_same_cost_however_many_jobs_wait_and_are_kept(
    session: Session, scope: Scope, analyzed: bool
) -> None:
    def tidy() -> None:
        if analyzed:
            session.conn.execute("vacuum analyze")

    asked = scraped(scope)
    assert len(asked) == (1 if scope == ALL_TENANTS else 2)
    fill(session, SMALL)
    tidy()
    for op in asked:
        pages_of(session.conn, op)
    small = [pages_of(session.conn, op) for op in asked]
    fill(session, LARGE - SMALL, SMALL)
    tidy()
    large = [pages_of(session.conn, op) for op in asked]
    for few, many in zip(small, large, strict=True):
        assert 0 < many <= 1.5 * few


SPREAD = """
insert into fairlane.{table} (seq, queue, band, tenant, rank, due_at, type, attempt, attempts, crashes, suspect, deduped{failed})
select n, case when n % 3 = 0 then 'few' else 'many' end, 5, 'tenant-' || n % 2, 0, now(), 'noop', 0, 0, 0, false, false{is_failed}
from generate_series(1, 60000) n
"""


@pytest.mark.requirement("I11")
@pytest.mark.parametrize("drained", [False, True])
def test_a_number_over_the_cap_is_estimated_within_a_fifth(session: Session, drained: bool) -> None:
    session.conn.execute(SPREAD.format(table="ready", failed="", is_failed="").encode())
    session.conn.execute(SPREAD.format(table="scheduled", failed=", failed", is_failed=", n % 4 = 0").encode())
    left = 60_000
    if drained:  # from the front, as claims do: pages without rows are part of the sample
        session.conn.execute("delete from fairlane.ready where seq <= 30000")
        session.conn.execute("delete from fairlane.scheduled where seq <= 30000")
        left = 30_000
    counted = {
        queue.queue: queue for queue in stats(session, GetStats(scope=ALL_TENANTS, cap=1_000, rough=True)).queues
    }
    for name, share in (("few", 1 / 3), ("many", 2 / 3)):
        assert counted[name].ready == pytest.approx(left * share, rel=0.2)
        assert counted[name].scheduled == pytest.approx(left * share, rel=0.2)
        assert counted[name].failed == pytest.approx(left * share / 4, rel=0.2)
        assert counted[name].pending == pytest.approx(left * share * 1.75, rel=0.2)
    [few, many] = stats(session, GetStats(scope=only("tenant-1"), cap=1_000, rough=True)).queues
    assert few.ready == pytest.approx(left / 6, rel=0.2)
    assert many.ready == pytest.approx(left / 3, rel=0.2)
    assert (few.failed, many.failed) == (0, 0), "not one of its retries is among them"


def stats(session: Session, op: GetStats) -> Stats:
    call = call_for(op)
    answer: Stats = call.read(
        session.conn.execute(call.sql.replace("{schema}", "fairlane").encode(), call.params).fetchall()
    )
    return answer
