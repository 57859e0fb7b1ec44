"""The fields of requests and responses: kinds of text, filters, pages, and selections from the Structs of core.

shape(…)      a response with the fields of a Struct, some omitted or added
Selection(…)  a response with fields of a Struct and of nested Structs, some renamed
accepting(…)  the body of a request with fields of a Struct
where(…)      a filter as query parameters; `Matching` is the same filter in a body
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from operator import attrgetter
from typing import Annotated, Any, Generic, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from fastapi import Depends, Path, Query
from msgspec import Meta, Struct
from msgspec.structs import FieldInfo
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    create_model,
)
from pydantic_core import CoreSchema, core_schema
from starlette.convertors import StringConvertor, register_url_convertor

from fairlane.core.ids import Seq
from fairlane.core.job import STATUSES
from fairlane.core.limits import Rate
from fairlane.core.ops import MAX_PAGE
from fairlane.core.payload.redaction import without_secrets

F = TypeVar("F", bound=Struct)

_NAME = r"^[a-zA-Z0-9_.:-]{1,128}$"
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]+$"

Name = Annotated[str, StringConstraints(pattern=_NAME)]
"""The name of a task, a queue, a breaker, a schedule or a limit."""
TenantName = Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=_PRINTABLE)]
Key = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=_PRINTABLE)]
"""A correlation id, an idempotency key, a person."""
Words = Annotated[
    str, StringConstraints(min_length=1, max_length=2000, pattern=r"^[^\x00]+$"), AfterValidator(without_secrets)
]
"""Free text for people; secrets in it are redacted before it is stored."""


def _within_reach(at: datetime) -> datetime:
    # The first and last years cannot be converted between time zones, and not every store accepts them.
    if not 1970 <= at.year <= 9000:
        raise ValueError("expected a year from 1970 to 9000")
    return at.astimezone(UTC)


Instant = Annotated[AwareDatetime, AfterValidator(_within_reach)]
RateText = Annotated[str, Field(max_length=40, pattern=r"^[0-9a-z /.]+$", examples=["50/min"])]
RowId = Annotated[int, Field(ge=1, le=2**63 - 1)]


class ShortIdConvertor(StringConvertor):
    """`{id:short_id}` in a path: the id of a job or a workflow, or its number."""

    regex = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32}|[1-9][0-9]{0,10}"


register_url_convertor("short_id", ShortIdConvertor())
ShortId = Annotated[str, Path(pattern=f"^(?:{ShortIdConvertor.regex})$", description="The id, or the number: `seq`.")]


class Body(BaseModel):
    """The body of a request. An unknown field is refused: it is probably a typing error."""

    model_config = ConfigDict(extra="forbid")


class ActBody(Body):
    """The body of an act, with its reason."""

    notes: Words | None = Field(
        default=None, description="The reason, for the audit record.", examples=["fixed upstream"]
    )


class PausingBody(ActBody):
    refuse: bool = Field(default=False, description="Refuse new jobs, too: enqueues get 423 with the notes.")


async def _notes(body: ActBody | None = None) -> str | None:
    return None if body is None else body.notes


Notes = Annotated[str | None, Depends(_notes)]
"""The notes of an act without other fields; the body may be omitted."""

PageSize = Annotated[int, Query(alias="limit", ge=1, le=MAX_PAGE, description="Rows per page.")]
Cursor = Annotated[
    str | None,
    Query(pattern=r"^[0-9]{1,18}$", description="Continue from the previous page's `next_cursor`.", examples=["41"]),
]
NextCursor = Annotated[
    str | None, Meta(description="Pass as `cursor` for the next page; null on the last page.", examples=["41"])
]


def seq_at(cursor: str | None) -> Seq | None:
    return None if cursor is None else Seq(int(cursor))


def next_cursor(next: int | None) -> str | None:
    return None if next is None else str(next)


def shape(name: str, of: type[Struct] | None = None, /, *, without: Iterable[str] = (), **more: Any) -> Any:
    """The type of a response: the fields of a Struct except `without`, plus `more` fields by name and type."""
    left_out = {*without, *more}
    fields = [] if of is None else [(f.name, f.type) for f in msgspec.structs.fields(of) if f.name not in left_out]
    return _defined(name, of, [*fields, *more.items()])


def many(of: Any, description: str = "") -> Any:
    """The type of a list of responses."""
    listed: Any = tuple.__class_getitem__((of, ...))
    return Annotated[listed, Meta(description=description)] if description else listed


class Selection:
    """A response made of fields of a Struct, each by its path: `"job.tenant"`, or `job_id="job.id"` under another name.

    `more` are fields that the Struct does not have, by name and type; `of` takes their values.
    """

    def __init__(self, name: str, of: type[Struct], *paths: str, more: Mapping[str, Any] | None = None, **renamed: str):
        self._paths = {**renamed, **{path.rpartition(".")[2]: path for path in paths}}
        self._get = {field: attrgetter(path) for field, path in self._paths.items()}
        fields = [(field, _type_at(of, path)) for field, path in self._paths.items()]
        self.type: Any = _defined(name, of, [*fields, *(more or {}).items()])

    def of(self, value: Struct, **more: Any) -> Any:
        return self.type(**{field: get(value) for field, get in self._get.items()}, **more)


def _defined(name: str, of: type[Struct] | None, fields: list[tuple[str, Any]]) -> Any:
    doc = None if of is None else of.__doc__
    return msgspec.defstruct(
        name, fields, kw_only=True, frozen=True, namespace={"__doc__": doc, "__selected_from__": of}
    )


def _type_at(of: type[Struct], path: str) -> Any:
    found: Any = of
    for part in path.split("."):
        found = next(field.type for field in msgspec.structs.fields(found) if field.name == part)
    return found


def accepting(of: type[Struct], *names: str, base: type[Body] = Body, **renamed: str) -> Any:
    """The base class of a body with fields of a Struct: their types, ranges and defaults, validated strictly.

    `delay_s="delay"` accepts the field `delay` under another name.
    """
    known = {field.name: field for field in msgspec.structs.fields(of)}
    fields: dict[str, Any] = {
        name: (_body_type(name, known[source].type), _default(known[source]))
        for name, source in {**{name: name for name in names}, **renamed}.items()
    }
    return create_model(f"{of.__name__}Body", __base__=base, **fields)


def _default(field: FieldInfo) -> Any:
    return list(field.default) if isinstance(field.default, tuple) else field.default


def _body_type(name: str, of: Any) -> Any:
    if type(None) in get_args(of):
        [kind] = [part for part in get_args(of) if part is not type(None)]
        return _body_type(name, kind) | None
    if get_origin(of) is Annotated:
        kind, meta = get_args(of)
        ranges = {bound: getattr(meta, bound) for bound in ("ge", "gt", "le", "lt", "description")}
        return Annotated[kind, Field(allow_inf_nan=False if kind is float else None, **ranges)]
    if of == tuple[str, ...]:
        return Annotated[list[Name], Field(max_length=1000)]
    return {str: Name if name in _NAMES else Key, datetime: Instant, Rate: RateText}.get(of, of)


class Where(NamedTuple, Generic[F]):
    """Selects the jobs or dead letters of a tenant that match a filter."""

    tenant: str | None
    filter: F


_NAMES = {"queue", "type", "category"}
_ASKED_AS = {"statuses": "status"}


def where(of: type[F]) -> Callable[..., Any]:
    """A dependency that reads a filter from the query: every given field must match, `status` by any value."""
    accepted = _accepted(of)

    async def read(**given: Any) -> Where[F]:
        return _where(of, given)

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in accepted.items()
    ]
    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return read


class Matching:
    """Reads a `Where` from an object in a body: `Annotated[Where[JobFilter], Matching(JobFilter)]`."""

    def __init__(self, of: type[Struct]) -> None:
        self._of = of

    def __get_pydantic_core_schema__(self, _: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        fields: Any = {name: (kind, None) for name, kind in _accepted(self._of).items()}
        model = create_model(self._of.__name__, __base__=Body, __doc__=self._of.__doc__, **fields)
        return core_schema.no_info_after_validator_function(
            lambda given: _where(self._of, given.__dict__), handler.generate_schema(model)
        )


def _asked(of: type[Struct]) -> dict[str, FieldInfo]:
    """The fields of a filter by the names requests use."""
    return {_ASKED_AS.get(field.name, field.name): field for field in msgspec.structs.fields(of)}


def _accepted(of: type[Struct]) -> dict[str, Any]:
    return {
        "tenant": TenantName | None,
        **{name: _request_type(name, field.type) for name, field in _asked(of).items()},
    }


def _request_type(name: str, of: Any) -> Any:
    """A field of a filter, validated strictly: text is a name or a key, instants have a time zone."""
    parts = get_args(of)
    if parts[1:] == (...,):
        listed: Any = list.__class_getitem__(parts[0])
        return Annotated[listed | None, Query(max_length=len(STATUSES), description="Matches any of these.")]
    if str in parts:
        return (Name if name in _NAMES else Key) | None
    return Instant | None if datetime in parts else of


def _where(of: type[F], given: Mapping[str, Any]) -> Where[F]:
    chosen = {
        field.name: tuple(dict.fromkeys(given[name])) if isinstance(given[name], list) else given[name]
        for name, field in _asked(of).items()
        if given[name] is not None
    }
    return Where(given["tenant"], of(**chosen))
