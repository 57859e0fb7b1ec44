"""A claim reads the rows it takes and a bounded number of others, whatever waits behind them and whoever claims beside it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing

import psycopg
import pytest

from fairlane.core.fairness.plan import ClaimPlanner
from fairlane.core.ids import WorkerId
from fairlane.core.limits import Limit, LimitKind, Rate
from fairlane.core.ops import Turn
from fairlane.stores.postgres.store import call_for
from fairlane.stores.postgres.turn import claim_limits
from tests.plans.conftest import WORKER, Session

BACKLOG = 50_000
LOOK = 1_000
UNRELATED = (Limit(kind="type", name="other", running=3), Limit(kind="queue", name="bulk", running=3))


@pytest.mark.requirement("W5")
def test_a_claim_that_comes_short_reads_no_further_than_it_may_look(session: Session) -> None:
    session.load(50, due="2026-01-01")
    session.load(BACKLOG, type="foreign", first=50)
    for _ in range(2):
        given, touched = session.claim(look=LOOK)
    assert given == 50
    assert session.rows <= 3 * LOOK
    assert touched < 4_000


@pytest.mark.requirement("W5")
@pytest.mark.parametrize("tenants", [1, 50])
def test_a_claim_under_an_unrelated_limit_planned_on_an_empty_table_reads_what_it_takes(
    session: Session, tenants: int
) -> None:
    session.conn.execute("vacuum analyze fairlane.ready")
    for _ in range(8):
        assert session.claim(limits=UNRELATED)[0] == 0
    session.load(BACKLOG, tenants=tenants)
    for _ in range(2):
        given, limited = session.claim(limits=UNRELATED)
        assert given == 100
        assert session.rows <= 500
    _, free = session.claim()
    assert limited <= 1.25 * free


WIDE = 1_000_000
GIVEN = {
    "tenants": (Limit(kind="tenant", name="*", running=WIDE, rate=Rate(WIDE, 60.0)),),
    "tenants in a queue": (Limit(kind="tenant", name="*", queue="default", running=WIDE),),
    "queue": (Limit(kind="queue", name="default", running=WIDE, rate=Rate(WIDE, 60.0)),),
    "task": (Limit(kind="type", name="noop", running=WIDE, rate=Rate(WIDE, 60.0)),),
    "name": (Limit(kind="named", name="api", types=("noop", "other"), running=WIDE),),
}


@pytest.mark.requirement("I2", "W5")
@pytest.mark.parametrize("tenants", [1, 50])
@pytest.mark.parametrize("what", GIVEN)
def test_a_claim_under_a_limit_of_its_own_planned_on_an_empty_table_reads_what_it_takes(
    session: Session, what: str, tenants: int
) -> None:
    session.conn.execute("vacuum analyze fairlane.ready")
    for _ in range(8):
        assert session.claim(limits=GIVEN[what])[0] == 0
    session.load(BACKLOG // 5, tenants=tenants)
    for _ in range(2):
        given, _ = session.claim(limits=GIVEN[what])
        assert given == 100
        assert session.rows <= 500


@pytest.mark.requirement("W5", "W14")
def test_a_claim_passes_what_other_sessions_are_taking_without_losing_its_turn(session: Session) -> None:
    session.load(BACKLOG)
    want = json.dumps([{"lane": "plan", "queues": ["default"], "limit": 500}])
    with ExitStack() as others:
        for n in range(8):
            other = others.enter_context(psycopg.connect(session.conn.info.dsn))
            claim = "select from fairlane.turn_v2(%s, %s, null, null, null, null, null, null, null, %s)"
            other.execute(claim, (WORKER, 1000 + n, want))
        given, _ = session.claim(look=LOOK)
        assert given == 100
        assert session.rows <= 8 * 500 + 500


@pytest.mark.requirement("W5")
def test_what_a_session_was_taking_when_it_was_rolled_back_is_first_in_line_again(session: Session) -> None:
    session.load(1_000)
    session.claim(500)
    with session.conn.transaction(force_rollback=True):
        want = json.dumps([{"lane": "plan", "queues": ["default"], "limit": 3}])
        rows = session.conn.execute(
            "select seq from fairlane.turn_v2(%s, 1000, null, null, null, null, null, null, null, %s)", (WORKER, want)
        ).fetchall()
    assert [seq for (seq,) in rows[1:]] == [1, 2, 3]


class Planned:
    """A worker that knows one type of job, and plans its claims."""

    def __init__(self, session: Session, limits: tuple[Limit, ...] = ()) -> None:
        self._session, self._limits = session, limits
        self.planner, self.now_s = ClaimPlanner("general", ("default",), ("noop",)), 100.0
        self.turns = self.rows = 0
        self.found_in: list[int] = []
        """The turn that claimed each job."""

    def wake(self) -> None:
        """Claim until there is nothing more to search for."""
        woken = True
        while woken or self.planner.is_searching:
            want, woken, self.turns = self.planner.want(10, self.now_s, woken=woken), False, self.turns + 1
            turn = Turn(worker=WorkerId(WORKER), claim_no=self.turns, wants=(want,), limits=self._limits)  # type: ignore[arg-type]
            call, conn = call_for(turn), self._session.conn
            with conn.transaction():
                before = self._session.rows_read()
                answer = call.read(
                    conn.execute(call.sql.replace("{schema}", "fairlane").encode(), call.params).fetchall()
                )
                self.rows += self._session.rows_read() - before
            self.found_in += [self.turns for _ in answer.leases]
            self.now_s += 0.005
            self.planner.learn(want, answer, 0.005, self.now_s)


LIMITED = pytest.mark.parametrize(
    "limits", [(), (Limit(kind="tenant", name="*", running=300),)], ids=["no limits", "limits"]
)


@pytest.mark.requirement("L15")
@LIMITED
def test_an_idle_worker_behind_unknown_jobs_reads_them_again_twice_a_minute_at_most(
    session: Session, limits: tuple[Limit, ...]
) -> None:
    session.load(10_000, type="foreign")
    worker = Planned(session, limits)
    while worker.now_s < 400.0:
        worker.wake()
        worker.now_s += 5.0
    assert worker.turns <= 120
    assert 10_000 < worker.rows <= 600_000


@pytest.mark.requirement("L15")
@LIMITED
def test_a_job_behind_100_000_unknown_ones_is_found_by_ten_claims_and_the_next_by_one(
    session: Session, limits: tuple[Limit, ...]
) -> None:
    session.load(100_000, type="foreign")
    session.load(1, first=100_000, due="2026-01-03")
    worker = Planned(session, limits)
    worker.wake()
    assert max(worker.found_in) <= 10
    assert worker.rows <= 3 * 100_000
    session.load(1, first=100_001, due="2026-01-04")
    turns, rows = worker.turns, worker.rows
    worker.now_s += 1.0
    worker.wake()
    assert worker.found_in[1:] == [turns + 1]
    assert worker.rows - rows <= 10 * LOOK


class Beside:
    """Claims of several sessions under one limit, none of them committed before the others have claimed."""

    def __init__(self, session: Session, limit: Limit) -> None:
        self._limits, self._number = claim_limits((limit,)), 0
        dsn = session.conn.info.dsn
        self._conns = [psycopg.connect(dsn, options="-c statement_timeout=10s") for _ in range(6)]
        for n, conn in enumerate(self._conns):
            renew = {"worker": self._worker(n), "lease_s": 36000, "name": "", "queues": [], "types": [], "figures": {}}
            conn.execute("select fairlane.renew_v1(%s)", (json.dumps(renew),))
            conn.commit()

    def _worker(self, n: int) -> str:
        return f"00000000-0000-7000-8000-{n + 100:012}"

    def claim(self, count: int, sessions: int) -> list[int]:
        """How many jobs each session gets."""
        self._number += 1
        want = json.dumps([{"lane": "plan", "queues": ["default"], "limit": count, "types": ["noop"]}])
        turn = "select seq from fairlane.turn_v2(%s, %s, null, null, null, null, null, null, null, %s, limits => %s)"
        given = [
            len(conn.execute(turn, (self._worker(n), self._number, want, self._limits)).fetchall()) - 1
            for n, conn in enumerate(self._conns[:sessions])
        ]
        for conn in self._conns:
            conn.commit()
        return given

    def close(self) -> None:
        for conn in self._conns:
            conn.close()


@pytest.mark.requirement("I2", "W5")
@pytest.mark.parametrize("kind", ["tenant", "queue", "type"])
@pytest.mark.parametrize("by", ["running", "rate"])
def test_sessions_claim_side_by_side_under_a_wide_limit_and_never_more_than_it_allows(
    session: Session, kind: LimitKind, by: str
) -> None:
    session.load(2_000)
    name = {"tenant": "*", "queue": "default", "type": "noop"}[kind]
    said = {"running": 640} if by == "running" else {"rate": Rate(640, 3600.0)}
    with closing(Beside(session, Limit(kind=kind, name=name, **said))) as beside:  # type: ignore[arg-type]
        assert beside.claim(20, 1) == [20]
        assert beside.claim(20, 3) == [20, 20, 20]
        assert beside.claim(21, 2) == [21, 0], "more than a 32nd of it needs the limit alone"
        given = 101
        while given < 640:
            batch = beside.claim(20, 6 if given <= 320 else 2)
            # With less than half of it free they claim one at a time.
            assert batch == ([20] * 6 if given <= 320 else [min(20, 640 - given), 0])
            given += sum(batch)
        assert beside.claim(1, 1) == [0]


OTHER = "00000000-0000-7000-8000-00000000000e"
NARROW = {
    "queue": Limit(kind="queue", name="default", running=3),
    "task": Limit(kind="type", name="noop", running=3),
    "tenant": Limit(kind="tenant", name="*", running=3),
}
TURN = "select seq from fairlane.turn_v2(%s, %s, %s, %s, %s, null, null, null, null, %s, limits => %s)"


@pytest.mark.requirement("I2", "W5")
@pytest.mark.parametrize("what", NARROW)
def test_a_turn_that_frees_a_place_waits_for_whoever_counts_under_its_limit_and_others_do_not(
    session: Session, what: str
) -> None:
    session.load(10)
    limits = claim_limits((NARROW[what],))
    want = json.dumps([{"lane": "plan", "queues": ["default"], "limit": 1, "types": ["noop"]}])
    dsn = session.conn.info.dsn
    with closing(psycopg.connect(dsn)) as other, closing(psycopg.connect(dsn, autocommit=True)) as conn:
        *_, (mine,) = conn.execute(TURN, (WORKER, 1, None, None, None, want, limits)).fetchall()
        assert len(other.execute(TURN, (WORKER, 2, None, None, None, want, limits)).fetchall()) == 2
        assert len(conn.execute(TURN, (WORKER, 3, None, None, None, want, limits)).fetchall()) == 1
        if what == "tenant":
            settling = (WORKER, 4, [mine], [1], [0.01], want, limits)
            assert len(conn.execute(TURN, settling).fetchall()) == 1, "it waits no longer than it may"
        session.conn.execute("alter function fairlane.await_limit(bigint) set lock_timeout = '60s'")
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lambda: conn.execute(TURN, (WORKER, 5, [0], [1], [0.01], want, limits)).fetchall())
            while not waits_for_a_limit(session):
                assert not waiting.done()
            other.commit()
            assert len(waiting.result()) == 2


@pytest.mark.requirement("I2", "W5")
@pytest.mark.parametrize("what", ["queue", "task"])
def test_a_turn_takes_the_place_that_it_has_freed_though_another_counts_under_the_limit(
    session: Session, what: str
) -> None:
    session.load(10)
    session.conn.execute(
        "insert into fairlane.worker (id, name, registered_at, renewed_at, expires_at, queues, types) "
        "select %s, name, registered_at, renewed_at, expires_at, queues, types from fairlane.worker",
        (OTHER,),
    )
    limits = claim_limits((NARROW[what],))
    want, more = (
        json.dumps([{"lane": "plan", "queues": ["default"], "limit": limit, "types": ["noop"]}]) for limit in (1, 3)
    )
    dsn = session.conn.info.dsn
    with closing(psycopg.connect(dsn)) as other, closing(psycopg.connect(dsn, autocommit=True)) as conn:
        *_, (mine,) = conn.execute(TURN, (WORKER, 1, None, None, None, want, limits)).fetchall()
        assert len(other.execute(TURN, (OTHER, 1, None, None, None, want, limits)).fetchall()) == 2
        for claim_no, wanted in ((2, want), (3, more)):
            _, (mine,) = conn.execute(TURN, (WORKER, claim_no, [mine], [1], [0.01], wanted, limits)).fetchall()
        other.commit()
        ending = (WORKER, 4, [mine], [1], [0.01], more, limits)
        assert len(conn.execute(TURN, ending).fetchall()) == 3, "two places are free where nobody counts beside it"


def waits_for_a_limit(session: Session) -> bool:
    row = session.conn.execute(
        "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
    ).fetchone()
    return row is not None and bool(row[0])
