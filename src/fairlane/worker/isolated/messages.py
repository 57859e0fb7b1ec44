"""What a worker and its children say to each other: a call, then what the attempt says of itself, then the answer. Raw JSON travels as text: msgspec reads no `Raw | None`."""

from __future__ import annotations

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from fairlane.core.job import Lease
from fairlane.core.outcome import Completed, Outcome

READY = b'"ready"'


class _Call(Struct, frozen=True):
    lease: Lease
    retry: str | None


class _Answer(Struct, frozen=True, tag="answer"):
    outcome: Outcome
    result: str | None


class Said(Struct, frozen=True, omit_defaults=True, tag="said"):
    """What a running attempt says of itself, ahead of its answer."""

    progress: float | None = None
    line: str | None = None


_read_call = msgspec.json.Decoder(_Call).decode
_read_answer = msgspec.json.Decoder(_Answer | Said).decode


def write_call(lease: Lease) -> bytes:
    retry = None if lease.retry is None else bytes(lease.retry).decode()
    return msgspec.json.encode(_Call(replace(lease, retry=None), retry))


def read_call(body: bytes) -> Lease:
    call = _read_call(body)
    return call.lease if call.retry is None else replace(call.lease, retry=Raw(call.retry.encode()))


def write_answer(outcome: Outcome) -> bytes:
    if isinstance(outcome, Completed) and outcome.result is not None:
        return msgspec.json.encode(_Answer(replace(outcome, result=None), bytes(outcome.result).decode()))
    return msgspec.json.encode(_Answer(outcome, None))


def write_said(said: Said) -> bytes:
    return msgspec.json.encode(said)


def read_answer(body: bytes) -> Outcome | Said:
    answer: _Answer | Said = _read_answer(body)
    if isinstance(answer, Said):
        return answer
    if isinstance(answer.outcome, Completed) and answer.result is not None:
        return replace(answer.outcome, result=Raw(answer.result.encode()))
    return answer.outcome
