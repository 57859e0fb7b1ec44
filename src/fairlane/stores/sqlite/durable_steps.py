"""Durable steps of jobs, each written once and under the lease of the attempt that runs."""

from __future__ import annotations

from fairlane.core.job import StepRecord
from fairlane.core.ops import ReadSteps, RecordedSteps, RecordStep, StepAnswer
from fairlane.stores.sqlite.facts import is_leased
from fairlane.stores.sqlite.rows import RowReader
from fairlane.stores.sqlite.transaction import Transaction, change, reading, text_of

_step = RowReader(StepRecord)
_STEPS = f"select {_step.columns} from fairlane_step where seq = ?"  # noqa: S608
_RECORD = f"insert into fairlane_step (seq, {_step.columns}) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_COPY = f"""
insert into fairlane_step (seq, {_step.columns}) select ?, {_step.columns} from fairlane_step where seq = ? returning 1
"""  # noqa: S608


@change
def record(tx: Transaction, op: RecordStep) -> StepAnswer:
    if not is_leased(tx, op):
        return StepAnswer(accepted=False)
    if read_step(tx, op.seq, op.n) is None:
        result = None if op.result is None else text_of(op.result, "the result of a step of job", op.seq)
        write_step(tx, op.seq, op.n, "call", op.name, op.attempt, ran_s=op.ran_s, result=result)
    return StepAnswer(accepted=True, step=read_step(tx, op.seq, op.n))


@reading
def read(tx: Transaction, op: ReadSteps) -> RecordedSteps:
    if not is_leased(tx, op):
        return RecordedSteps(accepted=False)
    return RecordedSteps(accepted=True, steps=read_steps(tx, op.seq))


def write_step(
    tx: Transaction,
    seq: int,
    n: int,
    kind: str,
    name: str,
    attempt: int,
    *,
    key: str = "",
    ran_s: float | None = None,
    result: str | None = None,
    until: int | None = None,
    signal: bytes | None = None,
) -> None:
    tx.db.execute(_RECORD, (seq, n, kind, name, key, attempt, tx.now, ran_s, result, until, signal))


def read_step(tx: Transaction, seq: int, n: int) -> StepRecord | None:
    rows = tx.db.execute(f"{_STEPS} and n = ?", (seq, n))
    return _step(rows[0]) if rows else None


def read_steps(tx: Transaction, seq: int) -> tuple[StepRecord, ...]:
    return tuple(map(_step, tx.db.execute(f"{_STEPS} order by n", (seq,))))


def copy_steps(tx: Transaction, seq: int, new: int) -> bool:
    """Give a new job the steps of another; whether there are any."""
    return bool(tx.db.execute(_COPY, (new, seq)))
