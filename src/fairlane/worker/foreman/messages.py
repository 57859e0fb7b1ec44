"""What a foreman and its workers say to each other, a line of JSON each, over a pair of sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec import Struct

from fairlane.core.ids import WorkerId
from fairlane.stores import SqliteLibrary
from fairlane.worker.config import WorkerConfig

LOG_FORMAT = "%(asctime)s %(levelname)s %(name)s[%(process)d]: %(message)s"
"""Where the application does not set up logging itself."""


class Setup(Struct, frozen=True, kw_only=True, tag="setup"):
    """The first thing a worker hears."""

    worker: WorkerId
    app: str
    config: WorkerConfig
    reports_files: bool = False
    """Say with the hello which files the application was loaded from."""
    log_level: int = 20


class StorePlace(Struct, frozen=True, kw_only=True):
    """Where the application keeps its jobs: the foreman opens the same store for itself."""

    url: str
    schema: str
    sqlite_library: SqliteLibrary
    statement_timeout_s: float


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """The application is loaded and its store answers."""

    store: StorePlace
    queues: tuple[str, ...]
    types: tuple[str, ...]
    files: tuple[str, ...] = ()


class Refused(Struct, frozen=True, kw_only=True, tag="refused"):
    """It cannot be run as asked."""

    code: str
    message: str


class Tick(Struct, frozen=True, kw_only=True, tag="tick", omit_defaults=True):
    """The loop is alive."""

    wake_address: str | None = None
    running: int = 0
    held: int = 0
    """Claimed and not begun."""
    abandoned: int = 0
    """Threads that go on with attempts nobody waits for any more."""
    answered_ago_s: float = 0.0
    """Since the store answered a Turn."""
    figures: dict[str, float] = {}


class Left(Struct, frozen=True, kw_only=True, tag="left"):
    """Everything is settled and given back."""

    why: Literal["stopped", "drained", "used_up"]


class Registered(Struct, frozen=True, kw_only=True, tag="registered"):
    """The store knows you: begin."""


class Stop(Struct, frozen=True, kw_only=True, tag="stop"):
    now: bool = False
    """End the grace too."""


class Dump(Struct, frozen=True, kw_only=True, tag="dump"):
    """Write down what is in memory."""


FromWorker = Hello | Refused | Tick | Left
ToWorker = Setup | Registered | Stop | Dump

LONGEST_LINE = 2**22


def line(message: FromWorker | ToWorker) -> bytes:
    return msgspec.json.encode(message) + b"\n"


from_worker: Callable[[bytes], FromWorker] = msgspec.json.Decoder(FromWorker).decode
to_worker: Callable[[bytes], ToWorker] = msgspec.json.Decoder(ToWorker).decode
