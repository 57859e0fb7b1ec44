"""The PostgreSQL store: each operation is one SQL function; tables are in `migrations/`, functions in `functions/`."""

from fairlane.stores.postgres.store import PostgresStore as PostgresStore
