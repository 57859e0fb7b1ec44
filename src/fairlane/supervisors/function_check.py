"""Examines the functions that the worker calls: which it may not run, and which somebody could lead astray."""

from __future__ import annotations

from typing import Literal, NamedTuple

import psycopg
from psycopg import sql as quoting

from fairlane.client.settings.model import Settings
from fairlane.errors import HandlerRefused
from fairlane.stores.postgres.connection import Connection
from fairlane.supervisors.contract import QUEUE, RUNNER, WORKER_ROLE, contract_text, session

MOST_TASKS = 1_000
"""How many due and how many later tasks are asked which functions they name, the earliest first."""


class FunctionFinding(NamedTuple):
    function: str
    state: Literal["refused", "warning"]
    """refused: tasks name it, and wait until the worker may run it. warning: it runs; somebody should look at it."""
    says: str
    remedy: str
    """The SQL to run, or what else to do."""
    waiting: int = 0
    """How many of the examined tasks name it."""


def examine_functions(settings: Settings, url: str | None = None, *, tasks: bool = True) -> list[FunctionFinding]:
    """Every function that is granted to the worker, and with `tasks` those that waiting tasks name; refused ones first.

    Changes nothing. `tasks` needs a role that reads the store's tables.
    """
    with session(settings, url) as conn:
        refused = _refused(conn, settings.schema) if tasks else []
        granted = conn.execute(contract_text("granted_functions.sql").encode()).fetchall()
    return refused + [FunctionFinding(name, "warning", says, remedy) for name, says, remedy in granted]


def require_membership(settings: Settings, url: str) -> None:
    """Refuse an address whose role may not call handlers as `worker_service_user`."""
    with session(settings, url) as conn:
        [(role, is_member)] = conn.execute(_MEMBER, {"role": WORKER_ROLE}).fetchall()
    if not is_member:
        why = f'the role "{role}" may not call handlers as {WORKER_ROLE}'
        raise HandlerRefused(why, f'grant {WORKER_ROLE} to "{role}"')


def _refused(conn: Connection, schema: str) -> list[FunctionFinding]:
    found = []
    query = quoting.SQL(_NAMED).format(schema=quoting.Identifier(schema))
    for name, waiting in conn.execute(query, {"queue": QUEUE, "most": MOST_TASKS}).fetchall():
        try:
            conn.execute("select internal.run_function(%s, null)", (name,))  # without a payload it only checks
        except psycopg.errors.InsufficientPrivilege as error:
            if error.diag.constraint_name != RUNNER:
                raise
            says = error.diag.message_primary or str(error)
            finding = FunctionFinding(name, "refused", says, error.diag.message_hint or "", waiting)
            found.append(finding)
    return found


_MEMBER = """
select current_user::text, coalesce(pg_has_role(to_regrole(%(role)s), 'usage'), false)
"""
_NAMED = """
with waiting as (
  (select seq from {schema}.ready where queue = %(queue)s order by due_at, seq limit %(most)s)
  union all
  (select seq from {schema}.scheduled where queue = %(queue)s order by due_at, seq limit %(most)s)
)
select name, count(distinct seq)
from waiting join {schema}.job j using (seq),
  lateral unnest(array['db_function', 'before_handler', 'success_handler', 'error_handler']) handler,
  lateral (select j.payload->>handler as name) n
where name is not null group by name order by name
"""
