"""Jobs in a SQLite file, or in memory: one module for each noun of `core.ops`, and what they stand on.

store, memory        one way in, for a file and for `memory://`      handlers    which function answers which operation
connection, thread   transactions, waiting for other writers, forks  transaction what a handler works with
claims lines leases settle reclaim facts                             the parts of a Turn
driver, apsw_driver, stdlib_driver, borrowed, location               which SQLite, whose connection, where the file is
"""

from fairlane.stores.sqlite.memory import MemoryStore as MemoryStore
from fairlane.stores.sqlite.store import SqliteStore as SqliteStore
