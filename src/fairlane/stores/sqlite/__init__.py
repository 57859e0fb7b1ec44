"""Jobs in a SQLite file.

store       one way in: a table of operations       database    connections, transactions, waiting, forks
enqueueing  claiming  settling  reclaiming  turning   what workers and clients do
acting  dead_letters  auditing                        what people do
reading  paging  counting  keeping                    what people ask, and upkeep
driver (apsw_driver, stdlib_driver)  borrowing  one_library   which SQLite, and whose connection
"""

from fairlane.stores.sqlite.memory import MemoryStore as MemoryStore
from fairlane.stores.sqlite.store import SqliteStore as SqliteStore
