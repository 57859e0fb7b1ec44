"""How near a Turn of 100 comes to the least SQLite can do: prints both rates and their ratio.

The raw loop marks 100 rows and deletes them, in two commits, as a hand-made queue would. A Turn settles 100 and claims 100 in one.
Both in write-ahead mode with every commit synced, on one file each beside this script or in the directory given.
"""

from __future__ import annotations

import gc
import sys
import tempfile
from pathlib import Path
from statistics import median

import apsw
from msgspec import Raw

from fairlane.core.chance import SystemChance
from fairlane.core.clock import SystemClock
from fairlane.core.ids import JobId, WorkerId, uuid7
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue, Renew, Turn, Want
from fairlane.core.outcome import Completed
from fairlane.stores.sqlite import SqliteStore

BATCH = 100
JOBS = 20_000
ROUNDS = 5

clock, chance = SystemClock(), SystemChance()


def new_id() -> JobId:
    return JobId(uuid7(int(clock.now().timestamp() * 1000), chance.entropy(10)))


def raw_loop(path: Path) -> float:
    db = apsw.Connection(str(path))
    db.execute("pragma journal_mode = wal").fetchall()
    db.execute("pragma synchronous = full")
    db.execute("create table job (id integer primary key, state int default 0, payload text)")
    db.execute("create index j on job (id) where state = 0")
    db.execute("begin")
    db.executemany("insert into job (payload) values (?)", [("{}",)] * JOBS)
    db.execute("commit")
    claim = "update job set state = 1 where id in (select id from job where state = 0 order by id limit ?) returning id"
    began = clock.monotonic()
    while rows := db.execute(claim, (BATCH,)).fetchall():
        db.execute("begin")
        db.executemany("delete from job where id = ?", rows)
        db.execute("commit")
    rate = JOBS / (clock.monotonic() - began)
    db.close()
    return rate


def turns(path: Path, tenants: int) -> tuple[float, float]:
    """Jobs enqueued and jobs turned over, each per second."""
    store = SqliteStore(path)
    specs = [
        JobSpec(id=new_id(), type="bench", payload=Raw(b'{"n":1}'), tenant=f"tenant-{i % tenants:05}")
        for i in range(JOBS)
    ]
    began = clock.monotonic()
    for first in range(0, JOBS, 1000):
        store.run(Enqueue(jobs=tuple(specs[first : first + 1000])))
    enqueued = JOBS / (clock.monotonic() - began)
    worker = WorkerId(new_id())
    store.run(Renew(worker=worker, lease_s=3600))
    want = Want(lane="general", queues=("default",), limit=BATCH, start=BATCH, types=("bench",))
    del specs
    gc.collect()
    gc.freeze()
    outcomes: tuple[Completed, ...] = ()
    claim_no = settled = 0
    began = clock.monotonic()
    while settled < JOBS:
        claim_no += 1
        answer = store.run(Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(want,)))
        settled += len(outcomes)
        outcomes = tuple([Completed(seq=one.seq, attempt=1, claim_no=claim_no, ran_s=0.001) for one in answer.leases])
    turned = JOBS / (clock.monotonic() - began)
    store.close()
    gc.unfreeze()
    return enqueued, turned


def main() -> None:
    base = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent
    with tempfile.TemporaryDirectory(dir=base) as directory:
        for tenants in (1, 100):
            raws, rates, enqueues = [], [], []
            for n in range(ROUNDS):
                raws.append(raw_loop(Path(directory) / f"raw-{tenants}-{n}.db"))
                enqueued, turned = turns(Path(directory) / f"turn-{tenants}-{n}.db", tenants)
                rates.append(turned)
                enqueues.append(enqueued)
            raw, rate = median(raws), median(rates)
            # Of neighbours in time: the disk's mood changes from one second to the next.
            ratio = median(turned / raw for turned, raw in zip(rates, raws, strict=True))
            print(
                f"sqlite, batch {BATCH}, {tenants} tenant(s): raw loop {raw:,.0f}/s, turns {rate:,.0f}/s, "
                f"ratio {ratio:.2f} (goal 0.50); enqueue 1000 a call {median(enqueues):,.0f}/s"
            )


if __name__ == "__main__":
    main()
