"""The application's store: opened at first use, refused after close until the application is entered again."""

from __future__ import annotations

import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar, cast

from msgspec.structs import replace

from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.model import Settings
from fairlane.client.steps import Sleeper, is_on_event_loop
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ops import Op
from fairlane.core.payload.redaction import without_secrets
from fairlane.errors import MissingExtra, StoreClosed
from fairlane.stores import open_store
from fairlane.stores.base import Capability, Store, driver_connection
from fairlane.stores.url import redacted, store_named_by

if TYPE_CHECKING:
    from fairlane.stores.failover import Failover, News, Spool

logger = GuardedLogger("fairlane.client")

T = TypeVar("T")

LOCAL = ("memory", "sqlite")
"""Stores without a network between: an event loop waits microseconds for them."""


class SpoolState(NamedTuple):
    reachable: bool
    jobs: int | None
    """None, and the others 0: the spool cannot be read."""
    refused: int
    age_s: float
    """How long the oldest job has waited."""


class StoreAccess:
    """The single access to the store for the whole application.

    Importing a module that defines tasks connects to nothing; the first operation does. Secrets in the notes of an
    act are never stored.
    """

    def __init__(self, settings: Settings, clock: Clock | None, store: Store | None, sleeper: Sleeper) -> None:
        self._settings, self._clock, self.sleeper = settings, clock, sleeper
        self._store = store
        self._is_ours = store is None
        self._opening = threading.Lock()
        self._has_warned = False
        self.closed = False

    @property
    def store(self) -> Store:
        if self._store is None or self.closed:
            return self._opened()
        return self._store

    @property
    def name(self) -> str:
        """The name of the store in use; before the first use, the one in the URL."""
        return self._store.name if self._store is not None else store_named_by(self._settings.url)

    @property
    def failover(self) -> Failover | None:
        """The store, if it has a spool beside it; None before the first use."""
        store = self._store
        return None if store is None or Capability.SPOOLS not in store.capabilities else cast("Failover", store)

    def spool_state(self) -> SpoolState | None:
        """What waits in the spool; None: there is none."""
        failover = self.failover
        if failover is None:
            return None
        found, now = failover.state(), (self._clock or SystemClock()).now()
        if found.spool is None:
            return SpoolState(reachable=found.reachable, jobs=None, refused=0, age_s=0.0)
        oldest_at = found.spool.oldest_at
        return SpoolState(
            reachable=found.reachable,
            jobs=found.spool.jobs,
            refused=found.spool.refused,
            age_s=0.0 if oldest_at is None else max((now - oldest_at).total_seconds(), 0.0),
        )

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        store, on = self._store, on if on is None else driver_connection(on)
        if store is None or self.closed:
            store = self._opened(on)
        if on is None and not self._has_warned and store.name not in LOCAL and is_on_event_loop():
            self._has_warned = True
            logger.warning(
                "a call at %s blocks the event loop that runs in its thread until the %s store answers: use the async "
                "version of each method there, as in `await task.aenqueue(…)`; this is said once",
                _place(),
                store.name,
            )
        return store.run(_without_secrets(op), on=on)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        store, on = self._store, on if on is None else driver_connection(on)
        if store is None or self.closed:
            import asyncio  # Imported here: it doubles the import time of fairlane.

            # A connection of the caller's stays in the caller's thread.
            store = await asyncio.to_thread(self._opened) if on is None else self._opened(on)
        return await store.arun(_without_secrets(op), on=on)

    def reopen(self) -> None:
        """After `close`, let the next operation open the store again; a memory store begins empty."""
        with self._opening:
            if self.closed and self._is_ours:
                self._store = None
            self.closed = False

    def close(self) -> None:
        with self._opening:
            self.closed = True
            if self._store is not None and self._is_ours:
                self._store.close()

    async def aclose(self) -> None:
        self.closed = True
        if self._store is not None and self._is_ours:
            await self._store.aclose()

    def _opened(self, on: object | None = None) -> Store:
        with self._opening:
            if self.closed:
                raise StoreClosed(self.name)
            if self._store is None:
                self._store = open_with_fallback(self._settings, self._clock, on)
            return self._store


def _place() -> str:
    """Where the application called, `file:line`."""
    frame = sys._getframe(1)
    while frame.f_back is not None and f"{frame.f_globals.get('__name__')}.".startswith(_BETWEEN):
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


_BETWEEN = ("fairlane.", "django.tasks.", "django_tasks.")
"""Packages whose frames stand between a call of the application and here."""


def _without_secrets(op: Op[T]) -> Op[T]:
    notes = getattr(op, "notes", None)
    return replace(op, notes=without_secrets(notes)) if notes and isinstance(notes, str) else op


def open_with_fallback(settings: Settings, clock: Clock | None = None, on: object | None = None) -> Store:
    """Open the store the settings name, with its spool if they name one; neither connects to a server.

    With `fallback = "memory"` a missing package leads to the memory store and a warning; jobs enqueued then are lost
    when this process ends.
    """
    try:
        store = _open(settings, settings.url, clock, on)
    except MissingExtra as error:
        if settings.fallback == "refuse":
            raise
        logger.warning(
            "%s cannot be used (%s): continuing in memory, where jobs are lost when this process ends",
            redacted(settings.url),
            error,
        )
        return _open(settings, "memory://", clock)
    return _with_spool(settings, store, clock)


def _with_spool(settings: Settings, store: Store, clock: Clock | None) -> Store:
    if settings.spool is None or store.name == "memory":
        return store
    from fairlane.stores.failover import Failover  # Imported here: without a spool it is not needed.

    try:
        spool = open_spool(settings, clock)
    except BaseException:
        store.close()
        raise
    tell = partial(_log, settings)
    return Failover(store, spool, timeout_s=settings.health_check_timeout_s, clock=clock, on_news=tell)


def library_of_spool(settings: Settings) -> Literal["apsw", "stdlib"]:
    """No application opens the spool through its own library: all processes of the machine use one."""
    return "apsw" if settings.sqlite_library == "auto" else settings.sqlite_library


def open_spool(settings: Settings, clock: Clock | None = None) -> Spool:
    """The spool of the settings, which must name one."""
    from fairlane.stores.failover import Spool

    assert settings.spool is not None
    is_redis = store_named_by(settings.url) == "redis"
    part = f"key prefix {settings.key_prefix}" if is_redis else f"schema {settings.schema}"
    return Spool(
        settings.spool,
        owner=f"{redacted(settings.url)}, {part}",
        capacity=settings.spool_capacity,
        library=library_of_spool(settings),
        clock=clock,
    )


def _log(settings: Settings, news: News) -> None:
    from fairlane.stores.failover import CameBack, RefusesJobs, Replayed, ReplayFailed, SpoolLost, WentAway

    match news:
        case WentAway(why=why):
            kept = ", in memory, where they are lost when this process ends" if settings.spool == "memory" else ""
            logger.warning("the store is away (%s): enqueues are spooled until it is back%s", why, kept)
        case RefusesJobs(why=why):
            logger.warning("the store takes no jobs (%s): enqueues are spooled until it does", why)
        case CameBack(away_s=away_s):
            logger.warning("the store is back after %.1f s", away_s)
        case ReplayFailed(why=why):
            logger.error("the spool cannot be replayed: %s", why)
        case SpoolLost(jobs=jobs, first=first):
            logger.error(
                "%d spooled jobs in memory are lost, as the store is away while this process ends: %s%s; enqueue them "
                "again, and name a directory in `spool` where they outlive their process",
                jobs,
                ", ".join(f"{spec.type} {spec.id}" for spec in first),
                " …" if jobs > len(first) else "",
            )
        case Replayed(jobs=jobs, duplicates=duplicates, refused=refused):
            if jobs:
                logger.info("%d spooled jobs were replayed", jobs)
            for job, existing in duplicates:
                logger.warning("spooled job %s is a duplicate of %s, which stands for it", job, existing)
            for job, reason in refused:
                logger.warning("spooled job %s was refused and stays in the spool: %s", job, reason)


def _open(settings: Settings, url: str, clock: Clock | None, on: object | None = None) -> Store:
    return open_store(
        url,
        clock=clock,
        schema=settings.schema,
        sqlite_library=settings.sqlite_library,
        statement_timeout_s=settings.statement_timeout_s,
        key_prefix=settings.key_prefix,
        health_check_timeout_s=settings.health_check_timeout_s,
        on=on,
    )
