"""Jobs on a Redis or Valkey server: one module for each noun of `core.ops`, and what they stand on.

store, connection, errors, listener   one way in; connections, also to the node of a cluster
steps, scripts                        how handlers talk to the server; scripts/*.lua
states                                what is kept of a job
"""

from fairlane.stores.redis.store import RedisStore as RedisStore
