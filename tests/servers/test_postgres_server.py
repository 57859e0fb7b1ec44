"""The test server keeps its promises: what it acknowledged survives kill -9, and it leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest

from tests.servers.postgres import SUPPORTED, PostgresServer

STARTED_AND_ABANDONED = """
import sys, time
from tests.servers.postgres import PostgresServer
server = PostgresServer()
server.start()
print(server.pid, server.directory, flush=True)
sys.stdin.read()
"""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as running:
        yield running


def one(dsn: str, query: str) -> object:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(query.encode()).fetchone()
    assert row is not None
    return row[0]


def test_the_server_is_postgresql_18_or_the_one_of_pg_bin_with_fsync_on(server: PostgresServer) -> None:
    version = one(server.dsn(), "select current_setting('server_version_num')::int / 10000")
    assert version in SUPPORTED if os.environ.get("PG_BIN") else version == 18
    assert one(server.dsn(), "show fsync") == "on"
    assert one(server.dsn(), "show max_connections") == "200"
    assert one(server.socket_dsn(), "show shared_buffers") == "256MB"


@pytest.mark.parametrize(
    ("version", "message"),
    [(None, "holds no program 'postgres'"), ("14.11", "is PostgreSQL 14; Fairlane supports 15 to 18")],
)
def test_a_directory_without_a_supported_server_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, message: str
) -> None:
    for program in ("postgres", "initdb", "psql", "pg_dump") if version else ():
        (tmp_path / program).write_text(f"#!/bin/sh\necho 'postgres (PostgreSQL) {version}'\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("PG_BIN", str(tmp_path))
    with pytest.raises(RuntimeError, match=re.escape(message)):
        PostgresServer().start()


def test_a_database_can_be_made_from_a_template_and_dropped_under_its_users(server: PostgresServer) -> None:
    origin = server.create_database("origin")
    with psycopg.connect(origin, autocommit=True) as connection:
        connection.execute("create table kept as select 7 as n")
    copy = server.create_database('a "copy"', template="origin")
    assert one(copy, "select n from kept") == 7
    still_connected = psycopg.connect(copy)
    server.drop_database('a "copy"')
    server.drop_database("origin")
    assert one(server.dsn(), "select count(*) from pg_database where datname like '%copy%'") == 0
    still_connected.close()


def test_what_was_committed_survives_kill_9_and_the_port_stays(server: PostgresServer) -> None:
    port = server.port
    with psycopg.connect(server.dsn(), autocommit=True) as connection:
        connection.execute("create table survivors as select 1 as n")
    processes = [psutil.Process(server.pid), *psutil.Process(server.pid).children(recursive=True)]
    server.kill9()
    assert not server.is_running
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    server.start()
    assert server.port == port
    assert one(server.dsn(), "select n from survivors") == 1
    server.restart()
    assert one(server.dsn(), "select n from survivors") == 1


def test_the_server_dies_with_a_test_process_that_is_killed() -> None:
    root = Path(__file__).parents[2]
    owner = subprocess.Popen(
        [sys.executable, "-c", STARTED_AND_ABANDONED],
        cwd=root,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), os.environ.get("PYTHONPATH", "")])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with owner:
        assert owner.stdout is not None
        pid, directory = owner.stdout.readline().split()
        postmaster = psutil.Process(int(pid))
        owner.send_signal(signal.SIGKILL)
    postmaster.wait(timeout=20)
    give_up_at = time.monotonic() + 20
    while Path(directory).exists() and time.monotonic() < give_up_at:
        time.sleep(0.02)
    assert not Path(directory).exists()
