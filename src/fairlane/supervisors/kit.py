"""Generates a supervisor-driven process by the contract's own SQL functions: as a script, or at once."""

from __future__ import annotations

from typing import NamedTuple

import psycopg

from fairlane.client.settings.model import Settings
from fairlane.errors import ConfigError
from fairlane.stores.postgres.connection import PostgresConnector, parameters
from fairlane.stores.postgres.errors import unreachable

_MISSING = (psycopg.errors.InvalidSchemaName, psycopg.errors.UndefinedFunction)
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


def _call(settings: Settings, function: str, plan: ProcessPlan) -> str | None:
    params = parameters(settings.url, statement_timeout_s=settings.statement_timeout_s, lock_timeout_s=3.0)
    conn = PostgresConnector(params, settings.statement_timeout_s).connect(patient=True)
    places = ", ".join(["%s"] * len(plan))
    try:
        [(answer,)] = conn.execute(f"select queues.{function}({places})".encode(), plan).fetchall()
    except _MISSING as error:
        step = "run `fairlane migrate up --with supervisors`"
        raise ConfigError(f"the supervisors are not installed in this database; {step}") from error
    except _REFUSED as error:
        raise ConfigError(error.diag.message_primary or str(error)) from error
    except psycopg.Error as error:
        raise unreachable(error) from error
    finally:
        conn.close()
    return None if answer is None else str(answer)
