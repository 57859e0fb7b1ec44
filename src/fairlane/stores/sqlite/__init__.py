"""Jobs in a SQLite file, or in memory: one module for each noun of `core.ops`, and what they stand on.

store, memory                           one way in, for a file and for `memory://`
transaction                             what the handler of an operation works with, and which handler it is
connection                              transactions, waiting for other writers, forks
claims, lines, settle, reclaim, facts   the parts of a Turn
driver, apsw_driver, stdlib_driver      which SQLite library
borrowed, location                      the caller's own connection; where the file is
"""

from fairlane.stores.sqlite.memory import MemoryStore as MemoryStore
from fairlane.stores.sqlite.store import SqliteStore as SqliteStore
