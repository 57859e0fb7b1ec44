"""A process that enqueues until the store is gone, and writes down each job that was acknowledged.

python -m tests.faults.enqueue_process DSN SEED FILE
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TextIO

from fairlane.core.ops import Enqueue
from fairlane.errors import StoreUnavailable
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making


def enqueue_until_gone(dsn: str, seed: int, acknowledged: TextIO) -> None:
    """One call after the other, of one job or of three."""
    store, making = PostgresStore(dsn), Making(seed)
    try:
        while True:
            jobs = tuple(making.job() for _ in range(1 + seed % 2 * 2))
            for receipt in store.run(Enqueue(jobs=jobs)).receipts:
                acknowledged.write(f"{receipt.id}\n")
            acknowledged.flush()
    except StoreUnavailable:
        return
    finally:
        store.close()


if __name__ == "__main__":
    with Path(sys.argv[3]).open("a") as file:
        enqueue_until_gone(sys.argv[1], int(sys.argv[2]), file)
