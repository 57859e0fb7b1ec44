"""The checks of a chaos run see what they are there for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.chaos.hosts import writer_of
from tests.chaos.recorder import Locks, Record, Records
from tests.chaos.verdict import Halt, Stretch, longest_stops, meetings, out_of_turn

ROOT = Path(__file__).parents[2]
LEASE_S = 6.0
HOLD = "import sys; from tests.chaos.recorder import Locks; print(Locks(sys.argv[1]).take(7), flush=True); sys.stdin.read()"

WRITE = """
import sqlite3, sys
held = sqlite3.connect(sys.argv[1], isolation_level=None)
held.execute("pragma journal_mode = wal")
held.execute("begin immediate")
print("writing", flush=True)
sys.stdin.read()
"""


def record(event: str, at_s: float, *, job: str = "a", attempt: int = 1, pid: int = 1, limit: str = "-") -> Record:
    return Record(event, job, attempt, pid, at_s, "acme", "chaos.work", limit)


def test_a_byte_is_held_by_one_attempt_and_free_when_its_process_is_killed(tmp_path: Path) -> None:
    path = str(tmp_path / "locks")
    ours = Locks(path)
    command, pipe = [sys.executable, "-c", HOLD, path], subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"True\n"
        assert not ours.take(7)
        holder.kill()
        holder.wait()
    assert ours.take(7)
    assert not ours.take(7), "nor twice in one process"
    ours.release(7)
    assert ours.take(7)


def test_the_process_that_writes_to_a_file_is_known(tmp_path: Path) -> None:
    file, pipe = tmp_path / "jobs.db", subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", WRITE, str(file)], stdin=pipe, stdout=pipe) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"writing\n"
        assert writer_of(file) == writer.pid
        writer.kill()
        writer.wait()
        assert writer_of(file) is None


def test_records_are_read_once_each_and_only_whole_lines(tmp_path: Path) -> None:
    records, path = Records(tmp_path / "diary"), tmp_path / "diary"
    assert records.read() == []
    path.write_text("began a 1 1 2.5 acme chaos.work - 0\nended a 1 1")
    assert records.read() == [record("began", 2.5)]
    with path.open("a") as file:
        file.write(" 3.5 acme chaos.work - 0\n")
    assert records.read() == [record("ended", 3.5)]
    assert records.read() == []
    assert len(records.all) == 2


def test_two_attempts_of_one_job_at_once_are_wrong() -> None:
    told = [record("began", 1), record("met", 2, attempt=2, pid=2), record("began", 2, attempt=2, pid=2)]
    assert len(meetings(told, [], LEASE_S)) == 1


def test_one_job_too_many_under_a_limit_is_wrong() -> None:
    assert len(meetings([record("began", 1, limit="type"), record("over", 2, job="b", limit="type")], [], LEASE_S)) == 1


def test_what_slept_beyond_its_lease_may_be_met_until_it_wakes_and_no_longer() -> None:
    told = [record("began", 1), record("met", 9, attempt=2, pid=2)]
    assert meetings(told, [Halt(frozenset({1}), 2, 10)], LEASE_S) == []
    assert len(meetings(told, [Halt(frozenset({2}), 2, 10)], LEASE_S)) == 1, "another host slept"
    assert len(meetings(told, [Halt(frozenset({1}), 8, 10)], LEASE_S)) == 1, "within its lease"
    assert len(meetings(told, [Halt(frozenset({1}), 2, 7.5)], LEASE_S)) == 1, "and awake again"


def test_the_longest_stop_is_that_of_its_state() -> None:
    stretches = [Stretch("working", 0, 10), Stretch("away", 10, 30), Stretch("starting", 30, 35)]
    stops = longest_stops([record("began", 4), record("ended", 33)], stretches)
    assert {state: (stop.begin_s, stop.end_s) for state, stop in stops.items()} == {
        "working": (4, 10),
        "away": (10, 30),
        "starting": (30, 33),
    }


def test_an_ordered_job_that_begins_before_its_turn_is_found() -> None:
    first = [record("began", 1.0, job="a", limit="order"), record("left", 2.0, job="a", limit="order")]
    second = [record("began", 5.0, job="b", limit="order"), record("ended", 6.0, job="b", limit="order")]
    again = [
        record("began", 3.0, job="a", attempt=2, limit="order"),
        record("ended", 4.0, job="a", attempt=2, limit="order"),
    ]
    assert out_of_turn([*first, *again, *second], {"a": 1, "b": 2}) == []
    late = [one._replace(at_s=one.at_s + 2.5) for one in again]
    [found] = out_of_turn([*first, second[0], *late, second[1]], {"a": 1, "b": 2})
    assert "job 2 began in order before 1 had ended" in found
