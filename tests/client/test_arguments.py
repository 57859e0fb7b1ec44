"""Arguments: stored by name as JSON, checked against the annotations on both sides."""

from __future__ import annotations

import asyncio
import enum
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

from fairlane import Fairlane, InvalidArguments, InvalidPayload
from fairlane.testing import run_due


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Line:
    item: str
    price: Decimal
    tags: list[str] = field(default_factory=list)


class Point(msgspec.Struct):
    x: int
    y: int = 0


class Address(pydantic.BaseModel):
    street: str
    since: datetime


class Order(pydantic.BaseModel):
    id: UUID
    address: Address


class Pair(NamedTuple):
    left: int
    right: str


class Extra(TypedDict, total=False):
    note: str


ORDER = Order(
    id=UUID("01890000-0000-7000-8000-000000000001"),
    address=Address(street="Lane 1", since=datetime(2020, 2, 29, 12, tzinfo=UTC)),
)

VALUES: list[tuple[Any, Any]] = [
    (int, 2**60),
    (int, -(10**250)),
    (float, 0.1),
    (float, -0.0),
    (str, 'Žluťoučký 🐎 \u2028 " \\ \x1f'),
    (bool, True),
    (None, None),
    (bytes, b"\x00\xff"),
    (datetime, datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)),
    (date, date(2030, 1, 2)),
    (timedelta, timedelta(days=1, microseconds=5)),
    (Decimal, Decimal("12345678901234567890.10")),
    (UUID, UUID("01890000-0000-7000-8000-000000000001")),
    (Colour, Colour.RED),
    (Literal["a", "b"], "b"),
    (list[Line], [Line("tea", Decimal("1.20"), ["hot"])]),
    (Line | None, None),
    (Point, Point(1)),
    (Order, ORDER),
    (list[Order], [ORDER]),
    (dict[str, Order], {"first": ORDER}),
    (Order | None, None),
    (Order | None, ORDER),
    (Pair, Pair(1, "r")),
    (Extra, {"note": "n"}),
    (tuple[int, str], (1, "a")),
    (set[int], {1, 2}),
    (dict[int, str], {1: "one"}),
    (dict[str, Any], {"deep": [{"er": [1, None, "x"]}], "__proto__": {}}),
    (list[Any], []),
]


@pytest.mark.requirement("L3")
@pytest.mark.parametrize(("annotation", "value"), VALUES)
def test_an_argument_and_a_result_arrive_as_their_annotation_says(app: Fairlane, annotation: Any, value: Any) -> None:
    seen: list[Any] = []

    def keep(value):  # type: ignore[no-untyped-def]
        seen.append(value)
        return value

    keep.__annotations__ = {"value": annotation, "return": annotation}
    task = app.task(name="keep")(keep)
    handle = task.enqueue(value)
    run_due(app)
    assert seen == [value]
    assert type(seen[0]) is type(value)
    assert math.copysign(1, seen[0]) == math.copysign(1, value) if isinstance(value, float) else True
    assert handle.result(timeout=0) == value


@pytest.mark.parametrize("value", [value for _, value in VALUES])
@pytest.mark.parametrize("within", [lambda value: value, lambda value: {"a": [value]}], ids=["itself", "within"])
def test_what_no_annotation_describes_arrives_as_it_was_given_or_is_refused(
    app: Fairlane, within: Callable[[Any], Any], value: Any
) -> None:
    seen: list[Any] = []

    @app.task(name="keep")
    def keep(value) -> None:  # type: ignore[no-untyped-def]
        seen.append(value)

    arrives = list(value) if type(value) is tuple else value  # JSON has no tuples, as all who use it know
    try:
        is_json = json.loads(json.dumps(value)) == arrives
    except TypeError:
        is_json = False
    if not is_json:
        with pytest.raises(InvalidPayload, match="would arrive as"):
            keep.enqueue(within(value))
        assert app.jobs.list().jobs == ()
        return
    keep.enqueue(within(value))
    run_due(app)
    assert seen == [within(arrives)]


class Shade(enum.StrEnum):
    DARK = "dark"


OPEN: list[tuple[Any, Any, str | None]] = [
    (Any, datetime(2030, 1, 1, tzinfo=UTC), "value: datetime would arrive as text; annotate it, as in value: datetime"),
    (Any, UUID(int=7), "value: UUID would arrive as text"),
    (Any, {1, 2}, "value: set would arrive as a list; annotate it, as in value: set, or pass a list"),
    (Any, b"ab", "value: bytes would arrive as base64 text"),
    (Any, {1: 2}, "value: keys of type int would arrive as text; annotate what value holds, or pass text"),
    (Any, Pair(1, "r"), "value: Pair would arrive as a list"),
    (Any, Line("tea", Decimal(1)), "value: Line would arrive as a dict; annotate it, as in value: Line"),
    (Any, Colour.RED, "value: Colour would arrive as text"),
    (Any, {"when": [date(2030, 1, 1)]}, r"value\.when\[0\]: date would arrive as text; annotate what value holds"),
    (dict, {"when": date(2030, 1, 1)}, r"value\.when: date"),
    (dict[str, Any], {"when": date(2030, 1, 1)}, r"value\.when: date"),
    (list, [date(2030, 1, 1)], r"value\[0\]: date"),
    (list | None, [date(2030, 1, 1)], r"value\[0\]: date"),
    (set, {UUID(int=7)}, r"value\[0\]: UUID"),
    (Any, Shade.DARK, None),
    (Any, (1, 2), None),
    (Any, msgspec.Raw(b'{"ready": "made"}'), None),
    (str, UUID(int=7), None),
    (list, {1, 2}, None),
    (dict[int, Any], {1: 2}, None),
    (date | dict, date(2030, 1, 1), None),
    (dict[str, date], {"when": date(2030, 1, 1)}, None),
    (list[Any], [], None),
]


@pytest.mark.parametrize(("annotation", "value", "problem"), OPEN)
def test_a_value_that_would_silently_become_another_is_refused_however_it_is_enqueued(
    app: Fairlane, annotation: Any, value: Any, problem: str | None
) -> None:
    def keep(value) -> None: ...  # type: ignore[no-untyped-def]

    keep.__annotations__ = {} if annotation is Any else {"value": annotation}
    task = app.task(name="keep")(keep)
    before = app.task(name="before")(lambda: None)
    flow = app.workflow("flow")
    of_before = flow.add(before.bind()).result

    @app.task(name="two")
    def two(first: Any, value: Any) -> None: ...

    ways: list[Callable[[], Any]] = [
        lambda: task.enqueue(value),
        lambda: task.bind(value),
        lambda: asyncio.run(task.aenqueue(value=value)),
        lambda: task.enqueue_map([(value,)]),
    ]
    if annotation is Any:
        ways.append(lambda: two.bind(of_before, value))
    for way in ways:
        if problem is None:
            way()
            continue
        with pytest.raises(InvalidPayload, match=problem):
            way()
        assert app.jobs.list().jobs == ()


def test_only_the_worker_knows_what_a_task_called_by_its_name_makes_of_a_date(app: Fairlane) -> None:
    handle = app.tasks.enqueue("elsewhere", {"when": date(2030, 1, 1)})
    assert handle.job().payload == '{"when":"2030-01-01"}'


def test_the_problems_of_a_model_are_on_one_line_without_its_values(app: Fairlane) -> None:
    @app.task(name="ship")
    def ship(orders: list[Order]) -> None: ...

    wrong: Any = [{"id": "hunter2", "address": {"street": "Lane 1", "since": "hunter2"}}]
    with pytest.raises(InvalidArguments) as raised:
        ship.enqueue(wrong)
    said = str(raised.value)
    assert said.startswith('arguments do not fit task "ship": orders[0].id: Input should be a valid UUID')
    assert "; orders[0].address.since: Input should be a valid datetime" in said
    assert "hunter2" not in said
    assert "pydantic.dev" not in said
    assert len(said.splitlines()) == 1


def test_a_default_left_out_is_not_stored_and_takes_effect_when_the_job_runs(app: Fairlane) -> None:
    seen: list[tuple[int, int]] = []

    @app.task(name="add")
    def add(a: int, b: int = 2) -> None:
        seen.append((a, b))

    handle = add.enqueue(1)
    assert handle.job().payload == '{"a":1}'
    run_due(app)
    assert seen == [(1, 2)]


class Hostile:
    def __repr__(self) -> str:
        raise RuntimeError


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def looped() -> Any:
    value: list[Any] = []
    value.append(value)
    return value


WRONG_ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any], str]] = [
    ((), {}, "missing: number"),
    ((1, None, 3), {}, "3 positional arguments given, it takes 2"),
    ((1,), {"number": 2}, "given twice: number"),
    ((1,), {"nubmer": 2}, "unknown: nubmer"),
    (("1",), {}, "number: Expected `int`, got `str`"),
    ((1.5,), {}, "number: Expected `int`, got `float`"),
    ((True,), {}, "number: Expected `int`, got `bool`"),
    ((None,), {}, "number: Expected `int`, got `null`"),
    ((1,), {"lines": [Line("tea", Decimal(1)), {"item": 5, "price": "1"}]}, r"lines\[1\]\.item: Expected `str`"),
    ((1,), {"order": {"id": "x"}}, "order: "),
]


@pytest.mark.requirement("L3")
@pytest.mark.parametrize(("args", "kwargs", "problem"), WRONG_ARGUMENTS)
def test_wrong_arguments_fail_at_the_call_with_the_signature(
    app: Fairlane, args: tuple[Any, ...], kwargs: dict[str, Any], problem: str
) -> None:
    @app.task(name="order")
    def order(number: int, lines: list[Line] | None = None, *, order: Order | None = None) -> None: ...

    for call in (order.enqueue, order.bind, lambda *a, **k: asyncio.run(order.aenqueue(*a, **k))):
        with pytest.raises(InvalidArguments, match=problem) as raised:
            call(*args, **kwargs)
        assert "It is called as order(number: " in str(raised.value)
    assert app.jobs.list().jobs == ()


UNSTORABLE: list[tuple[Any, str]] = [
    (float("nan"), "value: nan has no place in JSON"),
    ([1, float("inf")], r"value\[1\]: inf has no place in JSON"),
    ({"a": "\ud800"}, r"value\.a: a lone surrogate"),
    ("a\x00b", "value: text holds a NUL"),
    ({"a\x00": 1}, "NUL"),
    (10**400, "digits"),
    (deep(70), "nested deeper than 64"),
    (deep(100_000), "nested deeper than 64"),
    (looped(), "nested deeper than 64"),
    ("x" * 1_100_000, "bytes are more than"),
    ({str(n): n for n in range(10_001)}, "more than 10,000 keys"),
    (Hostile(), "value: objects of type Hostile cannot be stored as JSON"),
    ({"user": {"made": Hostile()}}, r"value\.user\.made: objects of type Hostile"),
    (lambda: None, "function"),
    ({(1, 2): 3}, "key"),
]


@pytest.mark.requirement("W3")
@pytest.mark.parametrize(("value", "problem"), UNSTORABLE, ids=[str(n) for n in range(len(UNSTORABLE))])
def test_what_no_store_could_keep_is_refused_with_its_path(app: Fairlane, value: Any, problem: str) -> None:
    @app.task(name="keep")
    def keep(value) -> None: ...  # type: ignore[no-untyped-def]

    with pytest.raises(InvalidPayload, match=problem):
        keep.enqueue(value)
    assert app.jobs.list().jobs == ()


def test_all_problems_of_a_payload_are_told_at_once(app: Fairlane) -> None:
    @app.task(name="keep", required=("key",))
    def keep(a: Any, b: Any = None, key: int | None = None) -> None: ...

    with pytest.raises(InvalidPayload) as raised:
        keep.enqueue(float("nan"), b={"c": Hostile()})
    assert len(raised.value.problems) == 2
    with pytest.raises(InvalidPayload) as raised:
        keep.enqueue({"password": "hunter2"}, b={"api_key": "k-123"})
    assert len(raised.value.problems) == 3
