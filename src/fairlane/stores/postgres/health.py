"""Checks that the server answers, which schema it has, and whether it keeps what it acknowledges."""

from __future__ import annotations

from datetime import datetime

from fairlane.core.ops import Health
from fairlane.stores.migrations import SchemaState
from fairlane.stores.postgres.calls import Call, Rows, instant
from fairlane.stores.postgres.errors import STORE

_SQL = """
select coalesce(%s::timestamptz, clock_timestamp()), current_setting('server_version'), current_setting('fsync'),
       current_setting('synchronous_commit'), current_setting('full_page_writes'), pg_is_in_recovery(),
       array(select c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace
             where n.nspname = %s and c.relkind = 'r' and c.relpersistence <> 'p'),
       (select extract(epoch from max(clock_timestamp() - xact_start))::float8
        from pg_stat_activity where backend_type = 'client backend'),
       coalesce((select obj_description(n.oid, 'pg_namespace') from pg_namespace n where n.nspname = %s), '')
"""


def check_call(schema: str, at: datetime | None, *, pooled: bool) -> Call[Health]:
    def read(rows: Rows) -> Health:
        now, server, fsync, commit, pages, standby, unlogged, oldest_s, comment = rows[0]
        degraded = []
        if fsync != "on":
            degraded.append(
                "fsync is off: a crash of the server's machine can lose or corrupt everything; set fsync = on"
            )
        if commit == "off":
            degraded.append(
                "synchronous_commit is off: a crash of the server loses the last acknowledged jobs; set it to on"
            )
        if pages != "on":
            degraded.append("full_page_writes is off: a torn page after a crash cannot be repaired; set it to on")
        if unlogged:
            degraded.append(
                f"unlogged tables are emptied after a crash: {', '.join(unlogged)}; alter table … set logged"
            )
        if standby:
            degraded.append("the server is a read-only standby; connect to the primary")
        durable = not degraded
        if pooled:
            degraded.append(
                "a pooler refuses our session settings (timeouts, synchronous_commit): "
                "set them for the role with alter role … set"
            )
        if oldest_s is not None and oldest_s > 3600:
            degraded.append(
                f"a transaction has been open for {oldest_s / 3600:.1f} h: "
                "vacuum cannot remove dead rows, claims slow down; end it"
            )
        return Health(
            now=now,
            store=STORE,
            server=f"PostgreSQL {server}",
            schema_version=SchemaState.described(comment).expanded,
            durable=durable,
            degraded=tuple(degraded),
        )

    return Call(_SQL, (instant(at), schema, schema), read)
