"""Generates supervisor-driven processes by the contract's own SQL functions, and says how those that are there go."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

import psycopg
from msgspec import Struct
from psycopg import sql as quoting

from fairlane.client.settings.model import Settings
from fairlane.errors import ConfigError
from fairlane.supervisors.contract import session

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
    stopped: int
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
