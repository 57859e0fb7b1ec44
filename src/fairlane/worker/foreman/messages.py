"""The messages between a foreman and its workers: one line of JSON each, over a pair of sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec
from msgspec import Struct

from fairlane.core.ids import WorkerId
from fairlane.core.profiles import ProfileName
from fairlane.stores import SqliteLibrary
from fairlane.worker.config import WorkerConfig


class JobKind(NamedTuple):
    """The jobs of one task for one tenant."""

    type: str
    tenant: str


class Suspects(Struct, frozen=True, kw_only=True, tag="suspects"):
    """The kinds of jobs that crash processes."""

    isolated: tuple[JobKind, ...] = ()
    """They run in processes of their own."""
    watched: tuple[JobKind, ...] = ()
    """Their successes are reported."""


class ChildCrash(Struct, frozen=True, kw_only=True, tag="child_crash"):
    """A job crashed the process it had to itself."""

    kind: JobKind


class Successes(Struct, frozen=True, kw_only=True, tag="successes"):
    """How many jobs of watched kinds have ended well since the last report."""

    counts: tuple[tuple[JobKind, int], ...]


class Setup(Struct, frozen=True, kw_only=True, tag="setup"):
    """The first message to a worker."""

    worker: WorkerId
    app: str
    config: WorkerConfig
    profile: ProfileName | None = None
    """For an application that names none itself."""
    number: int = 0
    """Of this process, which has its share of the slots."""
    processes: int = 1
    """How many there may be."""
    reports_files: bool = False
    """Report with the hello which files the application was loaded from."""
    log_level: int = 20
    suspects: Suspects = Suspects()
    waits: bool = False
    """For its store, if that is away, whatever the settings say: the foreman has run workers on it before."""


class StoreAddress(Struct, frozen=True, kw_only=True):
    """The application's store, which the foreman opens for itself."""

    url: str
    schema: str
    sqlite_library: SqliteLibrary
    statement_timeout_s: float
    key_prefix: str
    health_check_timeout_s: float


class Loaded(Struct, frozen=True, kw_only=True, tag="loaded"):
    """The application is loaded and may be run; its store is asked now."""

    url: str
    processes: int
    """How many there are slots for."""


class StoreAway(Struct, frozen=True, kw_only=True, tag="store_away"):
    """The store does not answer yet; the worker waits for it."""

    why: str


class Hello(Struct, frozen=True, kw_only=True, tag="hello"):
    """The application is loaded and its store answers."""

    store: StoreAddress
    queues: tuple[str, ...]
    types: tuple[str, ...]
    slots: int
    """Of all lanes together."""
    poll_s: float
    introduction: tuple[str, ...] = ()
    """What this worker is, in lines for the log."""
    files: tuple[str, ...] = ()


class StartRefusal(Struct, frozen=True, kw_only=True, tag="refused"):
    """The application cannot be run as requested."""

    code: str
    message: str


class Tick(Struct, frozen=True, kw_only=True, tag="tick", omit_defaults=True):
    """The loop is alive."""

    wake_address: str | None = None
    running: int = 0
    held: int = 0
    """Claimed and not begun."""
    abandoned: int = 0
    """Threads that still run attempts after their cancellation."""
    answered_ago_s: float = 0.0
    """Seconds since the store answered a Turn."""
    stepped_ago_s: float = 0.0
    """Seconds since the turn loop took a step, whether or not the store answered."""
    ended_slots: int = 0
    """Slots whose tasks have ended: nothing runs in them any more."""
    figures: dict[str, float] = {}


ExitReason = Literal["broken", "untrusted"]
"""The engine failed, or the heartbeat could not be renewed in time."""


class ExitNotice(Struct, frozen=True, kw_only=True, tag="exits"):
    """The worker exits by a decision of its own. An exit code alone proves nothing: any job can exit with any code."""

    why: ExitReason


class Left(Struct, frozen=True, kw_only=True, tag="left"):
    """Every job is settled or released; the worker exits."""

    why: Literal["stopped", "drained", "used_up"]


class Registered(Struct, frozen=True, kw_only=True, tag="registered"):
    """The worker is registered in the store and may claim."""


class Stop(Struct, frozen=True, kw_only=True, tag="stop"):
    now: bool = False
    """End the grace, too."""


class Dump(Struct, frozen=True, kw_only=True, tag="dump"):
    """Write a heap dump."""


FromWorker = Loaded | StoreAway | Hello | StartRefusal | Tick | ChildCrash | Successes | ExitNotice | Left
ToWorker = Setup | Registered | Suspects | Stop | Dump

LONGEST_LINE = 2**22


def line(message: FromWorker | ToWorker) -> bytes:
    return msgspec.json.encode(message) + b"\n"


from_worker: Callable[[bytes], FromWorker] = msgspec.json.Decoder(FromWorker).decode
to_worker: Callable[[bytes], ToWorker] = msgspec.json.Decoder(ToWorker).decode
