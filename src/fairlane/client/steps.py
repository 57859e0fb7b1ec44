"""Methods written once for sync and async code: a generator yields operations and receives their answers.

    class WorkerAdmin(Verbs):
        def _list(self) -> Steps[Workers]:
            return (yield from ask(ListWorkers()))

        list, alist = both(_list, Right.READ)

Errors of the store (`StoreError`) are raised at the `yield`. A method may also yield a `Sleep`, a `Compute`, and an
operation `Through` a connection of the caller.
"""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from functools import partial, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Protocol, TypeVar

from fairlane.client.rights import DECLARED, Right, require_right, visible
from fairlane.core.ops import Op
from fairlane.errors import StoreError

if TYPE_CHECKING:
    from fairlane.client.runtime import Runtime

P = ParamSpec("P")
T = TypeVar("T")

FIRST_SLEEP_S = 0.005
LONGEST_SLEEP_S = 0.5
GROWTH = 1.5


class Sleep(NamedTuple):
    """A step that waits."""

    seconds: float


class Compute(NamedTuple):
    """A step that takes the processor for long: called at once, or in a thread beside the event loop."""

    function: Callable[[], Any]


class Through(NamedTuple, Generic[T]):
    """An operation on a connection of the caller's; None: on the application's own."""

    conn: object | None
    op: Op[T]


Step = Op[Any] | Sleep | Compute | Through[Any]
Steps = Generator[Step, Any, T]


class Sleeper(Protocol):
    """Waiting as a dependency: tests pass one that advances their clock instead."""

    def sleep(self, seconds: float) -> None: ...

    async def asleep(self, seconds: float) -> None: ...


class SystemSleeper:
    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def asleep(self, seconds: float) -> None:
        import asyncio  # Imported here: it doubles the import time of fairlane.

        await asyncio.sleep(seconds)


class Runner(Protocol):
    """Executes the operations of steps."""

    @property
    def sleeper(self) -> Sleeper: ...

    def run(self, op: Op[T], *, on: object | None = None) -> T: ...

    async def arun(self, op: Op[T], *, on: object | None = None) -> T: ...


def ask(op: Op[T]) -> Steps[T]:
    """One operation, with the type of its answer: `workers = yield from ask(ListWorkers())`."""
    answer: T = yield op
    return answer


def compute(function: Callable[[], T]) -> Steps[T]:
    """A call that may take long, with the type of its result; what it raises is raised here."""
    answer, error = yield Compute(partial(_outcome_of, function))
    if error is not None:
        raise error
    result: T = answer
    return result


def _outcome_of(function: Callable[[], T]) -> tuple[T | None, Exception | None]:
    try:
        return function(), None
    except Exception as error:  # noqa: BLE001 - raised again by the steps that asked
        return None, error


def run_steps(runner: Runner, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                answer = _run(runner, step)
            except StoreError as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun_steps(runner: Runner, steps: Steps[T]) -> T:
    try:
        step = next(steps)
        while True:
            try:
                answer = await _arun(runner, step)
            except StoreError as error:
                step = steps.throw(error)
            else:
                step = steps.send(answer)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


def _run(runner: Runner, step: Step) -> Any:
    if isinstance(step, Sleep):
        return runner.sleeper.sleep(step.seconds)
    if isinstance(step, Through):
        return runner.run(step.op, on=step.conn)
    if isinstance(step, Compute):
        return step.function()
    return runner.run(step)


async def _arun(runner: Runner, step: Step) -> Any:
    if isinstance(step, Sleep):
        return await runner.sleeper.asleep(step.seconds)
    if isinstance(step, Through):
        return await runner.arun(step.op, on=step.conn)
    if isinstance(step, Compute):
        import asyncio

        return await asyncio.to_thread(step.function)
    return await runner.arun(step)


class Verbs:
    """Base of classes whose methods `both` creates, over the runtime of one application."""

    __slots__ = ("_runtime",)

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    def __repr__(self) -> str:
        verbs = sorted(name for name in dir(type(self)) if not name.startswith("_") and f"a{name}" in dir(type(self)))
        return f"<{type(self).__name__}: {', '.join(verbs)}>"


def both(
    verb: Callable[Concatenate[Any, P], Steps[T]], right: Right | None = None
) -> tuple[Callable[Concatenate[Any, P], T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]:
    """The sync method and its async version; with a `right` both refuse and hide by the roles in force."""

    @wraps(verb)
    def run(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return run_steps(self._runtime.access, verb(self, *args, **kwargs))

    @wraps(verb)
    async def arun(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await arun_steps(self._runtime.access, verb(self, *args, **kwargs))

    found = (run, arun) if right is None else _gated(run, arun, right)
    name, holder = verb.__name__.removeprefix("_"), verb.__qualname__.rpartition(".")[0]
    signature = VerbSignature(verb)
    for method, own_name in zip(found, (name, f"a{name}"), strict=True):
        vars(method)["__signature__"] = signature
        for attribute, value in (("__name__", own_name), ("__qualname__", f"{holder}.{own_name}")):
            setattr(method, attribute, value)
    return found


class _Shown(str):
    """Text that stands for itself in a signature, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


NOT_GIVEN = _Shown("...")
"""Shown as the default of an option that may be left out."""


class VerbSignature(inspect.Signature):
    """What `help()` and `inspect.signature` show of a verb: each of its options by name, and what it returns.

    Made when it is asked for: there are some two hundred verbs, and most programs ask for none.
    """

    __slots__ = ("_verb",)

    def __init__(self, verb: Callable[..., Any]) -> None:
        self._verb = verb

    @property
    def parameters(self) -> MappingProxyType[str, inspect.Parameter]:
        return self._made().parameters

    @property
    def return_annotation(self) -> Any:
        return self._made().return_annotation

    def replace(self, **changes: Any) -> inspect.Signature:  # type: ignore[override]
        return self._made().replace(**changes)

    __replace__ = replace  # type: ignore[assignment]

    def _made(self) -> inspect.Signature:
        own = inspect.signature(self._verb)
        shown: list[inspect.Parameter] = []
        for parameter in own.parameters.values():
            options = self._options(parameter)
            note = parameter.annotation
            note = _Shown(note) if isinstance(note, str) else note
            shown += [parameter.replace(annotation=note)] if options is None else options
        returned = str(own.return_annotation).removeprefix("Steps[").removesuffix("]")
        return inspect.Signature(shown, return_annotation=_Shown(returned))

    def _options(self, parameter: inspect.Parameter) -> list[inspect.Parameter] | None:
        """The options that stand behind `**about: Unpack[ActOptions]`; None: it is another parameter."""
        note = str(parameter.annotation)
        declared = self._verb.__globals__.get(note.removeprefix("Unpack[").removesuffix("]"))
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD or not note.startswith("Unpack[") or declared is None:
            return None
        options = []
        for name, kind in declared.__annotations__.items():
            text = str(getattr(kind, "__forward_arg__", kind))
            is_required = text.startswith("Required[") or name in declared.__required_keys__
            text = text.removeprefix("Required[").removesuffix("]") if text.startswith("Required[") else text
            default = inspect.Parameter.empty if is_required else NOT_GIVEN
            keyword = inspect.Parameter.KEYWORD_ONLY
            options.append(inspect.Parameter(name, keyword, default=default, annotation=_Shown(text)))
        return options


def _gated(
    run: Callable[Concatenate[Any, P], T], arun: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]], right: Right
) -> tuple[Callable[Concatenate[Any, P], T], Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]]:
    @wraps(run)
    def gated(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        require_right(right)
        return visible(run(self, *args, **kwargs))

    @wraps(arun)
    async def agated(self: Verbs, /, *args: P.args, **kwargs: P.kwargs) -> T:
        require_right(right)
        return visible(await arun(self, *args, **kwargs))

    setattr(gated, DECLARED, right)
    setattr(agated, DECLARED, right)
    return gated, agated


def is_on_event_loop() -> bool:
    """Whether an event loop runs in this thread."""
    asyncio = sys.modules.get("asyncio")  # Not imported: where it is not loaded, no loop runs.
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def growing_sleeps() -> Iterator[Sleep]:
    """Short at first, for jobs that end quickly; then longer, to spare the store."""
    seconds = FIRST_SLEEP_S
    while True:
        yield Sleep(seconds)
        seconds = min(seconds * GROWTH, LONGEST_SLEEP_S)
