"""Generates supervisor-driven processes by the contract's own SQL functions, and says how those that are there go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import psycopg
from msgspec import Struct
from psycopg import sql as quoting

from fairlane.client.settings.model import Settings
from fairlane.errors import ConfigError, nearest
from fairlane.stores.postgres.connection import Connection
from fairlane.supervisors.contract import session

_RESTARTS = "select from pg_catalog.pg_proc where proname = %s and pronamespace = to_regnamespace(quote_ident(%s))"
_REFUSED = (psycopg.errors.InvalidParameterValue, psycopg.errors.UndefinedColumn)


class ProcessPlan(NamedTuple):
    """What a process is about and how it is carried out; the fields are the parameters of `queues.process_sql`."""

    process: str
    subject: str | None = None
    channel: str = "db_function"
    noun: str | None = None
    max_attempts: int = 5
    base_s: int = 10
    cap_s: int = 3600


def process_sql(settings: Settings, plan: ProcessPlan) -> str:
    """The script that makes the process, for a migration of yours."""
    return _call(settings, "process_sql", plan) or ""


def create_process(settings: Settings, plan: ProcessPlan) -> None:
    """Make the process in the database, as the role of the settings' address."""
    _call(settings, "create_process", plan)


class ProcessCounts(Struct, frozen=True):
    """The processes of one kind; the fields are the columns of `queues.process_counts()`."""

    process: str
    open: int
    succeeded: int
    stopped: int | None
    """None: they have no table of those that stopped, as supervisors written by hand; such a process counts as open."""
    failed_attempts: int
    error_message: str | None
    """Of the last attempt that failed."""
    last_failed_at: datetime | None
    last_stopped_at: datetime | None


class TaskError(Struct, frozen=True):
    """A row of `queues.error`."""

    created_at: datetime
    task_id: int
    task_type: str | None
    """None: retention has removed the task."""
    tenant: str | None
    error_message: str


def process_counts(settings: Settings) -> tuple[ProcessCounts, ...]:
    with session(settings) as conn:
        return tuple(ProcessCounts(*row) for row in conn.execute("select * from queues.process_counts()"))


def restart_processes(
    settings: Settings, process: str, subjects: Sequence[str], *, by: str, notes: str | None
) -> dict[str, str | None]:
    """Start the processes of these subjects again, each by itself; why one was refused, by its subject."""
    answers: dict[str, str | None] = {}
    with session(settings) as conn:
        query = _restarts(conn, process, "restart_", "(%s, %s, %s)")
        for subject in subjects:
            try:
                [(answers[subject],)] = conn.execute(query, (subject, notes, by)).fetchall()
            except psycopg.DataError as error:
                answers[subject] = error.diag.message_primary or str(error)
    return answers


def restart_stopped(settings: Settings, process: str, limit: int, *, by: str, notes: str | None) -> int:
    """Start those that have stopped again, the first to stop first, all of them or none; how many."""
    with session(settings) as conn:
        [(number,)] = conn.execute(
            _restarts(conn, process, "restart_stopped_", "(%s, %s, %s)"), (notes, by, limit)
        ).fetchall()
    return int(number)


def _restarts(conn: Connection, process: str, verb: str, places: str) -> quoting.Composed:
    domain, _, foo = process.partition(".")
    known = conn.execute(_RESTARTS, (f"{verb}{foo}", domain)).fetchall()
    if not known:
        found = conn.execute("select process from queues.process_counts()").fetchall()
        names = sorted(name for (name,) in found)
        says = f"process {process!r} cannot be started again here"
        if process in names:
            step = f"it has no function {domain}.{verb}{foo}: call `queues.create_process` again, or write one"
        else:
            step = f"there are {', '.join(names) or 'no processes'}.{nearest(process, names)}"
        raise ConfigError(f"{says}: {step}")
    return quoting.SQL("select {}" + places).format(quoting.Identifier(domain, f"{verb}{foo}"))


def last_errors(settings: Settings, limit: int) -> tuple[TaskError, ...]:
    """The newest first."""
    query = quoting.SQL(
        "select e.created_at, e.task_id, j.type, j.tenant, e.error_message "
        "from queues.error e left join {}.job j on j.seq = e.task_id order by e.error_id desc limit %s"
    ).format(quoting.Identifier(settings.schema))
    with session(settings) as conn:
        return tuple(TaskError(*row) for row in conn.execute(query, (limit,)))


def _call(settings: Settings, function: str, plan: ProcessPlan) -> str | None:
    places = ", ".join(["%s"] * len(plan))
    with session(settings) as conn:
        try:
            [(answer,)] = conn.execute(f"select queues.{function}({places})".encode(), plan).fetchall()
        except _REFUSED as error:
            raise ConfigError(error.diag.message_primary or str(error)) from error
    return None if answer is None else str(answer)
