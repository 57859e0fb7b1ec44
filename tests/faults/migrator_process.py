"""A process that migrates a database, and says how many migrations it applied.

python -m tests.faults.migrator_process DSN
"""

from __future__ import annotations

import sys

from fairlane.stores.postgres import PostgresStore


def migrate(dsn: str) -> int:
    store = PostgresStore(dsn)
    try:
        return len(store.migrator().up())
    finally:
        store.close()


if __name__ == "__main__":
    print(migrate(sys.argv[1]))
