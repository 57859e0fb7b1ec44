"""kill -9 in the middle of enqueues and Turns: the file stays whole, and nothing acknowledged is lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

from fairlane.core.ids import JobId
from fairlane.core.ops import ALL_TENANTS, GetJob
from fairlane.stores.sqlite import SqliteStore

KILLS = 5
LINES_BEFORE_THE_KILL = 60

WORK_UNTIL_KILLED = """
import sys
from fairlane.core.ops import Enqueue, Renew, Turn
from fairlane.core.outcome import Completed
from fairlane.stores.sqlite import SqliteStore
from fairlane.testing.conformance.scene import wanting
from fairlane.testing.conformance.samples import Making

store, making = SqliteStore(sys.argv[1]), Making(int(sys.argv[2]))
worker = making.worker_id()
store.run(Renew(worker=worker, lease_s=3600))
claim_no, outcomes, ended = 0, (), ()
while True:
    jobs = tuple(making.job(queue=sys.argv[2]) for _ in range(3))
    store.run(Enqueue(jobs=jobs))
    print("enqueued", *(job.id for job in jobs), flush=True)
    claim_no += 1
    answer = store.run(Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(wanting(3, queues=(sys.argv[2],)),)))
    print("completed", *ended, flush=True)
    outcomes = tuple(Completed(seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no) for lease in answer.leases)
    ended = tuple(lease.id for lease in answer.leases)
"""


@pytest.mark.requirement("Q17")
def test_killed_processes_lose_nothing_they_acknowledged(tmp_path: Path) -> None:
    path, root = tmp_path / "jobs.db", Path(__file__).parents[2]
    promised: dict[str, set[str]] = {"enqueued": set(), "completed": set()}
    for number in range(KILLS):
        command = [sys.executable, "-c", WORK_UNTIL_KILLED, str(path), str(number)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as child:
            assert child.stdout is not None
            for _ in range(LINES_BEFORE_THE_KILL):
                remember(promised, child.stdout.readline())
            child.kill()
            for line in child.stdout.read().splitlines()[:-1]:
                remember(promised, line)
        store = SqliteStore(path)
        assert store._db.read(lambda db: db.execute("pragma integrity_check")) == [("ok",)]
        for what, ids in promised.items():
            for text in ids:
                detail = store.run(GetJob(scope=ALL_TENANTS, id=JobId(UUID(text))))
                assert detail is not None
                assert what == "enqueued" or detail.job.status == "completed"
        store.close()
    assert len(promised["completed"]) > KILLS * LINES_BEFORE_THE_KILL // 2


def remember(promised: dict[str, set[str]], line: str) -> None:
    what, *ids = line.split()
    promised[what].update(ids)
