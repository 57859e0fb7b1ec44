"""Turns an operation into the call of one SQL function: `Reprocess(…)` into `reprocess_v1('{…}')`.

The function takes the operation as one JSON object and answers with JSON of the operation's `answer` type.
`Enqueue` and `Turn`, whose every microsecond counts, have calls of their own in `enqueue` and `turn`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import psycopg
from msgspec import Raw
from psycopg import postgres
from psycopg.pq import Format

from fairlane.core.job import JobSpec
from fairlane.core.limits import Limit
from fairlane.core.ops import Op

T = TypeVar("T")

Rows = Sequence[tuple[Any, ...]]


def keeps_any_bytes(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> bool:
    """Whether the database has the encoding SQL_ASCII, where one row of odd bytes spoils a whole answer."""
    return conn.info.parameter_status("server_encoding") == "SQL_ASCII"


_TEXTS = frozenset(postgres.types[name].oid for name in ("text", "varchar", "name", "json"))


class GarbledRows(list[tuple[Any, ...]]):
    """The answer to a call, as bytes of no encoding: U+FFFD stands where they are no UTF-8."""

    def __init__(self, cursor: psycopg.Cursor[Any] | psycopg.AsyncCursor[Any]) -> None:
        super().__init__()
        self.garbled: set[int] = set()
        """Places of the rows in which something was replaced."""
        result = cursor.pgresult
        assert result is not None
        columns = [(place, result.ftype(place), Format(result.fformat(place))) for place in range(result.nfields)]
        loaders = [cursor.adapters.get_loader(oid, how) for _, oid, how in columns]
        for row in range(result.ntuples):
            values: list[Any] = []
            for (place, oid, _), loader in zip(columns, loaders, strict=True):
                raw = result.get_value(row, place)
                if raw is None:
                    values.append(None)
                elif oid in _TEXTS:
                    values.append(raw.decode("utf-8", "replace"))
                    if values[-1].encode() != raw:
                        self.garbled.add(row)
                else:
                    assert loader is not None
                    values.append(loader(oid, cursor).load(raw))
            self.append(tuple(values))


class Call(NamedTuple, Generic[T]):
    sql: str
    """With `%s` for parameters and `{schema}` for the quoted schema name."""
    params: tuple[object, ...]
    read: Callable[[Rows], T]
    has_text: bool = False
    """It answers with one text, and its parameters are texts and numbers."""


def operation_call(op: Op[T]) -> Call[T]:
    sql, read = _sql_and_reader(type(op))
    return Call(sql, (json_text(op),), read, has_text=True)


def function_of(kind: type[Op[Any]]) -> str:
    """The SQL function of an operation: `GetDeadLetter` has `get_dead_letter_v1`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower() + "_v1"


def answer_reader(answer: type[T]) -> Callable[[Rows], T]:
    """Reads the answer of a function: one row with one JSON text, or null where there is none."""
    decode = msgspec.json.Decoder(answer).decode

    def read(rows: Rows) -> T:
        text = rows[0][0]
        return decode(b"null" if text is None else text)

    return read


def json_text(value: object) -> str:
    """An operation, or a list of jobs, as the JSON text that functions take."""
    text = msgspec.json.encode(value)
    if b"\\u" in text:
        # Escapes that no PostgreSQL text can hold stay escaped only within a string of their own.
        text = msgspec.json.encode(_with_payloads_as_text(value))
    return text.decode()


def limits_text(limits: Sequence[Limit]) -> str | None:
    """Limits as JSON text, of each thing the one given last; None: there are none."""
    last = {limit.key: limit for limit in limits}
    return msgspec.json.encode(list(last.values())).decode() if last else None


def instant(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat()


@cache
def _sql_and_reader(kind: type[Op[Any]]) -> tuple[str, Callable[[Rows], Any]]:
    sql = f"select {{schema}}.{function_of(kind)}(%s::json)::text"
    return sql, answer_reader(kind.answer)  # type: ignore[arg-type]


def _with_payloads_as_text(value: object) -> object:
    """The same with `payload_text` in place of each `payload` of a job to be made, and so on for all JSON given."""
    if isinstance(value, list | tuple):
        return [_with_payloads_as_text(one) for one in value]
    if isinstance(value, JobSpec):  # its defaults are left out
        bare = msgspec.json.encode(msgspec.structs.replace(value, payload=Raw(b"null")))
        return msgspec.json.decode(bare, type=dict[str, Raw]) | {"payload_text": bytes(value.payload).decode()}
    if isinstance(value, Op):
        fields = {name: _with_payloads_as_text(getattr(value, name)) for name in value.__struct_fields__}
        texts = {name: bytes(given).decode() for name, given in fields.items() if isinstance(given, Raw)}
        return {name: given for name, given in fields.items() if name not in texts} | {
            f"{name}_text": text for name, text in texts.items()
        }
    return value
