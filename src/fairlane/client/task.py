"""Tasks: registered functions with their policies. They can be enqueued, and still be called."""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypedDict, TypeVar, Unpack, cast, get_args, overload

from msgspec import Raw

from fairlane.client.admin.breakers import Breaker, breaker_named
from fairlane.client.admin.limits import NamedLimit, limit_names
from fairlane.client.context import CurrentJob, running
from fairlane.client.enqueue.enqueuer import MOST_ROWS, Enqueuer, Row, achunks, chunks
from fairlane.client.enqueue.options import EnqueueOptions, Options, attempts, retry_policy, seconds, timeout_s
from fairlane.client.enqueue.quotas import RateLike
from fairlane.client.handle import Handle
from fairlane.client.hooks import HookDecorators, Hooks
from fairlane.client.signature import Signature, read_batch
from fairlane.core.error_classes import Classifier
from fairlane.core.job import DEFAULT_PRIORITY, ErrorClass, Lease
from fairlane.core.job_keys import KeyParts, KeyRule, OnConflict
from fairlane.core.limits import read_rate
from fairlane.core.names import check_queue_name, check_task_name
from fairlane.core.payload.codec import Upcast, Upcasters, check_version, decode, encode, is_plain
from fairlane.core.payload.secrets import SensitivePolicy
from fairlane.core.retry import Retry
from fairlane.core.schedules import CatchUp, Overlap
from fairlane.errors import InvalidOption, InvalidPayload, NeedsNewerCode, UnreadablePayload, nearest, shown

if TYPE_CHECKING:
    from fairlane.client.enqueue.prepare import Preparer

P = ParamSpec("P")
R = TypeVar("R")


class TaskOptions(TypedDict, total=False):
    """The options of `@app.task(…)`, for code that passes them on."""

    name: str
    """Default: module and function, as in `mail.send_welcome`."""
    aliases: Sequence[str]
    """Names it had before: jobs that were enqueued under one of them run as this task."""
    queue: str
    category: str
    fast: bool
    """It takes less than 30 s: without a queue or a route it joins the fast queue, and without a timeout it has the
    fast one; False: the slow one. Default: as its queue."""
    timeout: float | timedelta
    retry: Retry
    result_expires: float | timedelta
    """How long after its end a result is kept; the job stays, by the application's retention. Default: as the job."""
    priority: str | int
    max_attempts: int
    version: int
    """Version of the payload: increase it, with an upcaster, when the parameters change."""
    required: tuple[str, ...]
    """Arguments that must be given and not None, though they have a default."""
    refs: tuple[str, ...]
    """Arguments that are ids of the objects the job works on: kept as the job's refs too."""
    errors: Mapping[type[BaseException], ErrorClass]
    sensitive: SensitivePolicy
    breaker: str | Breaker
    """The breaker of what the task calls: while it is open, jobs are snoozed instead of run."""
    key: KeyParts
    """The jobs of one key wait for each other: a parameter's name, several, or a function of the arguments."""
    ordered: bool
    """With `key`: its jobs run one after the other, as they were enqueued; a retry or a dead letter holds the rest."""
    on_conflict: OnConflict
    """With `key`: what a further job does while there is no place: waits, is discarded, or replaces the others."""
    running: int
    """How many of its jobs run at once, over all workers; with `key`: of each key, 1 unless said."""
    rate: RateLike
    """How many start in a span, over all workers: `"50/min"`; with `key`: of each key."""
    limit: str | NamedLimit | tuple[str | NamedLimit, ...]
    """Limits it shares with other tasks: names, or what `app.limits.declare(…)` returned."""
    isolated: bool
    """Run it in a process of its own, which can be killed and has a memory cap."""
    cron: str
    """Enqueue it without arguments at these times; see `tz`, `catch_up`, `catch_up_limit` and `overlap`."""
    every: float | timedelta
    """Enqueue it without arguments at an interval, as in `every=10`; the options below go with it as with `cron`."""
    tz: str
    catch_up: CatchUp
    catch_up_limit: int
    overlap: Overlap
    jitter: float | timedelta
    starts_at: datetime
    ends_at: datetime


class BatchOptions(TaskOptions, total=False):
    """The options of a task whose function takes several jobs in one call."""

    batch: int
    """The most jobs of one tenant in a call; the function's parameter is a list of what each has as its argument."""
    within: float | timedelta
    """How long the first job of a call waits for others: 0.2 s, unless said."""


class Definition(Generic[R]):
    """A registered function and the policies of its jobs."""

    is_registered = True
    has_failed: Callable[[Any], bool] | None = None
    """Whether what a job returned says that what it was for has failed."""

    def __init__(
        self, function: Callable[..., Any], given: Mapping[str, Any], preparer: Preparer, classifier: Classifier
    ) -> None:
        known = BatchOptions.__annotations__
        for option in given:
            if option not in known:
                raise InvalidOption("task option", option, f"one of {', '.join(known)}.{nearest(option, known)}")
        if not inspect.isroutine(function):
            raise InvalidOption("task", function, "a function; options are given by name, as in @app.task(queue=…)")
        given = {option: value for option, value in given.items() if value is not None}
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            expected = "a function that returns, not a generator: none of its code would run"
            raise InvalidOption("task", function, expected)
        self.function = function
        self.name = check_task_name(given["name"]) if "name" in given else name_of(function)
        self.aliases = _aliases(self.name, given.get("aliases", ()))
        self.batch = read_batch(self.name, given)
        self.signature: Signature[R] = Signature(self.name, function, is_batch=self.batch is not None)
        self.is_async = inspect.iscoroutinefunction(function)
        self.run_here: Callable[[Coroutine[Any, Any, Any]], Any] | None = None
        """How a coroutine of it runs in a thread without a loop; None: by `asyncio.run`."""

        self.fast = _truth(self.name, given["fast"]) if "fast" in given else None
        router = preparer.router
        self.queue = (
            check_queue_name(given["queue"])
            if "queue" in given
            else router.queue_for(self.name, is_fast=self.fast is True)
        )
        preparer.queues.add(self.queue)
        settings = preparer.settings
        self.category = given.get("category") or preparer.router.category_for(self.name) or settings.default_category
        if self.category is not None and self.category not in settings.categories:
            expected = f"one of {', '.join(settings.categories)}.{nearest(self.category, settings.categories)}"
            raise InvalidOption(f'category of task "{self.name}"', self.category, expected)
        self.timeout_s = timeout_s(given["timeout"]) if "timeout" in given else None
        expires = given.get("result_expires")
        self.result_expires_s = None if expires is None else seconds("result_expires", expires)
        self.retry = retry_policy(given["retry"]) if "retry" in given else None
        own_attempts = attempts(given["max_attempts"]) if "max_attempts" in given else None
        self.max_attempts = own_attempts or (self.retry.max_attempts if self.retry else None)
        given_priority = given.get("priority", DEFAULT_PRIORITY)
        self.priority = preparer.priorities.resolve(given_priority)
        self.priority_label = given_priority if isinstance(given_priority, str) else None
        self.version = check_version(given.get("version", 1))
        self.required = self._arguments("required", given.get("required", ()))
        self.refs = self._arguments("refs", given.get("refs", ()))
        self.sensitive: SensitivePolicy | None = given.get("sensitive")
        if self.sensitive is not None and self.sensitive not in get_args(SensitivePolicy):
            raise InvalidOption("sensitive", self.sensitive, f"one of {', '.join(get_args(SensitivePolicy))}")
        self.breaker = breaker_named(given["breaker"]) if "breaker" in given else None
        self.running: int | None = given.get("running")
        self.rate = read_rate(f'rate of task "{self.name}"', given["rate"]) if "rate" in given else None
        self.key = self._key_rule(given)
        if self.key is not None:
            self.running = self.rate = None  # of the task as a whole
        self.limits = limit_names(given["limit"]) if "limit" in given else ()
        self.isolated = bool(given.get("isolated", False))
        self.classifier = classifier.extended(given["errors"]) if given.get("errors") else classifier

        self.upcasters = Upcasters()
        self.hooks = Hooks()
        self.is_large = False
        """Whether its last payload was above the recommended size: a warning is logged once per crossing."""
        self._payload_limits = settings.limits

    def decode(self, lease: Lease) -> dict[str, Any]:
        """The keyword arguments of one attempt: upcast from the version they were stored in, and checked again.

        A newer version, or an argument that is not known here, raises `NeedsNewerCode`: newer code wrote it.
        """
        signature, payload = self.signature, lease.payload
        if lease.unreadable is not None:
            raise UnreadablePayload(self.name, (lease.unreadable,))
        if (
            signature.needs_all
            and lease.payload_version == self.version
            and is_plain(payload, len(signature.names), self._payload_limits)
        ):
            try:
                return signature.read(payload)
            except InvalidPayload:
                pass  # The checks below report every problem.
        if lease.payload_version > self.version:
            newer = f"payload version {lease.payload_version} is newer than {self.version}, the newest known here"
            raise NeedsNewerCode(self.name, [newer])
        try:
            stored = decode(payload, task=self.name, limits=self._payload_limits)
            if lease.payload_version == self.version:
                if unknown := [name for name in stored if name not in signature.names]:
                    raise NeedsNewerCode(self.name, [f"it takes no argument {shown(name)}" for name in unknown[:10]])
                return signature.read(payload)
            current = self.upcasters.upcast(self.name, stored, lease.payload_version, self.version)
            return signature.read(bytes(encode(current, task=self.name, limits=self._payload_limits)))
        except InvalidPayload as error:
            raise UnreadablePayload(self.name, error.problems) from None

    def _key_rule(self, given: Mapping[str, Any]) -> KeyRule | None:
        terms = {option: given[option] for option in ("ordered", "on_conflict", "running") if option in given}
        if "key" not in given:
            for option in ("ordered", "on_conflict"):
                if option in terms:
                    raise InvalidOption(
                        f'{option} of task "{self.name}"', terms[option], "key=…, too: whose line it is"
                    )
            return None
        if inspect.iscoroutinefunction(given["key"]):
            raise InvalidOption(f'key of task "{self.name}"', given["key"], "a plain function: an enqueue calls it")
        terms["rate"] = self.rate
        return KeyRule(self.name, given["key"], self.signature.names, self.signature.defaults, terms)

    def _arguments(self, option: str, names: Any) -> tuple[str, ...]:
        if isinstance(names, str) or not all(name in self.signature.names for name in names):
            expected = f"a tuple of argument names out of {', '.join(self.signature.names) or 'none'}"
            raise InvalidOption(f'{option} of task "{self.name}"', names, expected)
        return tuple(names)


def _aliases(task: str, given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise InvalidOption(f'aliases of task "{task}"', given, "a list of the names it had before")
    aliases = tuple(check_task_name(name) for name in given)
    if len({task, *aliases}) <= len(aliases):
        raise InvalidOption(f'aliases of task "{task}"', given, "each name once, and not the task's own")
    return aliases


def _truth(task: str, given: object) -> bool:
    if not isinstance(given, bool):
        raise InvalidOption(f'fast of task "{task}"', given, "True or False")
    return given


def name_of(function: Callable[..., Any]) -> str:
    """`module.function`, the same whether its file is run or imported."""
    module = function.__module__
    if module == "__main__":
        main = sys.modules["__main__"]
        spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
        module = spec.name.removesuffix(".__main__") if spec else Path(file).stem if file else "main"
        module = "main" if module.startswith("<") else module  # a script on standard input
    name = f"{module}.{function.__qualname__.replace('<locals>.', '')}"
    try:
        return check_task_name(name)
    except InvalidOption:
        raise InvalidOption("task name", name, "a name of its own for this function: @app.task(name=…)") from None


ENQUEUING = (
    *("enqueue", "aenqueue", "delay", "apply", "apply_async", "send", "send_task", "send_with_options"),
    *("defer", "defer_async", "submit", "kiq", "spawn"),
)
"""What enqueueing is called, here and in other job systems."""


def missing(of: object, name: str, instead: Mapping[str, str]) -> AttributeError:
    """The error for an attribute that is not there: where the name is known from elsewhere, with what to call."""
    hint = f": {instead[name]}" if name in instead else ""
    return AttributeError(f"{type(of).__name__!r} object has no attribute {name!r}{hint}")


_OF_A_CALL = dict.fromkeys(
    ENQUEUING, "app.enqueue_many([task.bind(…), …]) enqueues bound calls, task.enqueue(…) one call"
)
_OF_A_TASK = {
    **dict.fromkeys(ENQUEUING, "task.enqueue(…) makes a job of a call, task.using(delay=30).enqueue(…) a later one"),
    "enqueue_many": "app.enqueue_many([task.bind(…), …]) enqueues several calls, task.enqueue_map(rows) many",
    **dict.fromkeys(("s", "si", "signature", "subtask"), "task.bind(…) makes a call for enqueue_many and workflows"),
}


class Bound(Generic[R]):
    """A task with its arguments, checked and ready for `enqueue_many`."""

    __slots__ = ("args", "definition", "options", "payload")

    if not TYPE_CHECKING:  # To a type checker it would mean that there is every attribute.

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, _OF_A_CALL)

    def __init__(self, definition: Definition[R], options: Options, args: dict[str, Any], payload: Raw) -> None:
        self.definition, self.options, self.args, self.payload = definition, options, args, payload

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Bound):
            return NotImplemented
        return self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity()[:2])

    def __repr__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.args.items())
        return f"<Bound {self.definition.name}({given})>"

    def _identity(self) -> tuple[str, bytes, Options]:
        return self.definition.name, bytes(self.payload), self.options


def calls_of(given: Iterable[Bound[R]]) -> Sequence[Bound[R]]:
    """What `enqueue_many` was given, if it is calls of tasks."""
    if not isinstance(given, Iterable):
        raise InvalidOption("enqueue_many", given, "a list of calls: `enqueue_many([task.bind(…), …])`")
    found = list(given)
    for at, call in enumerate(found):
        if not isinstance(call, Bound):
            raise InvalidOption(f"enqueue_many[{at}]", call, "a call of a task: `task.bind(…)`")
    return found


class Task(HookDecorators, Generic[P, R]):
    """A registered function: `enqueue` turns a call into a job, `using` sets its options.

    Arguments are stored as JSON under their parameter names and checked against the annotations, at the call and again
    when the job runs. The task sees what JSON carries: an unannotated tuple arrives as a list.
    """

    def __init__(self, definition: Definition[R], enqueuer: Enqueuer, options: Options | None = None) -> None:
        self.definition = definition
        self._enqueuer = enqueuer
        self._options = options or Options()
        self.__wrapped__ = definition.function
        self.__name__ = definition.function.__name__
        self.__qualname__ = definition.function.__qualname__
        self.__module__ = definition.function.__module__
        self.__doc__ = definition.function.__doc__

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing(self, name, _OF_A_TASK)

    @property
    def name(self) -> str:
        """The type of its jobs."""
        return self.definition.name

    @property
    def chosen(self) -> dict[str, Any]:
        """The options that `using(…)` gave it: for tests."""
        return {name: value for name, value in self._options.given().items() if name != "conn"}

    @property
    def _hooks(self) -> Hooks:
        return self.definition.hooks

    def using(self, **options: Unpack[EnqueueOptions]) -> Self:
        """The same task with enqueue options; further `using` calls add to them, None removes one."""
        changed = self._options.changed(options, self._enqueuer.preparer.priorities, self.definition.key)
        return type(self)(self.definition, self._enqueuer, changed)

    def enqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueue this call as a job.

        It is stored when this returns, or with the caller's transaction (`using(conn=…)`).
        """
        return self._enqueuer.one(self.definition, self._options, self.definition.signature.bind(args, kwargs))

    async def aenqueue(self, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        bound = self.definition.signature.bind(args, kwargs)
        return await self._enqueuer.aone(self.definition, self._options, bound)

    def bind(self, /, *args: P.args, **kwargs: P.kwargs) -> Bound[R]:
        """A call to be enqueued with others: `app.enqueue_many([task.bind(1), task.bind(2)])`."""
        bound = self.definition.signature.bind(args, kwargs)
        payload = self._enqueuer.preparer.payload(self.definition, bound, in_workflow=True)
        return Bound(self.definition, self._options, bound, payload)

    def enqueue_map(
        self,
        rows: Iterable[Row],
        *,
        chunk: int = 1_000,
        progress: Callable[[int], object] = lambda enqueued: None,
    ) -> int:
        """Enqueue one job for each row of arguments, a mapping by name or a sequence; returns how many,
        without those that their keys discarded.

        For many jobs that are alike: rows are taken from their source as they are needed and enqueued by `chunk`, each
        chunk in a commit of its own, after which `progress` is called with the number enqueued so far. An error leaves
        what was enqueued before, and a note on it says how many those are.
        """
        options, enqueued = self._alike(chunk), 0
        try:
            for part in chunks(rows, chunk):
                enqueued += self._enqueuer.rows(self.definition, options, part)
                progress(enqueued)
        except Exception as error:
            error.add_note(_enqueued_before(self.name, enqueued))
            raise
        return enqueued

    async def aenqueue_map(
        self,
        rows: Iterable[Row] | AsyncIterable[Row],
        *,
        chunk: int = 1_000,
        progress: Callable[[int], object] = lambda enqueued: None,
    ) -> int:
        """The same; the rows may come from an async generator, which waits while a chunk is written."""
        options, enqueued = self._alike(chunk), 0
        try:
            async for part in achunks(rows, chunk):
                enqueued += await self._enqueuer.arows(self.definition, options, part)
                progress(enqueued)
        except Exception as error:
            error.add_note(_enqueued_before(self.name, enqueued))
            raise
        return enqueued

    def _alike(self, chunk: int) -> Options:
        """The options of all rows, if they can be the same for all."""
        if type(chunk) is not int or not 1 <= chunk <= MOST_ROWS:
            raise InvalidOption("chunk", chunk, f"a whole number from 1 to {MOST_ROWS:,}")
        for option in ("id", "idempotency_key", "dedup_key"):
            if (given := getattr(self._options, option)) is not None:
                expected = "none for a whole map: give each job its own with `bind` and enqueue_many"
                raise InvalidOption(option, given, expected)
        return self._options

    def upcast(self, from_version: int) -> Callable[[Upcast], Upcast]:
        """Decorate the function that converts a payload of `from_version` to the next version."""
        return self.definition.upcasters.register(self.name, from_version)

    def decode(self, lease: Lease) -> dict[str, Any]:
        """The keyword arguments of one attempt; raises `UnreadablePayload` if they do not fit."""
        return self.definition.decode(lease)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}{self.definition.signature}>"


def _enqueued_before(task: str, enqueued: int) -> str:
    return f'{enqueued} jobs of "{task}" were enqueued before, in commits of their own'


class SyncTask(Task[P, R]):
    """A task made of a plain function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function directly, without a job."""
        return cast(R, self.definition.function(*args, **kwargs))

    def run(self, lease: Lease) -> R:
        """Run one attempt of a job here, as the current job."""
        with running(CurrentJob(lease)):
            return cast(R, self.definition.function(**self.decode(lease)))


class AsyncTask(Task[P, R]):
    """A task made of an `async def` function."""

    def __call__(self, /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Run the function directly, without a job."""
        return cast("Coroutine[Any, Any, R]", self.definition.function(*args, **kwargs))

    async def arun(self, lease: Lease) -> R:
        """Run one attempt of a job here, as the current job."""
        with running(CurrentJob(lease)):
            return cast(R, await self.definition.function(**self.decode(lease)))


class TaskDecorator:
    """What `@app.task(…)` returns: takes the function."""

    def __init__(self, register: Callable[[Callable[..., Any]], Any]) -> None:
        self._register = register

    @overload
    def __call__(  # type: ignore[overload-overlap]  # an async function is the narrower case, and comes first
        self, function: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R], /) -> SyncTask[P, R]: ...
    def __call__(self, function: Callable[..., Any], /) -> Any:
        return self._register(function)
