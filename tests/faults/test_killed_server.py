"""kill -9 of the whole PostgreSQL server while processes enqueue: what was acknowledged is there afterwards."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.eventually import eventually
from tests.faults.places import Place

WRITERS = 3
ACKNOWLEDGED_BEFORE_THE_KILL = 150


def kill_under_load(place: Place, directory: Path, round_: int) -> set[str]:
    """Kill the server while writers are at it; the ids that had been acknowledged."""
    files = [directory / f"{round_}-{number}" for number in range(WRITERS)]
    for file in files:
        file.touch()
    writers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.faults.enqueue_process", place.dsn, str(round_ * 10 + number), str(file)]
        )
        for number, file in enumerate(files)
    ]

    def acknowledged() -> set[str]:
        # Only whole lines: a writer may be in the middle of one.
        return {line for file in files for line in file.read_text().split("\n")[:-1]}

    def each_has_begun() -> bool:
        return all(file.stat().st_size for file in files) and len(acknowledged()) >= ACKNOWLEDGED_BEFORE_THE_KILL

    try:
        eventually(each_has_begun)
        place.server.kill9()
        assert [writer.wait(30) for writer in writers] == [0] * WRITERS
    finally:
        for writer in writers:
            writer.kill()
            writer.wait()
        place.server.start()
    return acknowledged()


def assert_all_there(place: Place, acknowledged: set[str]) -> None:
    there = {str(row[0]) for row in place.rows("select id from fairlane.job join fairlane.ready using (seq)")}
    assert acknowledged <= there, f"{len(acknowledged - there)} of {len(acknowledged)} acknowledged jobs are gone"


@pytest.mark.requirement("Q17")
def test_nothing_acknowledged_is_lost_when_the_server_is_killed_under_load(own_place: Place, tmp_path: Path) -> None:
    acknowledged: set[str] = set()
    for round_ in range(2):
        acknowledged |= kill_under_load(own_place, tmp_path, round_)
        assert_all_there(own_place, acknowledged)


@pytest.mark.requirement("Q17")
def test_a_server_that_acknowledges_early_by_default_still_keeps_our_jobs(own_place: Place, tmp_path: Path) -> None:
    # synchronous_commit off for everybody, and a writer that flushes late: unless our sessions say otherwise, a kill loses jobs.
    own_place.rows("alter system set synchronous_commit = off")
    own_place.rows("alter system set wal_writer_delay = '10s'")
    try:
        own_place.rows("select pg_reload_conf()")
        eventually(lambda: own_place.rows("show synchronous_commit") == [("off",)])
        assert_all_there(own_place, kill_under_load(own_place, tmp_path, 0))
    finally:
        own_place.rows("alter system reset all")
        own_place.rows("select pg_reload_conf()")


@pytest.mark.long
@pytest.mark.parametrize("commit", ["on", "off"])
def test_many_kills_in_a_row_lose_nothing_acknowledged(own_place: Place, tmp_path: Path, commit: str) -> None:
    own_place.rows(f"alter system set synchronous_commit = {commit}")
    try:
        own_place.rows("select pg_reload_conf()")
        acknowledged: set[str] = set()
        for round_ in range(25):
            acknowledged |= kill_under_load(own_place, tmp_path, round_)
            assert_all_there(own_place, acknowledged)
    finally:
        own_place.rows("alter system reset all")
        own_place.rows("select pg_reload_conf()")
