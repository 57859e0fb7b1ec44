"""Knows which workers have run on this host, so that one that starts finds those whose process is gone.

Each worker has a small file in memory that all processes of the host share (`/dev/shm`) from before it is registered
until its leases have been returned. Files that are left belong to workers that died together with whoever would have
returned their leases: those leases can be taken back now instead of when their heartbeat lapses.

A worker counts as gone only where that is certain: this host wrote the file since it was booted, it names our own
namespaces of processes and time, and its process, and its foreman's, either is not there, or is another one by its
start, or has only zombies for threads. Everything else waits for the lease. A column in the store would not do: copies
of a virtual machine share a boot id, and what is dead in one of them runs in another.
"""

from __future__ import annotations

import os
import stat
import sys
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import msgspec
from msgspec import Struct

from fairlane.client.logs import GuardedLogger
from fairlane.core.clock import Clock
from fairlane.core.ids import WorkerId
from fairlane.core.ops import AddEvents, Lapse
from fairlane.core.ops.events import loss_events
from fairlane.errors import FairlaneError
from fairlane.stores.base import Store

log = GuardedLogger("fairlane.worker")

SHARED = Path("/dev/shm")  # noqa: S108 - the folder of each user in it is checked before it is used
FORGET_S = 3600.0
"""Files of workers of other stores that have been gone for this long are removed."""


class ProcessIdentity(Struct, frozen=True):
    """One process among all that this machine has run since it was booted."""

    boot: str
    pid_namespace: int
    time_namespace: int
    """Start times are told differently in different ones."""
    pid: int
    started: int
    """In clock ticks since the boot."""


class HostWorker(Struct, frozen=True):
    worker: WorkerId
    store: str
    process: ProcessIdentity
    keeper: ProcessIdentity
    """Returns its leases while it lives, and knows better which jobs had begun."""

    def is_gone(self) -> bool:
        return is_gone(self.process) and is_gone(self.keeper)


_read = msgspec.json.Decoder(HostWorker).decode


def identity_of(pid: int) -> ProcessIdentity | None:
    """None where the system does not say for certain."""
    time_namespace = Path("/proc/self/ns/time")
    try:
        if Path("/proc/self").readlink() != Path(str(os.getpid())):
            return None  # the processes of another namespace
        return ProcessIdentity(
            boot=Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
            pid_namespace=Path("/proc/self/ns/pid").stat().st_ino,
            time_namespace=time_namespace.stat().st_ino if time_namespace.exists() else 0,
            pid=pid,
            started=int(_stat_fields(Path(f"/proc/{pid}"))[19]),
        )
    except (OSError, ValueError, IndexError):
        return None


def is_gone(process: ProcessIdentity) -> bool:
    """Whether this process has ended for certain."""
    us = identity_of(os.getpid())
    if us is None or (us.boot, us.pid_namespace, us.time_namespace) != (
        process.boot,
        process.pid_namespace,
        process.time_namespace,
    ):
        return False
    try:
        os.kill(process.pid, 0)  # also finds those that /proc hides from us
    except ProcessLookupError:
        return True
    except OSError:
        pass
    now = identity_of(process.pid)
    return now is not None and (now != process or _has_only_zombies(process.pid))


def _has_only_zombies(pid: int) -> bool:
    # A killed process is a zombie until its parent has collected it, under some inits for good. Its first thread may
    # be one while others still run.
    try:
        return all(_stat_fields(thread)[0] in {"Z", "X"} for thread in Path(f"/proc/{pid}/task").iterdir())
    except (OSError, IndexError):
        return False


def _stat_fields(folder: Path) -> list[str]:
    """From the state on: what stands before it is a name that may hold anything."""
    return (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()


class HostWorkers:
    """The workers of one store on this host. Without such memory, or where it is not ours alone, it knows none."""

    def __init__(self, clock: Clock, url: str, schema: str, key_prefix: str, *, shared: Path = SHARED) -> None:
        where = os.getcwd() if url.startswith("sqlite") else ""
        self._store = sha256(repr((url, schema, key_prefix, where)).encode()).hexdigest()
        self._clock, self._shared = clock, shared

    def add(self, worker: WorkerId, pid: int) -> None:
        """Note a worker that this process keeps, before it is registered in the store."""
        process, keeper = identity_of(pid), identity_of(os.getpid())
        if (folder := self._folder()) is None or process is None or keeper is None:
            return
        unfinished = folder / f".{worker.hex}"
        with suppress(OSError):
            unfinished.write_bytes(msgspec.json.encode(HostWorker(worker, self._store, process, keeper)))
            unfinished.rename(folder / worker.hex)

    def remove(self, worker: WorkerId) -> None:
        """Forget a worker whose leases have been returned."""
        if (folder := self._folder()) is not None:
            with suppress(OSError):
                (folder / worker.hex).unlink()

    def gone(self) -> tuple[WorkerId, ...]:
        """Workers of this store whose process is gone and whose leases nobody has returned."""
        if (folder := self._folder()) is None:
            return ()
        found = []
        with suppress(OSError):
            for file in sorted(folder.iterdir()):
                with suppress(OSError, msgspec.MsgspecError):
                    known = _read(file.read_bytes())
                    if not known.is_gone():
                        continue
                    if known.store == self._store:
                        found.append(known.worker)
                    elif self._clock.now().timestamp() - file.stat().st_mtime > FORGET_S:
                        file.unlink()
        return tuple(found)

    def lapse_gone(self, store: Store) -> None:
        """Take back the leases of those workers."""
        for worker in self.gone():
            try:
                reclaimed = store.run(Lapse(worker=worker)).reclaimed
                if reclaimed:
                    store.run(AddEvents(events=loss_events(reclaimed)))
            except FairlaneError as error:
                log.warning("the jobs of worker %s wait for its heartbeat to lapse: %s", worker, error)
                continue
            self.remove(worker)
            if reclaimed:
                log.warning("worker %s of this host is gone: its %d jobs are returned", worker, len(reclaimed))

    def _folder(self) -> Path | None:
        if sys.platform != "linux":
            return None
        folder = self._shared / f"fairlane-{os.getuid()}"
        try:
            with suppress(FileExistsError):
                folder.mkdir(0o700)
            found = folder.lstat()
        except OSError:
            return None
        is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
        return folder if is_ours else None
