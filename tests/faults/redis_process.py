"""A process that enqueues, claims and settles on Redis until the store is gone, and writes down what was acknowledged.

python -m tests.faults.redis_process URL SEED FILE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from fairlane.core.ops import Enqueue, Renew, Turn
from fairlane.errors import StoreUnavailable
from fairlane.stores.redis import RedisStore
from fairlane.testing.conformance.samples import Making, completed
from fairlane.testing.conformance.scene import wanting


def live_until_gone(url: str, seed: int, acknowledged: TextIO) -> None:
    """Three jobs in, two of anybody's out, again and again; a line for each job and what was done with it."""
    store, making = RedisStore(url), Making(seed)
    worker = making.worker_id()
    try:
        store.run(Renew(worker=worker, lease_s=3600.0, name="test"))
        leases = ()
        for claim_no in range(1, 1_000_000):
            receipts = store.run(Enqueue(jobs=tuple(making.job() for _ in range(3)))).receipts
            acknowledged.writelines(f"enqueued {receipt.id}\n" for receipt in receipts)
            acknowledged.flush()
            outcomes = tuple(completed(lease) for lease in leases)
            settled = store.run(Turn(worker=worker, claim_no=claim_no, outcomes=outcomes, wants=(wanting(2),)))
            assert not settled.refused
            acknowledged.writelines(f"completed {lease.id}\n" for lease in leases)
            leases = settled.leases
            acknowledged.writelines(f"claimed {lease.id}\n" for lease in leases)
            acknowledged.flush()
    except StoreUnavailable:
        return
    finally:
        store.close()


if __name__ == "__main__":
    with Path(sys.argv[3]).open("a") as file:
        live_until_gone(sys.argv[1], int(sys.argv[2]), file)
