"""The messages between a worker and its children, in frames of four bytes of length, then JSON.

A call, then progress of the attempt and questions about its steps, each with its reply, then the answer: twice, before
and after its hooks, if it has any. Raw JSON travels as text: msgspec reads no `Raw | None`.
"""

from __future__ import annotations

import asyncio
import struct
from typing import Any, BinaryIO, TypeVar

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import Op, ReadSteps, RecordStep, TakeSignal
from fairlane.core.outcome import Completed, Outcome
from fairlane.errors import StoreUnavailable

T = TypeVar("T")

_LENGTH = struct.Struct(">I")


def write_frame(stream: BinaryIO, body: bytes) -> None:
    stream.write(_LENGTH.pack(len(body)) + body)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes | None:
    """The next frame; None when the other side has closed."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(head)
    body = stream.read(length)
    return body if len(body) == length else None


def frame(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


async def aread_frame(stream: asyncio.StreamReader) -> bytes | None:
    try:
        (length,) = _LENGTH.unpack(await stream.readexactly(_LENGTH.size))
        return await stream.readexactly(length)
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


READY = b'"ready"'


class _CallFrame(Struct, frozen=True):
    lease: Lease
    retry: str | None


class _AnswerFrame(Struct, frozen=True, tag="answer"):
    outcome: Outcome
    result: str | None
    is_last: bool = True


class ProgressNote(Struct, frozen=True, omit_defaults=True, tag="progress"):
    """Progress or a log line of a running attempt, sent before its answer."""

    progress: float | None = None
    line: str | None = None


class StepQuestion(Struct, frozen=True, tag="step"):
    """An operation on the durable steps of the running attempt, sent before its answer; the reply is the next frame."""

    name: str
    op: str
    """Its fields as JSON; the JSON it carries, as text."""
    result: str | None = None


_read_call = msgspec.json.Decoder(_CallFrame).decode
_read_answer = msgspec.json.Decoder(_AnswerFrame | ProgressNote | StepQuestion).decode

STEP_OPS: dict[str, type[Any]] = {op.__name__: op for op in (ReadSteps, RecordStep, TakeSignal)}


def write_call(lease: Lease) -> bytes:
    retry = None if lease.retry is None else bytes(lease.retry).decode()
    return msgspec.json.encode(_CallFrame(replace(lease, retry=None), retry))


def read_call(body: bytes) -> Lease:
    call = _read_call(body)
    return call.lease if call.retry is None else replace(call.lease, retry=Raw(call.retry.encode()))


def write_answer(outcome: Outcome, *, is_last: bool = True) -> bytes:
    if isinstance(outcome, Completed) and outcome.result is not None:
        result = bytes(outcome.result).decode()
        return msgspec.json.encode(_AnswerFrame(replace(outcome, result=None), result, is_last))
    return msgspec.json.encode(_AnswerFrame(outcome, None, is_last))


def write_question(op: Any) -> bytes:
    """A question about steps; the worker adds its own name."""
    result = getattr(op, "result", None)
    plain = op if result is None else replace(op, result=None)
    text = None if result is None else bytes(result).decode()
    return msgspec.json.encode(StepQuestion(type(op).__name__, msgspec.json.encode(plain).decode(), text))


def read_question(question: StepQuestion, worker: WorkerId) -> Op[Any]:
    fields = msgspec.json.decode(question.op)
    fields |= {"worker": worker, "now": None}
    if question.result is not None:
        fields["result"] = Raw(question.result.encode())
    op: Op[Any] = STEP_OPS[question.name](**fields)
    return op


def write_reply(answer: object) -> bytes:
    return msgspec.json.encode(answer)


def read_reply(op: Op[T], body: bytes) -> T:
    """The answer to a question; raises what kept the worker from answering it."""
    reply = msgspec.json.decode(body)
    if "store_error" in reply:
        raise StoreUnavailable("store", reply["store_error"])
    answer: T = msgspec.convert(reply, type=type(op).answer)
    return answer


def write_note(note: ProgressNote) -> bytes:
    return msgspec.json.encode(note)


def read_answer(body: bytes) -> tuple[Outcome, bool] | ProgressNote | StepQuestion:
    """An outcome, and whether nothing comes after it."""
    answer: _AnswerFrame | ProgressNote | StepQuestion = _read_answer(body)
    if isinstance(answer, (ProgressNote, StepQuestion)):
        return answer
    if isinstance(answer.outcome, Completed) and answer.result is not None:
        return replace(answer.outcome, result=Raw(answer.result.encode())), answer.is_last
    return answer.outcome, answer.is_last
