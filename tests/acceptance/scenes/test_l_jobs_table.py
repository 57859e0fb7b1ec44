"""Document L: its jobs table read in SQL while a worker runs the jobs, and its timeouts around calls of other systems."""

from __future__ import annotations

import asyncio
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row

from fairlane import Fairlane, Retry, current_job, timeout
from tests.faults.eventually import eventually
from tests.support.stores import Ground

COLUMNS = (
    "id, type, payload, status, priority, attempts, max_attempts, scheduled_at, run_at, started_at, completed_at, error_message, "
    "last_error, last_error_at, correlation_id, parent_job_id, created_by, dedup_key, created_at, updated_at"
)
ACTION = "550e8400-e29b-41d4-a716-446655440000"


@pytest.fixture
def app(ground: Ground) -> Iterator[Fairlane]:
    with Fairlane(ground.address("postgres"), profile="production") as app:
        yield app


@pytest.mark.requirement("L1", "L20", "D16")
def test_each_column_of_the_table_follows_a_job_through_every_status(app: Fairlane) -> None:
    may_end, tries = threading.Event(), []

    @app.task(name="email")
    def email(to: str) -> None: ...

    @app.task(name="analysis", retry=Retry(max_attempts=3, delays=(1.0,)))
    def analysis(lipas_id: int) -> None:
        tries.append(lipas_id)
        if len(tries) == 1:
            raise ConnectionError("the search engine is down")
        email.enqueue("user@example.com")
        may_end.wait(60)
        if lipas_id < 0:
            raise ValueError("no such site")

    options: dict[str, Any] = {"correlation_id": ACTION, "created_by": "admin@lipas.fi", "priority": 50}
    first = analysis.using(**options, dedup_key="analysis-12345").enqueue(12345)
    last = analysis.using(**options, delay=timedelta(seconds=2), max_attempts=1).enqueue(-1)
    with psycopg.connect(app.runtime.settings.url, autocommit=True, row_factory=dict_row) as sql:

        def row(handle: Any) -> dict[str, Any]:
            where = "WHERE id = (SELECT seq FROM fairlane.job WHERE id = %s)"
            [found] = sql.execute(f"SELECT {COLUMNS} FROM fairlane.jobs {where}".encode(), (handle.id,)).fetchall()
            return found

        new, later = row(first), row(last)
        assert (new["status"], new["attempts"], new["started_at"], new["completed_at"]) == ("pending", 0, None, None)
        assert (new["type"], new["payload"], new["priority"], new["max_attempts"]) == (
            "analysis", {"lipas_id": 12345}, 50, 3
        )  # fmt: skip
        assert (str(new["correlation_id"]), new["created_by"], new["dedup_key"]) == (
            ACTION, "admin@lipas.fi", "analysis-12345"
        )  # fmt: skip
        assert new["created_at"] == new["run_at"] == new["scheduled_at"]
        assert later["run_at"] - later["created_at"] == timedelta(seconds=2)
        assert later["dedup_key"] is None
        with app.running():
            failed = eventually(lambda: row(first)["status"] == "failed" and row(first))
            assert (failed["attempts"], failed["error_message"]) == (1, None)
            assert failed["last_error"] == "the search engine is down"
            assert failed["run_at"] > failed["last_error_at"] >= failed["scheduled_at"]
            running = eventually(lambda: row(first)["status"] == "processing" and row(first))
            assert running["started_at"] > failed["last_error_at"]
            eventually(lambda: row(last)["status"] == "processing")
            may_end.set()
            ended = eventually(lambda: row(first)["status"] == "completed" and row(first))
            assert ended["completed_at"] > ended["started_at"]
            dead = eventually(lambda: row(last)["status"] == "dead" and row(last))
            assert (dead["error_message"], dead["last_error"], dead["attempts"]) == ("no such site", "no such site", 1)
        children = sql.execute(
            "SELECT parent_job_id, correlation_id FROM fairlane.jobs WHERE type = 'email' ORDER BY id"
        ).fetchall()
        assert {child["parent_job_id"] for child in children} == {new["id"], later["id"]}
        assert {str(child["correlation_id"]) for child in children} == {ACTION}


@pytest.mark.requirement("L9", "D7")
def test_a_call_of_another_system_that_hangs_is_left_at_its_limit_and_the_job_tried_again(app: Fairlane) -> None:
    """In a coroutine at the limit; in a plain function when the call itself ends, as the guide says."""
    silent = socket.create_server(("127.0.0.1", 0))
    address = silent.getsockname()
    ran: list[str] = []

    @app.task(name="elevation", retry=Retry(max_attempts=2, delays=(0.1,)))
    async def elevation() -> None:
        ran.append("elevation")
        async with timeout(0.2):
            reader, writer = await asyncio.open_connection(*address)
            with closing(writer):
                await reader.read(1)

    @app.task(name="analysis", retry=Retry(max_attempts=1))
    def analysis() -> None:
        with timeout(0.2), socket.create_connection(address) as peer:
            # It ends without an error of its own: behind one, the limit would interrupt the closing of the socket.
            select.select([peer], [], [], 1.0)

    waits, blocks = elevation.enqueue(), analysis.enqueue()
    with silent, app.running():
        eventually(lambda: waits.status() == blocks.status() == "dead", 30)
    assert ran == ["elevation"] * 2
    for handle, least_s, most_s in ((waits, 0.15, 1.0), (blocks, 0.9, 5.0)):
        attempt = app.jobs.detail(handle.id).attempts[-1]
        assert (attempt.error_type, attempt.error_class) == ("TimeoutError", "transient")
        assert attempt.error_message == "the block took longer than its 0.2 s"
        assert attempt.started_at is not None
        assert attempt.ended_at is not None
        assert least_s <= (attempt.ended_at - attempt.started_at).total_seconds() < most_s


@pytest.mark.requirement("L9", "D8")
def test_fast_types_have_two_minutes_and_slow_ones_twenty(app: Fairlane) -> None:
    given: dict[str, int] = {}

    def note(name: str) -> None:
        given[name] = round((current_job().deadline_at - datetime.now(UTC)).total_seconds() / 60)

    app.task(name="email", fast=True)(lambda: note("email")).enqueue()
    analysis = app.task(name="analysis")(note)
    analysis.enqueue("analysis")
    analysis.using(timeout=600).enqueue("ten minutes")
    with app.running(drain=True):
        pass
    assert given == {"email": 2, "analysis": 20, "ten minutes": 10}
