"""The application's store: opened at first use, refused after close."""

from __future__ import annotations

import threading
from typing import TypeVar

from msgspec.structs import replace

from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.model import Settings
from fairlane.client.steps import Sleeper
from fairlane.core.clock import Clock
from fairlane.core.ops import Check, Op
from fairlane.core.payload.redaction import without_secrets
from fairlane.errors import MissingExtra, StoreClosed, StoreUnavailable
from fairlane.stores import StoreMissing, open_store
from fairlane.stores.base import Store
from fairlane.stores.url import redacted, store_named_by

logger = GuardedLogger("fairlane.client")

T = TypeVar("T")


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

    def run(self, op: Op[T], *, on: object | None = None) -> T:
        return self.store.run(_without_secrets(op), on=on)

    async def arun(self, op: Op[T], *, on: object | None = None) -> T:
        store = self._store
        if store is None or self.closed:
            import asyncio  # Imported here: it doubles the import time of fairlane.

            store = await asyncio.to_thread(self._opened)
        return await store.arun(_without_secrets(op), on=on)

    def close(self) -> None:
        with self._opening:
            self.closed = True
            if self._store is not None and self._is_ours:
                self._store.close()

    async def aclose(self) -> None:
        self.closed = True
        if self._store is not None and self._is_ours:
            await self._store.aclose()

    def _opened(self) -> Store:
        with self._opening:
            if self.closed:
                raise StoreClosed(self.name)
            if self._store is None:
                self._store = open_with_fallback(self._settings, self._clock)
            return self._store


def _without_secrets(op: Op[T]) -> Op[T]:
    notes = getattr(op, "notes", None)
    return replace(op, notes=without_secrets(notes)) if notes and isinstance(notes, str) else op


def open_with_fallback(settings: Settings, clock: Clock | None = None) -> Store:
    """Open the store the settings name.

    With `fallback = "memory"` a missing package or an unreachable server leads to the memory store and a
    warning; jobs enqueued then are lost when this process ends.
    """
    if settings.fallback == "refuse":
        return _open(settings, settings.url, clock)
    store: Store | None = None
    try:
        store = _open(settings, settings.url, clock)
        store.run(Check())
        return store
    except (MissingExtra, StoreMissing, StoreUnavailable) as error:
        if store is not None:
            store.close()
        logger.warning(
            "%s cannot be used (%s): continuing in memory, where jobs are lost when this process ends",
            redacted(settings.url),
            error,
        )
        return _open(settings, "memory://", clock)


def _open(settings: Settings, url: str, clock: Clock | None) -> Store:
    return open_store(
        url,
        clock=clock,
        schema=settings.schema,
        sqlite_library=settings.sqlite_library,
        statement_timeout_s=settings.statement_timeout_s,
    )
