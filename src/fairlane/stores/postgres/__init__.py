"""The PostgreSQL store: every operation is one SQL function or one query; the schema is in `sql/`."""

from fairlane.stores.postgres.store import PostgresStore as PostgresStore
