"""Calls supervisors and handlers in the database, each in a transaction of its own, as `worker_service_user`.

The role that connects must be a member of it and inherit its rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import msgspec
import psycopg

from fairlane.client.context import CurrentJob
from fairlane.client.settings.model import Settings
from fairlane.core.names import MAX_KEY_BYTES
from fairlane.core.tracebacks import without_frames
from fairlane.errors import HandlerRefused, StoreUnavailable
from fairlane.stores.pool import ConnectionPool
from fairlane.stores.postgres.connection import PostgresConnector, parameters
from fairlane.stores.postgres.errors import BUSY, STORE, translated, unreachable
from fairlane.stores.retries import Again, Lost
from fairlane.supervisors.contract import RUNNER, WORKER_ROLE
from fairlane.supervisors.envelope import DBFunctionResult, HandlerFailed, read_result

PAUSES_S = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)
"""Between calls that lost their connection, or to others in the database: handlers are idempotent."""

TRANSIENT = ("25006", "53", "55006", "55P03", "57", "58")
"""How the SQLSTATEs of what passes by itself begin: a server that is read-only, has no room or a limit reached, an
object in use, a lock timeout, a cancelled or timed out statement, trouble of the system. All else is the function's own
failure."""

TRACE_HEADERS = ("traceparent", "tracestate", "sentry-trace", "baggage")
"""Those that `queues.enqueue` takes over."""

ANSWER_GRACE_S = 5.0
WAIT_S = 30.0

_CONTEXT = (
    f"with context as materialized (select set_config('role', '{WORKER_ROLE}', true), "
    "set_config('fairlane.tenant', %s, true), set_config('fairlane.correlation_id', %s, true), "
    "set_config('fairlane.parent_id', %s, true), set_config('fairlane.trace', %s, true)) "
)
"""One statement, and so one transaction: its settings end with it. With five statements in a pipeline a call took this
process and the server twice the time."""
_RUN = f"{_CONTEXT}select internal.run_function(%s, %s::jsonb)::text from context".encode()
_FAIL = f"{_CONTEXT}select queues.fail_task(%s, %s)::text from context".encode()


class TaskContext(NamedTuple):
    """What tasks inherit that a handler enqueues."""

    tenant: str
    correlation_id: str
    parent_id: str
    trace: str
    """Headers as JSON: of the span in force where somebody traces, else of the task itself."""

    @classmethod
    def of(cls, job: CurrentJob) -> TaskContext:
        headers = {name: text for name, text in job.headers.items() if name in TRACE_HEADERS} | (job.trace or {})
        kept = {name: text for name, text in headers.items() if len(text.encode()) <= MAX_KEY_BYTES}
        trace = msgspec.json.encode(kept).decode() if kept else ""
        return cls(job.tenant, job.correlation_id, str(job.id), trace)


class HandlerHeldUp(StoreUnavailable):
    """The database could not run a supervisor or handler for now, and has undone what it did: to be tried later."""

    def __init__(self, function: str, why: str) -> None:
        super().__init__(STORE, f"{function}: {why}", BUSY)


class HandlerInvoker:
    """Calls functions of the database for the tasks of one worker process."""

    def __init__(self, settings: Settings, url: str, connections: int) -> None:
        params = parameters(
            url, statement_timeout_s=settings.statement_timeout_s, lock_timeout_s=WAIT_S, runs_handlers=True
        )
        connector = PostgresConnector(params, settings.statement_timeout_s + ANSWER_GRACE_S)
        self._pool = ConnectionPool(connector, connections, WAIT_S)

    async def invoke(self, function: str, payload: Any, context: TaskContext) -> DBFunctionResult:
        """Its answer; raises `HandlerFailed` where it raised, or answered with no envelope.

        `HandlerRefused`, `HandlerHeldUp`, or another `StoreUnavailable`: nothing was done, a later call may succeed.
        """
        try:
            text = await self._ask(context, _RUN, (function, msgspec.json.encode(payload).decode()))
            answer = None if text is None else msgspec.json.decode(text)
        except psycopg.Error as error:
            if error.diag.constraint_name == RUNNER:
                raise HandlerRefused(_said(error), error.diag.message_hint or "") from without_frames(error)
            kind = HandlerHeldUp if _is_transient(error) else HandlerFailed
            raise kind(function, _said(error)) from without_frames(error)
        except (msgspec.DecodeError, RecursionError) as error:  # jsonb holds numbers that no float does: 1e400
            raise HandlerFailed(function, f"answered what cannot be read: {error}") from error
        return read_result(function, answer)

    async def fail_task(self, task_id: int, message: str, context: TaskContext) -> None:
        with _as_unavailable():
            await self._ask(context, _FAIL, (task_id, message.replace("\0", "")))

    async def close(self) -> None:
        self._pool.close()

    async def _ask(self, context: TaskContext, query: bytes, params: tuple[Any, ...]) -> str | None:
        """One answer from one transaction, asked for again where that is of use; raises psycopg's errors otherwise."""
        for pause_s in (*PAUSES_S, None):
            try:
                return await self._ask_once(context, query, params)
            except psycopg.Error as error:
                found = translated(error)
                if isinstance(found, Lost | Again) or _is_transient(error):
                    await self._pool.aforget_idle()
                if not isinstance(found, Lost | Again):
                    raise
                if pause_s is None:
                    raise unreachable(error) from without_frames(error)
            except StoreUnavailable:
                if pause_s is None:
                    raise
            await asyncio.sleep(pause_s)
        raise AssertionError

    async def _ask_once(self, context: TaskContext, query: bytes, params: tuple[Any, ...]) -> str | None:
        conn = await self._pool.atake()
        try:
            cursor = conn.kept_cursor()
            await cursor.execute(query, (*context, *params))
            row = await cursor.fetchone()
            return None if row is None else row[0]
        except psycopg.Error as error:
            if _is_transient(error):
                conn.pgconn.finish()  # it may be true of this session for ever, as after a read-only hour
            raise
        finally:
            await self._pool.agive(conn, broken=conn.is_over)


@contextmanager
def _as_unavailable() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise unreachable(error) from without_frames(error)


def _is_transient(error: psycopg.Error) -> bool:
    return (error.sqlstate or "").startswith(TRANSIENT)


def _said(error: psycopg.Error) -> str:
    """The server's words, without the context that psycopg adds."""
    return error.diag.message_primary or str(error).splitlines()[0]
