"""Running jobs inside the application's own process."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Protocol, Self


class RunningWorker(Protocol):
    """A worker to be entered, with `with` or `async with`."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None: ...

    def stop(self) -> None: ...


class Running:
    def running(
        self,
        *,
        slots: int | None = None,
        queues: Sequence[str] | None = None,
        types: Sequence[str] | None = None,
        drain: bool = False,
        grace: float | None = None,
        config: Any = None,
    ) -> RunningWorker:
        """Run this application's jobs in this process while a block lasts: `with app.running(): …`, or `async with`.

        Leaving it ends claims and gives running jobs the grace; with `drain` it first waits until nothing is ready and nothing runs.
        """
        # By name: the client stands below the worker, and an application that only enqueues never loads one.
        embedded = importlib.import_module("fairlane.worker.embedded")
        worker: RunningWorker = embedded.running(
            self, slots=slots, queues=queues, types=types, drain=drain, grace=grace, config=config
        )
        return worker
