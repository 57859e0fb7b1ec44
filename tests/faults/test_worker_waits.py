"""A worker that is started while its store is away waits, says so, and begins when the store answers."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from fairlane import Fairlane
from fairlane.cli.commands.healthcheck import check_probe
from fairlane.cli.output import Failed
from fairlane.core.ops import Enqueue
from fairlane.errors import StoreUnavailable
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.samples import Making
from tests.faults.eventually import eventually
from tests.faults.places import Place
from tests.servers.ports import free_port
from tests.servers.postgres import PostgresServer
from tests.servers.valkey import ValkeyServer
from tests.worker.foreman.crew import Crew, ForemanProcess

pytestmark = pytest.mark.requirement("D26")

QUICK_ALERT = '{"rules": {"store_unreachable": {"for_s": 0.5}}}'
ALERT = "[critical] store_unreachable: the store could not be reached"


@pytest.fixture(params=["postgres", "redis"])
def away(request: pytest.FixtureRequest) -> Iterator[tuple[PostgresServer | ValkeyServer, str]]:
    """A server that is not running, and the address of a store there."""
    if request.param == "redis":
        with ValkeyServer() as server:
            server.stop()
            yield server, server.url
        return
    place: Place = request.getfixturevalue("own_place")
    place.server.stop()
    yield place.server, place.dsn
    place.server.start()


def unready(foreman: ForemanProcess) -> str:
    """What the probe says; nothing when it is ready."""
    port = eventually(lambda: re.search(r"probes answer on http://127\.0\.0\.1:(\d+)/", foreman.log()))[1]
    try:
        check_probe("127.0.0.1", int(port), "/readyz")
    except Failed as error:
        return error.message
    return ""


@pytest.mark.requirement("I12", "Q17", "L17")
def test_a_worker_waits_for_its_server_at_the_start_and_later(
    away: tuple[PostgresServer | ValkeyServer, str], tmp_path: Path
) -> None:
    server, url = away
    with closing(Crew(url, tmp_path)) as crew:
        foreman = crew.start("-p", "1", "-s", "2", "--probe-port", "0", FAIRLANE_ALERTS=QUICK_ALERT)
        crew.eventually(lambda: unready(foreman).endswith("worker 1: waits for the store"))  # where it is, the log says
        crew.eventually(lambda: foreman.log().count(ALERT) == 1)
        workers = foreman.workers()
        assert foreman.log().count("it is tried until it does") == 1
        server.start()
        crew.eventually(lambda: unready(foreman) == "", 40)
        assert crew.task("work").enqueue(0.0).result(timeout=40) is not None
        server.kill9()
        crew.eventually(lambda: foreman.log().count(ALERT) == 2, 40)
        server.start()
        assert crew.task("work").enqueue(0.0).result(timeout=40) is not None
        assert foreman.workers() == workers
        eventually(lambda: [alert.state for alert in crew.app.alerts.list().alerts] == ["resolved"], 40)
        assert foreman.stop() == 0


@pytest.fixture
def nowhere(tmp_path: Path) -> Iterator[Crew]:
    with closing(Crew(f"postgresql://nobody@127.0.0.1:{free_port()}/none", tmp_path)) as crew:
        yield crew


def test_a_worker_that_waits_can_be_stopped(nowhere: Crew) -> None:
    foreman = nowhere.start("-p", "2")
    nowhere.eventually(lambda: foreman.log().count("it is tried until it does") == 2)
    foreman.signal(signal.SIGTERM)
    assert foreman.wait(20) == 0


@pytest.mark.parametrize("wait", ["false", "0.5"])
def test_a_setting_ends_the_wait(nowhere: Crew, wait: str) -> None:
    foreman = nowhere.start("-p", "2", FAIRLANE_WAIT_FOR_STORE=wait)
    assert foreman.wait() == 69
    *_, last = foreman.log().splitlines()
    assert last.startswith("fairlane: the postgresql store cannot be reached")


def test_a_database_that_comes_up_without_the_schema_ends_it_with_what_to_do(
    own_server: PostgresServer, tmp_path: Path
) -> None:
    own_server.create_database("bare")
    own_server.stop()
    with closing(Crew(own_server.dsn("bare"), tmp_path)) as crew:
        foreman = crew.start("-p", "1")
        crew.eventually(lambda: "it is tried until it does" in foreman.log())
        own_server.start()
        assert foreman.wait() == 2
        assert "run `fairlane migrate up`" in foreman.log().splitlines()[-1]


def test_a_worker_within_the_process_begins_when_its_server_answers(own_place: Place) -> None:
    own_place.server.stop()
    try:
        with Fairlane(own_place.dsn) as app:
            task = app.task(name="t")(lambda: 7)
            with app.running(slots=1):
                own_place.server.start()
                eventually(lambda: answers(lambda: task.enqueue().result(timeout=20) == 7))
    finally:
        own_place.server.start()


def answers(act: Callable[[], bool]) -> bool:
    try:
        return act()
    except StoreUnavailable:
        return False


def test_a_read_only_server_is_waited_for(own_place: Place, tmp_path: Path) -> None:
    with psycopg.connect(own_place.server.dsn(), autocommit=True) as conn:
        conn.execute(f'alter database "{own_place.name}" set default_transaction_read_only = on'.encode())
        with closing(Crew(own_place.dsn, tmp_path)) as crew:
            foreman = crew.start("-p", "1")
            crew.eventually(lambda: "read-only: connect to the primary" in foreman.log())
            conn.execute(f'alter database "{own_place.name}" reset default_transaction_read_only'.encode())
            assert crew.task("work").enqueue(0.0).result(timeout=40) is not None
            assert foreman.stop() == 0


def test_a_file_that_others_hold_locked_may_be_opened_and_is_used_later(tmp_path: Path) -> None:
    with closing(SqliteStore(tmp_path / "jobs.db")) as first:
        db = first._db._ready_writer()
        db.execute("begin immediate")
        with closing(SqliteStore(tmp_path / "jobs.db", busy_timeout_s=0.05)) as store:
            with pytest.raises(StoreUnavailable, match="is busy"):
                store.run(Enqueue(jobs=(Making().job(),)))
            db.execute("rollback")
            assert store.run(Enqueue(jobs=(Making().job(),))).receipts[0].disposition == "created"
