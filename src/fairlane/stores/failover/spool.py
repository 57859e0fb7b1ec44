"""The spool: where enqueues wait while their store is away. A SQLite file in a directory, or memory.

Processes of one machine share a directory: each of them adds to the one file, and one at a time replays it.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from fairlane.core.chance import SystemChance
from fairlane.core.clock import Clock, SystemClock
from fairlane.core.ids import Seq
from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit, LimitsInForce
from fairlane.core.ops import Enqueue, EnqueueResult, LimitHit, Receipt
from fairlane.core.ops.enqueue import Disposition
from fairlane.errors import ConfigError, SpoolFull, StoreRefused, StoreUnavailable
from fairlane.stores.instants import from_us, to_us
from fairlane.stores.sqlite.connection import Database
from fairlane.stores.sqlite.driver import Driver, Library
from fairlane.stores.sqlite.location import located
from fairlane.stores.sqlite.memory import MemoryDatabase

MEMORY = "memory"
FILE, REPLAY_LOCK, LOCAL_LOCK = "spool.db", "replay.lock", "local.lock"
_FILES = (FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal", REPLAY_LOCK, LOCAL_LOCK)
PATIENCE_S = 5.0
"""How long an enqueue waits for other processes that write to the spool."""
PAGE_SIZE = 8_000_000
"""Characters after which a page of jobs ends: a call to the store carries no more than that and one job."""

_TABLES = (
    """create table if not exists fairlane_spool (
  seq        integer primary key autoincrement,
  id         text not null unique,
  spooled_at integer not null,
  terms      text not null,               -- capacity and limits of the call
  spec       text not null,
  local      integer not null default 0,  -- 1: a worker of this machine runs it
  sent       integer not null,            -- 1: the store may have it
  refused    text                         -- why the store refused it at the last replay
)""",
    "create index if not exists fairlane_spool_local on fairlane_spool (seq) where local = 1",
    "create index if not exists fairlane_spool_refused on fairlane_spool (seq) where refused is not null",
    # A count of its own: counting a hundred thousand rows takes longer than adding one.
    "create table if not exists fairlane_spool_state (jobs integer not null, owner text not null)",
)


class SpoolUnavailable(StoreUnavailable):
    """The spool cannot be used: this says nothing about its store, which may well answer."""


class Terms(Struct, frozen=True, omit_defaults=True):
    """What an enqueue was asked to keep to."""

    capacity: int | None = None
    limits: tuple[Limit, ...] = ()


class SpooledJob(Struct, frozen=True):
    seq: int
    spooled_at: datetime
    terms: Terms
    spec: JobSpec
    sent: bool
    """The store may have it: only the replay can tell."""
    refused: str | None

    def as_of(self, now: datetime) -> JobSpec:
        """The job with what is left of its delay: the store counts a delay from when it gets the job."""
        if self.spec.delay_s is None or self.spec.run_at is not None:
            return self.spec
        waited_s = max((now - self.spooled_at).total_seconds(), 0.0)
        return replace(self.spec, delay_s=max(self.spec.delay_s - waited_s, 0.0))


class SpoolDepth(Struct, frozen=True, kw_only=True):
    jobs: int
    refused: int
    """Those of them that the store refused at the last replay."""
    oldest_at: datetime | None
    reason: str | None = None
    """Why the oldest refused one was."""


class Spool:
    """Jobs in the order in which they were acknowledged. What `add` returns from is on disk, unless in memory.

    `owner` names the store that the jobs are meant for: a directory with jobs for another one is refused. None: only
    looks at what is there.
    """

    def __init__(
        self,
        place: str | os.PathLike[str] = MEMORY,
        *,
        owner: str | None = "",
        capacity: int = 100_000,
        library: Library = "apsw",
        clock: Clock | None = None,
    ) -> None:
        self.capacity, self._clock = capacity, clock or SystemClock()
        self.place = MEMORY if place == MEMORY else str(Path(place).absolute())
        self._replay_lock: FileLock | ThreadLock
        self._local_lock: FileLock | ThreadLock
        self._database: Database | MemoryDatabase
        if self.place == MEMORY:
            self._database = memory = MemoryDatabase(library)
            self._change, self._read = _of_the_spool(memory.change), _of_the_spool(memory.read)
            self._replay_lock, self._local_lock = ThreadLock(), ThreadLock()
        else:
            directory = _directory(Path(self.place))
            self._database = file = Database(located(directory / FILE), library, PATIENCE_S, SystemChance())
            self._change = _of_the_spool(file.change_any_schema)
            self._read = _of_the_spool(file.read_any_schema)
            self._replay_lock, self._local_lock = FileLock(directory / REPLAY_LOCK), FileLock(directory / LOCAL_LOCK)
        if owner is None:
            return
        try:
            self._change(lambda db: self._set_up(db, owner))
        except BaseException:
            self._database.close()
            raise

    def add(self, op: Enqueue, *, sent: bool = False) -> EnqueueResult:
        """Keep all jobs of a call, or raise `SpoolFull`. A job that is there already is kept once.

        `sent`: the store may have done the call. Keys, and limits kept in the store, are looked at at the replay.
        """
        if refused := _too_large(op):
            return EnqueueResult(refused=refused)
        now = to_us(self._clock.now())
        terms = msgspec.json.encode(Terms(op.capacity, op.limits)).decode()
        rows = [(str(job.id), now, terms, _text(job), sent) for job in op.jobs]

        def work(db: Driver) -> tuple[int, list[Disposition]]:
            [(before,)] = db.execute("select jobs from fairlane_spool_state")
            if before + len(rows) > self.capacity:
                raise SpoolFull(before, self.capacity)
            found = [_added(db, row) for row in rows]
            db.execute("update fairlane_spool_state set jobs = jobs + ?", (found.count("created"),))
            return before, found

        before, dispositions = self._change(work)
        receipts = [
            Receipt(disposition=how, id=job.id, seq=Seq(0)) for job, how in zip(op.jobs, dispositions, strict=True)
        ]
        return EnqueueResult(receipts=tuple(receipts), spooled=True, depth=before)

    def page(self, after: int, limit: int) -> list[SpooledJob]:
        """The next jobs in order that no worker runs; `after` is the `seq` of the last one seen, 0 at the beginning."""
        sql = (
            "select seq, spooled_at, terms, spec, sent, refused from "
            "(select *, sum(length(spec)) over (order by seq) - length(spec) as ahead from "
            "(select * from fairlane_spool where seq > ? and local = 0 order by seq limit ?)) "
            "where ahead < ? order by seq"
        )
        return [
            SpooledJob(seq, from_us(at), _read_terms(terms), _read_spec(spec), bool(sent), refused)
            for seq, at, terms, spec, sent, refused in self._read(lambda db: db.execute(sql, (after, limit, PAGE_SIZE)))
        ]

    def remove(self, jobs: Iterable[SpooledJob]) -> None:
        """Forget jobs that the store has."""
        keys = [(job.seq,) for job in jobs]

        def work(db: Driver) -> None:
            [(before,)] = db.execute("select total_changes()")
            db.executemany("delete from fairlane_spool where seq = ?", keys)
            [(after,)] = db.execute("select total_changes()")
            db.execute("update fairlane_spool_state set jobs = jobs - ?", (after - before,))

        if keys:
            self._change(work)

    def refuse(self, reasons: Mapping[int, str]) -> None:
        """Note why the store refused jobs; they stay."""
        rows = [(reason, seq) for seq, reason in reasons.items()]
        self._change(lambda db: db.executemany("update fairlane_spool set refused = ? where seq = ?", rows))

    def depth(self) -> SpoolDepth:
        def work(db: Driver) -> SpoolDepth:
            [(jobs,)] = db.execute("select jobs from fairlane_spool_state")
            oldest = db.execute("select spooled_at from fairlane_spool order by seq limit 1") if jobs else []
            [(refused,)] = db.execute("select count(*) from fairlane_spool where refused is not null")
            first = "select refused from fairlane_spool where refused is not null order by seq limit 1"
            reasons = db.execute(first) if refused else []
            return SpoolDepth(
                jobs=jobs,
                refused=refused,
                oldest_at=from_us(oldest[0][0]) if oldest else None,
                reason=reasons[0][0] if reasons else None,
            )

        found: SpoolDepth = self._read(work)
        return found

    def replaying(self) -> AbstractContextManager[bool]:
        """Whether this process may send or take jobs now; no other one can before it leaves."""
        return self._replay_lock.held()

    def running(self) -> AbstractContextManager[bool]:
        """Whether this process may run jobs now; no other one of the machine can before it leaves."""
        return self._local_lock.held()

    def take(self, jobs: Iterable[SpooledJob]) -> None:
        """Keep jobs from the replay, while this process runs them."""
        self._mark("local = 1", jobs)

    def give_back(self, jobs: Iterable[SpooledJob]) -> None:
        """Leave jobs to the replay again."""
        self._mark("local = 0", jobs)

    def note_sent(self, jobs: Iterable[SpooledJob]) -> None:
        """The store may have these from now on: they are not run here."""
        self._mark("sent = 1", [job for job in jobs if not job.sent])

    def release_abandoned(self) -> None:
        """Give back what a process had taken that has died."""
        with self._local_lock.held() as ours:
            if ours:
                self._change(lambda db: db.execute("update fairlane_spool set local = 0 where local = 1"))

    def _mark(self, change: Literal["local = 1", "local = 0", "sent = 1"], jobs: Iterable[SpooledJob]) -> None:
        rows = [(job.seq,) for job in jobs]
        if rows:
            sql = f"update fairlane_spool set {change} where seq = ?"  # noqa: S608 - one of three texts of ours
            self._change(lambda db: db.executemany(sql, rows))

    def close(self) -> None:
        self._database.close()

    def _set_up(self, db: Driver, owner: str) -> None:
        for table in _TABLES:
            db.execute(table)
        # Counted anew: people may have removed a job by hand.
        db.execute("update fairlane_spool_state set jobs = (select count(*) from fairlane_spool)")
        found = db.execute("select jobs, owner from fairlane_spool_state")
        if not found:
            db.execute("insert into fairlane_spool_state (jobs, owner) values (0, ?)", (owner,))
        elif found[0][1] != owner:
            jobs, theirs = found[0]
            if jobs:
                raise ConfigError(
                    f'spool = "{self.place}" holds {jobs} jobs for {theirs}, and this store is {owner}: give this one '
                    "a directory of its own, or start once with the other address until the spool is empty"
                )
            db.execute("update fairlane_spool_state set owner = ?", (owner,))


def _of_the_spool(call: Callable[[Callable[[Driver], Any]], Any]) -> Callable[[Callable[[Driver], Any]], Any]:
    """The same, with errors that cannot be taken for those of the primary."""

    def run(work: Callable[[Driver], Any]) -> Any:
        try:
            return call(work)
        except StoreUnavailable as error:
            raise SpoolUnavailable("spool", error.why, error.problem) from error

    return run


def _directory(place: Path) -> Path:
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f'spool = "{place}": the directory cannot be made ({error.strerror}); name one this process may write, '
            'or "memory"'
        ) from None
    _require_private(place, stat.S_ISDIR)
    for name in _FILES:
        with suppress(FileNotFoundError):
            _require_private(place / name, stat.S_ISREG)
    return place


def _require_private(place: Path, is_kind: Callable[[int], bool]) -> None:
    """Refuse what others could have put there: they would add jobs of any tenant, or read what is spooled.

    The directory above is not looked at: whoever may write in it can move this one away, but not put a file into it.
    """
    found, user = place.lstat(), os.geteuid()
    if not is_kind(found.st_mode):
        problem = "it is a symbolic link" if place.is_symlink() else "it is neither a directory nor a plain file"
    elif found.st_uid != user:
        problem = f"it belongs to user {found.st_uid}, and this process runs as {user}"
    elif found.st_mode & 0o022:
        problem = f"others may write to it (mode {found.st_mode & 0o7777:04o}; `chmod go-w` it if none has)"
    else:
        return
    raise ConfigError(
        f'spool = "{place}": {problem}. Name a directory of this user\'s own; one that is not there yet is made so'
    )


def _too_large(op: Enqueue) -> LimitHit | None:
    """The payload limits of the code are known here; those kept in the store are not before the replay."""
    if not op.limits:
        return None
    in_force = LimitsInForce(op.limits)
    for job in op.jobs:
        most, size = in_force.terms(job.tenant, job.queue).payload_bytes, len(bytes(job.payload))
        if most is not None and size > most:
            return LimitHit(
                tenant=job.tenant, queue=job.queue, cause="payload_bytes", limit=most, found=size, policy="reject"
            )
    return None


def _added(db: Driver, row: tuple[str, int, str, str, bool]) -> Disposition:
    added = (
        "insert into fairlane_spool (id, spooled_at, terms, spec, sent) values (?, ?, ?, ?, ?) on conflict do nothing"
    )
    if db.execute(f"{added} returning 1", row):
        return "created"
    [(spec,)] = db.execute("select spec from fairlane_spool where id = ?", (row[0],))
    return "replayed" if spec == row[3] else "conflict"


def _text(job: JobSpec) -> str:
    try:
        text = msgspec.json.encode(job)
        _read_spec(text)
        return text.decode()
    except (UnicodeError, msgspec.DecodeError) as error:
        raise StoreRefused("spool", f"a job that cannot be read back: {error}") from None


_read_spec = msgspec.json.Decoder(JobSpec).decode
_read_terms = msgspec.json.Decoder(Terms).decode


class FileLock:
    """A lock that the system releases when its process ends, however it ends."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._files: set[int] = set()
        _locks.add(self)

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Whether it is ours; does not wait."""
        file = os.open(self._place, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        self._files.add(file)
        try:
            yield _is_locked(file)
        finally:
            self._files.discard(file)
            os.close(file)

    def forget(self) -> None:
        """In a forked child: a copy of the file would hold the lock for as long as the child lives."""
        while self._files:
            os.close(self._files.pop())


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ThreadLock:
    """The same within one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[bool]:
        ours = self._lock.acquire(blocking=False)
        try:
            yield ours
        finally:
            if ours:
                self._lock.release()


_locks: WeakSet[FileLock] = WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock.forget()


os.register_at_fork(after_in_child=_after_fork)
