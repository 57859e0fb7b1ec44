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
    views: tuple[str, ...] = ()
    """Those that read the old queue and have to be created again."""


def take_over(settings: Settings, *, dry_run: bool = False) -> TakenOver:
    """Install the supervisors where a schema "queues" is in the way, and move its open tasks: all of it or nothing.

    What was there stays readable in the schema `queues_before`. Raises `SchemaConflict` while the other worker holds
    a task. With `dry_run` everything is done and undone; only the store's own schema has to be there.
    """
    job = quoting.Literal(quoting.Identifier(settings.schema, "job").as_string(None)).as_string(None)
    aside, move = contract_text("aside.sql"), contract_text("move.sql").replace("{job}", job)

    def moved(conn: Connection) -> TakenOver:
        conn.execute(move.encode())
        [(count, views)] = conn.execute(_MOVED).fetchall()
        return TakenOver(installed=True, moved=int(count or 0), views=tuple(views))

    store = PostgresStore(settings.url, schema=settings.schema, statement_timeout_s=settings.statement_timeout_s)
    try:
        if not dry_run:
            store.migrator().up()
        store.migrator().require()
        found = store.migrator(CONTRACT).up_at_once(lambda conn: conn.execute(aside.encode()), moved, dry_run=dry_run)
    finally:
        store.close()
    return found or TakenOver(installed=False, moved=0)


_MOVED = """
select current_setting('fairlane.moved', true), array(
  select distinct v.oid::regclass::text
  from pg_depend d join pg_rewrite r on r.oid = d.objid join pg_class v on v.oid = r.ev_class
  join pg_class old on old.oid = d.refobjid
  where d.classid = 'pg_rewrite'::regclass and d.refclassid = 'pg_class'::regclass
    and old.relnamespace = to_regnamespace('queues_before') and v.relnamespace <> old.relnamespace
  order by 1)
"""
