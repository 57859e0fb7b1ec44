"""Durable steps: what a running job has behind it, so that a later attempt does not repeat it.

A step is numbered by its place in the job's code, from 1, and is written once. Every write names the lease (seq,
attempt, claim_no, worker) and changes nothing once that is gone. Steps are removed with their job; a job made from a
dead letter takes those of the dead one along, and its attempts then begin with number 2.
"""

from __future__ import annotations

from msgspec import Raw, Struct

from fairlane.core.ids import Seq, WorkerId
from fairlane.core.job import StepRecord
from fairlane.core.ops.base import Op, T


class StepAnswer(Struct, frozen=True, kw_only=True):
    accepted: bool
    """False: the lease is gone; nothing was written or read."""
    step: StepRecord | None = None


class _OfAttempt(Op[T], frozen=True, kw_only=True):
    worker: WorkerId
    seq: Seq
    attempt: int
    claim_no: int


class RecordStep(_OfAttempt[StepAnswer], frozen=True, kw_only=True):
    """Record that step `n`, a call, returned. One that is recorded stays as it is, and is the answer."""

    n: int
    name: str
    result: Raw | None = None
    """JSON text; None where it returned None."""
    ran_s: float | None = None


class RecordedSteps(Struct, frozen=True, kw_only=True):
    accepted: bool
    """False: the lease is gone."""
    steps: tuple[StepRecord, ...] = ()
    """By `n`."""


class ReadSteps(_OfAttempt[RecordedSteps], frozen=True, kw_only=True):
    """The durable steps of the job that this attempt runs."""


class SignalAnswer(Struct, frozen=True, kw_only=True):
    accepted: bool
    """False: the lease is gone; nothing was written."""
    step: StepRecord | None = None
    """The recorded step; None: there is no signal yet, and the job has not waited long enough."""
    left_s: float | None = None
    """How much longer the job may wait in this step; None: it has not begun to."""


class TakeSignal(_OfAttempt[SignalAnswer], frozen=True, kw_only=True):
    """Record the signal for which the job waits in step `n`, if it is there.

    The oldest signal, by the instant and then the id of its emission, of the job's tenant with this name and key that
    the job has not had in another step. If there is none and the job has waited in this step until its timeout, the
    step is recorded without a signal. A step that is recorded stays as it is, and is the answer.
    """

    n: int
    name: str
    key: str = ""
