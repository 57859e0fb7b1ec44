"""Takes over a database in which another worker has a schema "queues": its open tasks go on as tasks of Fairlane."""

from __future__ import annotations

from msgspec import Struct
from psycopg import sql as quoting

from fairlane.client.settings.model import Settings
from fairlane.stores.postgres import PostgresStore
from fairlane.stores.postgres.connection import Connection
from fairlane.supervisors.contract import CONTRACT, contract_text


class TakenOver(Struct, frozen=True):
    installed: bool
    """False: the supervisors were there already, and nothing was done."""
    moved: int
    """Open tasks of the other worker, which wait in `queues.task` now."""


def take_over(settings: Settings, *, dry_run: bool = False) -> TakenOver:
    """Install the supervisors where a schema "queues" is in the way, and move its open tasks: all of it or nothing.

    What was there stays readable in the schema `queues_before`. Raises `SchemaConflict` while the other worker holds
    a task. With `dry_run` everything is done and undone; only the store's own schema has to be there.
    """
    job = quoting.Literal(quoting.Identifier(settings.schema, "job").as_string(None)).as_string(None)
    aside, move = contract_text("aside.sql"), contract_text("move.sql").replace("{job}", job)

    def moved(conn: Connection) -> int:
        conn.execute(move.encode())
        [(count,)] = conn.execute("select current_setting('fairlane.moved', true)").fetchall()
        return int(count or 0)

    store = PostgresStore(settings.url, schema=settings.schema, statement_timeout_s=settings.statement_timeout_s)
    try:
        if not dry_run:
            store.migrator().up()
        store.migrator().require()
        found = store.migrator(CONTRACT).up_at_once(lambda conn: conn.execute(aside.encode()), moved, dry_run=dry_run)
    finally:
        store.close()
    return TakenOver(installed=found is not None, moved=found or 0)
