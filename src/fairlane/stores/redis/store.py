"""The store on Redis or Valkey: every change is one script, so that it happens whole or not at all.

A call that failed is sent again where that is safe (`Op.repeatable`); else the error says that it may have been done.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakSet

import redis.exceptions as their

from fairlane.core.ids import WorkerId
from fairlane.core.ops import Op
from fairlane.core.tracebacks import without_frames
from fairlane.errors import ConfigError, InvalidOption, StoreRefused, StoreUnavailable, UnsupportedConnection
from fairlane.stores.base import Capability
from fairlane.stores.pool import ConnectionPool
from fairlane.stores.redis import (  # noqa: F401 - their handlers are registered as they are imported
    alerts,
    audit,
    breakers,
    credentials,
    dead_letters,
    durable_steps,
    enqueue,
    events,
    health,
    job_keys,
    pauses,
    retention,
    schedules,
    signals,
    statistics,
    tenants,
    turn,
    workers,
)
from fairlane.stores.redis.connection import AsyncConnection, Connection, RedisConnector, aask, ask
from fairlane.stores.redis.errors import SILENCES, STORE, Moved, translated
from fairlane.stores.redis.jobs import acts, pages, records, why  # noqa: F401
from fairlane.stores.redis.limits import KeptLimits
from fairlane.stores.redis.listener import RedisListener
from fairlane.stores.redis.scripts import script
from fairlane.stores.redis.steps import HANDLERS, Changed, Commands, Script, Steps, Work
from fairlane.stores.redis.workflows import (
    acts as workflow_acts,  # noqa: F401
    enqueue as workflow_enqueue,  # noqa: F401
    records as workflow_records,  # noqa: F401
)
from fairlane.stores.retries import Again, Lost, Retries, ends_sessions

T = TypeVar("T")
Begin = Callable[[Work], Steps[Any]]

_PREFIX = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_MOST_CHANGES = 100
"""How often a handler begins again because others were quicker."""


class RedisStore:
    """Keeps the jobs of one installation under `{key_prefix}`, in one slot of a cluster."""

    name = STORE
    capabilities = frozenset({Capability.DURABLE, Capability.SHARED})

    def __init__(
        self,
        url: str,
        *,
        key_prefix: str = "fairlane",
        max_connections: int = 8,
        connect_timeout_s: float = 2.0,
        answer_within_s: float = 10.0,
        wait_s: float = 5.0,
    ) -> None:
        if not _PREFIX.fullmatch(key_prefix):
            raise ConfigError(f"key_prefix = {key_prefix!r}: expected 1 to 64 letters, digits or _ . : -")
        self._tag = f"{{{key_prefix}}}"
        self._connector = RedisConnector(url, connect_timeout_s=connect_timeout_s, answer_within_s=answer_within_s)
        self._connections = ConnectionPool(self._connector, max_connections, wait_s)
        self._limits = KeptLimits()
        self._checked: WeakSet[Connection | AsyncConnection] = WeakSet()
        """Connections to a server that may have jobs, and gives numbers that it has not given."""

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        self._refuse(op, on)
        retries: Retries | None = None
        while True:
            try:
                return self._try(op)
            except (Again, Lost, StoreUnavailable) as error:
                if isinstance(error, Again) or ends_sessions(error):
                    self._connections.forget_idle()
                if isinstance(error, Moved):
                    self._connector.move_to(error.host, error.port)
                retries = retries or Retries(STORE, op, SILENCES)
                pause_s = retries.pause_after(error)
            time.sleep(pause_s)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        self._refuse(op, on)
        retries: Retries | None = None
        while True:
            try:
                return await self._atry(op)
            except (Again, Lost, StoreUnavailable) as error:
                if isinstance(error, Again) or ends_sessions(error):
                    await self._connections.aforget_idle()
                if isinstance(error, Moved):
                    self._connector.move_to(error.host, error.port)
                retries = retries or Retries(STORE, op, SILENCES)
                pause_s = retries.pause_after(error)
            await asyncio.sleep(pause_s)

    def listener(self, worker: WorkerId) -> RedisListener:
        return RedisListener(self._connector, self._tag, worker)

    def migrator(self) -> None:
        return None

    def close(self) -> None:
        self._connections.close()

    async def aclose(self) -> None:
        self._connections.close()
        await asyncio.sleep(0)  # transports of this loop end when it goes on: it may be closed after this

    def _refuse(self, op: Op[Any], on: object | None) -> None:
        if on is not None:
            raise UnsupportedConnection(on, "none: on Redis a job cannot be part of the caller's own transaction")
        if type(op) not in HANDLERS:
            raise InvalidOption("op", op, "an operation of fairlane.core.ops")

    def _try(self, op: Op[T]) -> T:
        conn = self._connections.take(proven=not op.repeatable)
        broken = True
        try:
            if conn not in self._checked:
                facts = health.facts_of(_send(conn, "INFO"))
                health.refuse_unsafe(facts)
                self._do(conn, op, lambda work: health.skip_numbers(work, facts))
                self._checked.add(conn)
            answer = self._do(conn, op, lambda work: HANDLERS[type(op)](work, op))
            broken = False
            return cast("T", answer)
        except Again:
            broken = False
            raise
        except UnicodeError as error:
            broken = False
            raise StoreRefused(STORE, f"text that is no Unicode: {error}; nothing was changed") from None
        except (their.RedisError, OSError) as error:
            ours = translated(error)
            broken = isinstance(ours, Again) or ends_sessions(ours)
            raise ours from without_frames(error)
        finally:
            self._connections.give(conn, broken=broken)

    async def _atry(self, op: Op[T]) -> T:
        conn = await self._connections.atake(proven=not op.repeatable)
        broken = True
        try:
            if conn not in self._checked:
                facts = health.facts_of(await _asend(conn, "INFO"))
                health.refuse_unsafe(facts)
                await self._ado(conn, op, lambda work: health.skip_numbers(work, facts))
                self._checked.add(conn)
            answer = await self._ado(conn, op, lambda work: HANDLERS[type(op)](work, op))
            broken = False
            return cast("T", answer)
        except Again:
            broken = False
            raise
        except UnicodeError as error:
            broken = False
            raise StoreRefused(STORE, f"text that is no Unicode: {error}; nothing was changed") from None
        except (their.RedisError, OSError) as error:
            ours = translated(error)
            broken = isinstance(ours, Again) or ends_sessions(ours)
            raise ours from without_frames(error)
        finally:
            await self._connections.agive(conn, broken=broken)

    def _do(self, conn: Connection, op: Op[Any], begin: Begin) -> Any:
        for _ in range(_MOST_CHANGES):
            steps, reply = begin(Work(op, self._tag, self._limits)), None
            try:
                while True:
                    reply = self._call(conn, steps.send(reply))
            except StopIteration as end:
                return end.value
            except Changed:
                continue
        raise Again("others changed the same thing all the time")

    async def _ado(self, conn: AsyncConnection, op: Op[Any], begin: Begin) -> Any:
        for _ in range(_MOST_CHANGES):
            steps, reply = begin(Work(op, self._tag, self._limits)), None
            try:
                while True:
                    reply = await self._acall(conn, steps.send(reply))
            except StopIteration as end:
                return end.value
            except Changed:
                continue
        raise Again("others changed the same thing all the time")

    def _call(self, conn: Connection, request: Script | Commands) -> Any:
        if isinstance(request, Commands):
            return [_send(conn, *command, optional=request.optional) for command in request.commands]
        known = script(request.name)
        try:
            return _send(conn, "EVALSHA", known.digest, 1, self._tag, *request.args)
        except their.NoScriptError:
            return _send(conn, "EVAL", known.text, 1, self._tag, *request.args)

    async def _acall(self, conn: AsyncConnection, request: Script | Commands) -> Any:
        if isinstance(request, Commands):
            return [await _asend(conn, *command, optional=request.optional) for command in request.commands]
        known = script(request.name)
        try:
            return await _asend(conn, "EVALSHA", known.digest, 1, self._tag, *request.args)
        except their.NoScriptError:
            return await _asend(conn, "EVAL", known.text, 1, self._tag, *request.args)


def _send(conn: Connection, *command: bytes | str | int, optional: bool = False) -> Any:
    try:
        return ask(conn, *command)
    except their.ResponseError:
        if not optional:
            raise
        return None


async def _asend(conn: AsyncConnection, *command: bytes | str | int, optional: bool = False) -> Any:
    try:
        return await aask(conn, *command)
    except their.ResponseError:
        if not optional:
            raise
        return None
