"""A process that enqueues whether its store can be reached or not, and writes down each job that was acknowledged.

python -m tests.faults.failover_process URL SPOOL SEED FILE
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TextIO

from msgspec import Raw

from fairlane.core.chance import SystemChance
from fairlane.core.clock import SystemClock
from fairlane.core.ids import JobId, uuid7
from fairlane.core.job import JobSpec
from fairlane.core.ops import Enqueue
from fairlane.errors import SpoolFull
from fairlane.stores import open_store
from fairlane.stores.failover import Failover, Spool

PAUSE_S = 0.005

clock, chance = SystemClock(), SystemChance()


def job(number: int) -> JobSpec:
    made = JobId(uuid7(int(clock.now().timestamp() * 1000), chance.entropy(10)))
    return JobSpec(id=made, type="t", payload=Raw(b'{"n":%d}' % number), tenant=f"tenant-{number % 3}")


def enqueue_for_ever(url: str, place: str, seed: int, acknowledged: TextIO) -> None:
    """One call after the other, of one job or of three, until the process is killed.

    Writers without a brake fill any spool, because they outrun its replay: these pause after each call, and call again
    when the spool is full, as an application does that is refused.
    """
    store = Failover(open_store(url), Spool(place, owner="drill"), timeout_s=1.0)
    number = seed
    while True:
        jobs = tuple(job(number + n) for n in range(1 + seed % 2 * 2))
        number += len(jobs)
        try:
            receipts = store.run(Enqueue(jobs=jobs)).receipts
        except SpoolFull:
            receipts = ()
        for receipt in receipts:
            acknowledged.write(f"{receipt.id}\n")
        acknowledged.flush()
        time.sleep(PAUSE_S)


if __name__ == "__main__":
    with Path(sys.argv[4]).open("a") as file:
        enqueue_for_ever(sys.argv[1], sys.argv[2], int(sys.argv[3]), file)
