"""Wake-ups between processes: one Unix datagram socket per worker, beside the file.

    enqueue ── commit ──▶ empty datagram ──▶ worker's socket ──▶ wait() returns

A wake-up is a hint. A lost one costs a second: the listener also looks whether the file has changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import socket
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops.enqueue import Notify
from fairlane.errors import StoreError, StoreUnavailable
from fairlane.stores.sqlite.connection import StoreThread
from fairlane.stores.sqlite.facts import are_keys_used
from fairlane.stores.sqlite.limits.in_force import ApplicableLimits
from fairlane.stores.sqlite.transaction import Transaction

WAKE_AT_MOST = 4
POLL_S = 1.0
_LONGEST_ADDRESS = 100
"""Bytes; the system takes 107 on Linux, 103 elsewhere."""

_NEXT_QUEUE = "select min(queue) from fairlane_ready where queue > ?"
_MAY_BE_LET_IN = """
select (select queue from fairlane_job_key k where k.key = n.key and k.tenant = n.tenant and k.state = 'held' limit 1)
from fairlane_knock n where n.at <= ? order by n.at limit 100
"""
_LISTENING = "select wake_address, queues from fairlane_worker where wake_address is not null and expires_at > ?"


def addresses_to_wake(tx: Transaction, notify: Notify, queues: set[str], but: WorkerId | None = None) -> list[str]:
    """Workers that serve one of the queues and want to be woken, `but` one."""
    if notify == "never":
        return []
    waiting = " and waiting" if notify == "if_waiting" else ""
    rows = tx.db.execute(f"{_LISTENING} and id is not ?{waiting}", (tx.now, None if but is None else but.bytes))
    return [address for address, served in rows if _serves(served, queues)]


def wake_for_ready(tx: Transaction, but: WorkerId | None = None) -> None:
    """Wake waiting workers that serve queues with ready jobs."""
    queues: set[str] = set()
    last = ""
    while (last := tx.db.execute(_NEXT_QUEUE, (last,))[0][0]) is not None:
        queues.add(last)
    _wake(tx, queues | _queues_at_keys(tx), but)


def wake_for_places(tx: Transaction) -> None:
    """Wake waiting workers that serve queues of jobs that may be let in by their keys."""
    _wake(tx, _queues_at_keys(tx))


def _queues_at_keys(tx: Transaction) -> set[str]:
    if not are_keys_used(tx):
        return set()
    return {queue for (queue,) in tx.db.execute(_MAY_BE_LET_IN, (tx.now,)) if queue is not None}


def _wake(tx: Transaction, queues: set[str], but: WorkerId | None = None) -> None:
    if queues:
        tx.wakes.extend(addresses_to_wake(tx, "if_waiting", queues, but))


def wake_for_room(tx: Transaction, applicable: ApplicableLimits | None, taken: Sequence[Lease], but: WorkerId) -> None:
    """Wake waiting workers if leases ended under a running limit and the Turn that ended them has not claimed as many
    again."""
    freed, tx.freed = tx.freed, []
    if applicable is None:
        return
    left = Counter(key for lease in freed for key in applicable.counted_by(*lease))
    left.subtract(key for lease in taken for key in applicable.counted_by(lease.queue, lease.tenant, lease.type))
    if any(places > 0 for places in left.values()):
        wake_for_ready(tx, but)


def _serves(served: str, queues: set[str]) -> bool:
    names = msgspec.json.decode(served)
    return not names or not queues.isdisjoint(names)


def wake(addresses: Iterable[str]) -> None:
    """Send the hints, to some of the workers when there are many.

    Never waits and never fails: the owner of a dead socket is gone, that of a full one is awake.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        for address in list(dict.fromkeys(addresses))[:WAKE_AT_MOST]:
            with contextlib.suppress(OSError, ValueError):
                sender.sendto(b"", address)


def address_for(place: Path, worker: WorkerId) -> str:
    beside = f"{place}.{worker.hex}.wake"
    if len(os.fsencode(beside)) <= _LONGEST_ADDRESS:
        return beside
    return os.path.join(tempfile.gettempdir(), f"fairlane-{sha256(beside.encode()).hexdigest()[:32]}.wake")


class SqliteListener:
    """Waits for wake-ups of one worker; looks at the file itself once a second."""

    def __init__(self, place: Path, worker: WorkerId, data_version: Callable[[], int], thread: StoreThread) -> None:
        self.address: str | None = address_for(place, worker)
        self._data_version, self._thread = data_version, thread
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)
        try:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.address)
            self._socket.bind(self.address)
            os.chmod(self.address, 0o600)
            self._seen = data_version()
        except OSError as error:
            self._socket.close()
            raise StoreUnavailable("sqlite", f"no wake-up socket at {self.address}: {error.strerror}") from error
        except StoreError:
            self.close()
            raise

    def wait(self, timeout_s: float) -> bool:
        left_s = timeout_s
        while True:
            slice_s = max(min(left_s, POLL_S), 0.0)
            if select.select([self._socket], [], [], slice_s)[0]:
                return self._drain()
            left_s -= slice_s
            if self._has_changed(self._data_version()):
                return True
            if left_s <= 0:
                return False

    async def await_(self, timeout_s: float) -> bool:
        loop = asyncio.get_running_loop()
        left_s = timeout_s
        while True:
            slice_s = max(min(left_s, POLL_S), 0.0)
            woken = asyncio.Event()
            loop.add_reader(self._socket, woken.set)
            try:
                await asyncio.wait_for(woken.wait(), slice_s)
                return self._drain()
            except TimeoutError:
                left_s -= slice_s
            finally:
                loop.remove_reader(self._socket)
            if self._has_changed(await self._thread.submit(self._data_version)):
                return True
            if left_s <= 0:
                return False

    def prove(self) -> None:
        if self.address is not None:
            wake([self.address])

    def close(self) -> None:
        self._socket.close()
        if self.address is not None:
            with contextlib.suppress(OSError):
                os.unlink(self.address)

    def _drain(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            while True:
                self._socket.recv(1)
        return True

    def _has_changed(self, version: int) -> bool:
        changed, self._seen = version != self._seen, version
        return changed
