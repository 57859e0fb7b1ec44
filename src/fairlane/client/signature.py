"""A task's signature: arguments to JSON by parameter name, and back by annotation.

Only what the caller gave is stored: a default takes effect when the job runs, so that a changed default
reaches the jobs already waiting.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType, inspect as types
from msgspec.structs import asdict

from fairlane.client.enqueue.options import seconds
from fairlane.core.payload.codec import AS_IT_IS, is_read_back, made_of
from fairlane.core.payload.json_scan import MOST_PROBLEMS, shown_key
from fairlane.core.text import one_line
from fairlane.errors import InvalidArguments, InvalidOption, InvalidPayload, NonRetryable, shown

R = TypeVar("R")

_TAKEN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature(Generic[R]):
    """How one task is called, computed in advance as far as possible."""

    def __init__(self, task: str, function: Callable[..., Any], *, is_batch: bool = False) -> None:
        """`is_batch`: the function takes a list of what each job has as its argument, and returns a list of results."""
        self.task = task
        self._function, self._is_batch = function, is_batch
        self._signature = inspect.signature(function)
        parameters = self._signature.parameters.values()
        for parameter in parameters:
            if parameter.kind not in _TAKEN:
                raise InvalidOption(
                    f'parameter "{parameter}" of task "{task}"',
                    parameter.kind.description,
                    "parameters with names of their own: a job's arguments are stored by name",
                )
        self.names = tuple(parameter.name for parameter in parameters)
        self.defaults = {p.name: p.default for p in parameters if p.default is not inspect.Parameter.empty}
        if is_batch and (len(self.names) != 1 or next(iter(parameters)).default is not inspect.Parameter.empty):
            expected = "one parameter, without a default: the list of what each job has as its argument"
            raise InvalidOption(f'parameters of batch task "{task}"', str(self._signature), expected)
        self._known = frozenset(self.names)
        self._positional = tuple(p.name for p in parameters if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD)
        self._needed = self._known - self.defaults.keys()
        self.needs_all = self._needed == self._known
        self._arguments: msgspec.json.Decoder[Any] | None = None
        self._all: Callable[[bytes], list[Any]] | None = None
        self._result: msgspec.json.Decoder[R] | None = None
        self._open: dict[str, types.Type] = {}
        """Parameters whose annotation leaves open what they hold, or what is within it."""
        # A name may be defined later in the module, so it is looked up again at first use.
        with suppress(NameError):
            self._prepare()

    def __str__(self) -> str:
        return str(self._signature)

    @property
    def needed(self) -> list[str]:
        """The parameters without a default, in their order."""
        return [name for name in self.names if name not in self.defaults]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The call's arguments by name, or one error with the task's signature."""
        if not args:
            given = dict(kwargs)
        else:
            if len(args) > len(self._positional):
                raise self._refused(f"{len(args)} positional arguments given, it takes {len(self._positional)}")
            given = dict(zip(self._positional, args, strict=False))
            if twice := given.keys() & kwargs.keys():
                raise self._refused(f"given twice: {', '.join(sorted(twice))}")
            given.update(kwargs)
        keys = given.keys()
        if not keys <= self._known or not self._needed <= keys:
            missing = [name for name in self.names if name in self._needed and name not in given]
            unknown = [name for name in given if name not in self._known]
            parts = [f"missing: {', '.join(missing)}"] if missing else []
            parts += [f"unknown: {', '.join(unknown)}"] if unknown else []
            raise self._refused("; ".join(parts))
        return given

    def check(self, text: bytes) -> None:
        """Make sure that the stored text reads back as the annotations say."""
        try:
            self._decoder().decode(text)
        except msgspec.ValidationError as error:
            raise self._refused(_by_argument(error)) from None

    @property
    def read_all(self) -> Callable[[bytes], list[Any]] | None:
        """Reads an array of stored texts as the annotations say; None: they keep some of it unread."""
        if self._arguments is None:
            self._prepare_or_explain()
        return self._all

    def changes(self, args: Mapping[str, Any]) -> list[str]:
        """What would arrive as something else, such as a date as text, where no annotation says what it is."""
        problems: list[str] = []
        for name, info in self._open.items():
            value = args.get(name)
            if type(value) not in AS_IT_IS and not is_read_back(value):
                found = islice(_changes(info, value, name), MOST_PROBLEMS)
                problems += [
                    f"{path}: {kind} would arrive as {made}; annotate "
                    + (f"it, as in {name}: {kind}" if path == name and kind.isidentifier() else f"what {name} holds")
                    + ", or pass "
                    + made
                    for path, kind, made in found
                ]
        return problems

    def read(self, text: str | bytes) -> dict[str, Any]:
        """A stored payload as keyword arguments; raises `InvalidPayload` if it does not fit."""
        try:
            values = (self._arguments or self._decoder()).decode(text)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise InvalidPayload(self.task, [_by_argument(error)]) from None
        if self.needs_all:
            return asdict(values)
        return {name: value for name in self.names if (value := getattr(values, name)) is not UNSET}

    def read_result(self, text: str) -> R:
        """A stored result as the return annotation says."""
        if self._result is None:
            self._prepare_or_explain()
        assert self._result is not None
        return self._result.decode(text)

    def _decoder(self) -> msgspec.json.Decoder[Any]:
        if self._arguments is None:
            self._prepare_or_explain()
        assert self._arguments is not None
        return self._arguments

    def _prepare_or_explain(self) -> None:
        try:
            self._prepare()
        except NameError as error:
            raise InvalidOption(
                f'an annotation of task "{self.task}"',
                str(error),
                "names that exist at run time: import them outside `if TYPE_CHECKING:`",
            ) from None

    def _prepare(self) -> None:
        hints = get_type_hints(self._function, include_extras=True)
        if self._is_batch:
            hints = {name: self._entry(name, hint) for name, hint in hints.items()}
        fields: list[Any] = []
        self._open.clear()
        for name in self.names:
            annotation = hints.get(name, Any)
            self._require_readable(f'parameter "{name}"', annotation)
            if any(isinstance(info, types.AnyType) for info in _infos(annotation)):
                self._open[name] = types.type_info(annotation)
            if name in self._needed:
                fields.append((name, annotation))
            else:
                # `|` would fail: an annotation may be a string or Any.
                fields.append((name, Union[annotation, UnsetType], UNSET))  # noqa: UP007
        returned = hints.get("return", Any)
        self._require_readable("the result", returned)
        # In the order of stored texts: written again, what was read is the same.
        fields.sort(key=lambda field: field[0].encode())
        shape = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
        self._arguments = msgspec.json.Decoder(shape, dec_hook=_model)
        if not any(isinstance(info, types.RawType) for info in _infos(shape)):
            self._all = msgspec.json.Decoder(list[shape], dec_hook=_model).decode  # type: ignore[valid-type]
        self._result = msgspec.json.Decoder(returned, dec_hook=_model)

    def _entry(self, name: str, hint: Any) -> Any:
        """What one job has of a batch task's list, given or returned; exceptions are not results."""
        is_returned = name == "return"
        if hint is Any or (is_returned and hint is type(None)):
            return hint
        kind, inner = get_origin(hint) or hint, get_args(hint)
        if kind not in (list, Sequence) or len(inner) > 1:
            what = "the result" if is_returned else f'parameter "{name}"'
            expected = "a list with one entry for each job, or None" if is_returned else "a list, as in list[int]"
            raise InvalidOption(f'{what} of batch task "{self.task}"', hint, expected)
        if is_returned and inner and get_origin(inner[0]) in (Union, UnionType):
            results = [one for one in get_args(inner[0]) if not (isinstance(one, type) and issubclass(one, Exception))]
            return Union[tuple(results)] if results else None  # noqa: UP007
        return inner[0] if inner else Any

    def _require_readable(self, what: str, annotation: Any) -> None:
        unreadable: object
        try:
            unreadable = next(_custom_types(annotation), None)
        except TypeError as error:
            unreadable = str(error)
        if unreadable is not None:
            raise InvalidOption(
                f'{what} of task "{self.task}"',
                unreadable,
                "a type that JSON can carry: plain values, datetime, UUID, Decimal, Enum, list, dict, dataclass, "
                "TypedDict, msgspec Struct or pydantic model",
            )

    def _refused(self, problem: str) -> InvalidArguments:
        return InvalidArguments(self.task, str(self._signature), problem)


MOST_JOBS = 10_000
WITHIN_S, LONGEST_S = 0.2, 60.0


class Batch(NamedTuple):
    """How many jobs a call takes, and how long the first of them waits for others."""

    size: int
    within_s: float


def read_batch(task: str, given: Mapping[str, Any]) -> Batch | None:
    """The batch of a task's options; None: it takes one job at a time."""
    size = given.get("batch")
    if size is None:
        if "within" in given:
            raise InvalidOption(f'within of task "{task}"', given["within"], "batch=…, too: how many jobs a call takes")
        return None
    if type(size) is not int or not 1 <= size <= MOST_JOBS:
        raise InvalidOption(f'batch of task "{task}"', size, f"a whole number from 1 to {MOST_JOBS:,}")
    within_s = seconds(f'within of task "{task}"', given.get("within", WITHIN_S), at_most=LONGEST_S)
    if given.get("isolated"):
        raise InvalidOption(f'isolated of task "{task}"', True, "no batch: an isolated process runs one job")
    return Batch(size, within_s)


def entries_of(task: str, returned: object, count: int) -> Sequence[Any]:
    """What a call of `count` jobs returned, for each of them."""
    if returned is None:
        return (None,) * count
    if isinstance(returned, (list, tuple)) and len(returned) == count:
        return returned
    what = f"{len(returned)} entries" if isinstance(returned, (list, tuple)) else shown(returned)
    raise NonRetryable(
        f'batch task "{task}" returned {what} for {count} jobs: expected a list with one entry for each job, or None'
    )


@lru_cache(maxsize=1024)
def type_reader(kind: Any) -> Callable[[str], Any]:
    """Reads JSON text as a type."""
    return msgspec.json.Decoder(kind, dec_hook=_model).decode


@lru_cache(maxsize=1024)
def result_reader(function: Callable[..., Any]) -> Callable[[str], Any]:
    """Reads JSON text as what a function is annotated to return; as plain values where that says nothing readable."""
    returned: Any = Any
    with suppress(NameError, TypeError, AttributeError):
        hinted = get_type_hints(function, include_extras=True).get("return", Any)
        if next(_custom_types(hinted), None) is None:
            returned = hinted
    return type_reader(returned)


_LISTS = (types.ListType, types.SetType, types.FrozenSetType, types.VarTupleType)


def _changes(info: types.Type, value: object, path: str) -> Iterator[tuple[str, str, str]]:
    """Where a value is not what JSON would make of it, and its type is open: the path, its kind, what it becomes."""
    if isinstance(info, types.UnionType):
        kinds = (types.DictType,) if isinstance(value, dict) else _LISTS
        info = next((one for one in info.types if isinstance(one, (types.AnyType, *kinds))), info)
    is_open = isinstance(info, types.AnyType)
    if isinstance(value, dict) and (is_open or isinstance(info, types.DictType)):
        keys, values = (info.key_type, info.value_type) if isinstance(info, types.DictType) else (info, info)
        odd = [key for key in value if not isinstance(key, str)] if isinstance(keys, types.AnyType) else []
        if odd:
            yield path, f"keys of type {type(odd[0]).__qualname__}", "text"
        for key, item in value.items():
            yield from _changes(values, item, f"{path}.{shown_key(key if isinstance(key, str) else shown(key))}")
    elif isinstance(value, (list, tuple, set, frozenset)) and isinstance(info, _LISTS):
        for at, item in enumerate(value):
            yield from _changes(info.item_type, item, f"{path}[{at}]")
    elif is_open and (isinstance(value, list) or type(value) is tuple):
        for at, item in enumerate(value):
            yield from _changes(info, item, f"{path}[{at}]")
    elif is_open and (made := made_of(value)) is not None:
        yield path, type(value).__qualname__, made


def _model(kind: type, value: Any) -> Any:
    """Pydantic models, recognised by their methods: pydantic itself is never imported here."""
    return kind.model_validate(value)  # type: ignore[attr-defined]


def _custom_types(annotation: Any) -> Iterator[type]:
    """Classes inside an annotation that neither msgspec nor a model of their own can read from JSON."""
    for info in _infos(annotation):
        if isinstance(info, types.CustomType) and not hasattr(info.cls, "model_validate"):
            yield info.cls


def _infos(annotation: Any) -> Iterator[types.Type | types.Field]:
    """What msgspec knows of a type and of all types within it."""
    pending, seen = [types.type_info(annotation)], set()
    while pending:
        info = pending.pop()
        if id(info) in seen or not isinstance(info, (types.Type, types.Field)):
            continue
        yield info
        seen.add(id(info))
        for name in info.__struct_fields__:
            part = getattr(info, name)
            pending.extend(part if isinstance(part, tuple) else [part])


def _by_argument(error: Exception) -> str:
    """msgspec's text, with the path written as an argument: `user.age: Expected …`; of a model each of its problems."""
    problem, found, path = str(error).rpartition(" - at `")
    where = path.rstrip("`").removeprefix("$").removeprefix(".") if found else ""
    listing = getattr(error.__cause__, "errors", None)
    if callable(listing):  # pydantic's text also holds the values, in several lines
        parts = [(".".join(map(str, (where, *each["loc"]))), each["msg"]) for each in listing()]
        return one_line("; ".join(f"{place.strip('.')}: {said}" for place, said in parts[:MOST_PROBLEMS]))
    problem = problem if found else str(error)
    return f"{where}: {problem}" if where else problem
