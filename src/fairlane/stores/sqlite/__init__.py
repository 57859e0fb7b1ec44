"""Jobs in a SQLite file, or in memory: one module for each noun of `core.ops`, and what they stand on.

store, memory        one way in, for a file and for `memory://`
transaction          what the handler of an operation works with, and which function handles which operation
connection, thread   transactions, waiting for other writers, forks
claims lines leases settle reclaim facts   the parts of a Turn
driver, apsw_driver, stdlib_driver, borrowed, location   which SQLite, whose connection, where the file is
"""

from fairlane.stores.sqlite.memory import MemoryStore as MemoryStore
from fairlane.stores.sqlite.store import SqliteStore as SqliteStore
