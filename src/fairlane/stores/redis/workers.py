"""Workers: their heartbeat, the end of one, a list of them, and duties that one of them does for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from fairlane.core.ops import (
    MOST_EXCEPTIONS,
    CaughtException,
    DutyTaken,
    ExceptionsReported,
    Lapse,
    ListExceptions,
    ListWorkers,
    ReclaimResult,
    Renew,
    Renewed,
    ReportExceptions,
    Retire,
    Retired,
    TakeDuty,
    WorkerException,
    WorkerExceptions,
    WorkerRecord,
    Workers,
)
from fairlane.stores.instants import after, before, from_us
from fairlane.stores.redis.states import worker_id
from fairlane.stores.redis.steps import Script, Steps, Work, handles, pack
from fairlane.stores.redis.turn import reclaimed_of, start_of

_read_names = msgspec.msgpack.Decoder(tuple[str, ...]).decode
_read_figures = msgspec.json.Decoder(dict[str, float]).decode
_read_exceptions = msgspec.json.Decoder(tuple[CaughtException, ...]).decode


@handles
def renew(work: Work, op: Renew) -> Steps[Renewed]:
    worker = op.worker.hex
    [known] = yield from work.read(("ZSCORE", "workers", worker))
    expires_at = after(work.now, op.lease_s)
    fields: list[str | bytes | int] = [
        *("name", op.name, "renewed", work.now, "expires", expires_at),
        *("figures", msgspec.json.encode(op.figures).decode()),
    ]
    if known is None:
        fields += ["registered", work.now, "waiting", 0]
    work.do("HSET", f"worker:{worker}", *fields)
    work.act("names", f"worker:{worker}", "queues", op.queues, "types", op.types)
    work.do("ZADD", "workers", expires_at, worker)
    yield from work.commit()
    return Renewed(now=from_us(work.now), expires_at=from_us(expires_at), fresh=known is None)


@handles
def retire(work: Work, op: Retire) -> Steps[Retired]:
    released = yield Script("leases", (work.instant(), "retire", pack({"worker": op.worker.hex})))
    return Retired(released=released)


@handles
def lapse(work: Work, op: Lapse) -> Steps[ReclaimResult]:
    call = {"worker": op.worker.hex, "starts": [start_of(start) for start in op.starts]}
    rows = yield Script("leases", (work.instant(), "lapse", pack(call)))
    return ReclaimResult(reclaimed=reclaimed_of(rows))


@handles
def list_workers(work: Work, op: ListWorkers) -> Steps[Workers]:
    names, rows = yield from _rows(
        work, ("name", "registered", "renewed", "expires", "queues", "types", "waiting", "figures")
    )
    leases = yield from work.read(*(("ZCARD", f"leases:{name}") for name in names), watch=False)
    workers = [
        WorkerRecord(
            id=worker_id(worker),
            name=name.decode(),
            registered_at=from_us(int(registered)),
            renewed_at=from_us(int(renewed)),
            expires_at=from_us(int(expires)),
            queues=_read_names(queues),
            types=_read_names(types),
            waiting=waiting == b"1",
            leases=held,
            figures=_read_figures(figures),
        )
        for worker, held, (name, registered, renewed, expires, queues, types, waiting, figures) in zip(
            names, leases, rows, strict=True
        )
        if registered is not None
    ]
    workers.sort(key=lambda worker: (worker.registered_at, worker.id))
    return Workers(now=from_us(work.now), workers=tuple(workers))


def _rows(work: Work, fields: Sequence[str]) -> Steps[tuple[list[str], list[list[Any]]]]:
    """The same fields of every worker."""
    [found] = yield from work.read(("ZRANGE", "workers", 0, -1), watch=False)
    names = [name.decode() for name in found]
    rows = yield from work.read(*(("HMGET", f"worker:{name}", *fields) for name in names), watch=False)
    return names, rows


@handles
def report_exceptions(work: Work, op: ReportExceptions) -> Steps[ExceptionsReported]:
    [known] = yield from work.read(("EXISTS", f"worker:{op.worker.hex}"))
    if known:
        kept = msgspec.json.encode(op.exceptions[-MOST_EXCEPTIONS:]).decode()
        work.do("HSET", f"worker:{op.worker.hex}", "exceptions", kept)
        yield from work.commit()
    return ExceptionsReported(accepted=bool(known))


@handles
def list_exceptions(work: Work, op: ListExceptions) -> Steps[WorkerExceptions]:
    names, rows = yield from _rows(work, ("name", "exceptions"))
    found = [
        WorkerException(worker=worker_id(worker), name=name.decode(), caught=caught)
        for worker, (name, exceptions) in zip(names, rows, strict=True)
        if exceptions is not None
        for caught in _read_exceptions(exceptions)
        if op.scope.admits(caught.tenant)
    ]
    found.sort(key=lambda one: (one.worker, one.caught.id, one.caught.attempt))
    found.sort(key=lambda one: one.caught.at, reverse=True)
    return WorkerExceptions(exceptions=tuple(found[: op.limit]))


@handles
def take_duty(work: Work, op: TakeDuty) -> Steps[DutyTaken]:
    [last] = yield from work.read(("HGET", "duty", op.name))
    taken = last is None or int(last) <= before(work.now, op.every_s)
    if taken:
        work.do("HSET", "duty", op.name, work.now)
        yield from work.commit()
    return DutyTaken(taken=taken, now=from_us(work.now))
