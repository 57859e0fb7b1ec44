"""Runs the tasks of the queue contract: for each task type a task of Fairlane under that name.

    channels = Channels(app)
    channels.add("email", SmtpMailer("smtp://mail.example.com:587", …), running=20)

A channel asks the task's before handler what to send, has its provider deliver it, and gives the result to the success
handler, or the error to the error handler. It records a failure and completes the task: retries are new attempts that
supervisors make. Only where the database itself is away, or holds a handler up (a lock, a timeout, no room), the task
runs again, with the backoff of every job: the call that would go on with the process was undone. What was delivered by
then is kept as a durable step of the task, which from then on only calls its success handler, as often as it takes.

It knows `db_function`, `before_handler`, `success_handler`, `error_handler` and the envelope, and passes the rest of a
payload through.

Claiming, heartbeats, timeouts, limits and breakers are those of every worker. A task whose worker dies runs again.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from decimal import Decimal
from typing import Any, Protocol, TypedDict, Unpack

import msgspec

from fairlane.client.admin.breakers import Breaker
from fairlane.client.admin.limits import NamedLimit
from fairlane.client.admin.tasks import register
from fairlane.client.app import Fairlane
from fairlane.client.context import current_job
from fairlane.client.durable_steps import log_of
from fairlane.client.enqueue.quotas import RateLike
from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.model import Settings
from fairlane.client.steps import arun_steps
from fairlane.client.task import Definition
from fairlane.core.job import Lease
from fairlane.core.ops import AddEvents, EventDraft
from fairlane.core.payload.storable import safe_str
from fairlane.core.queues import read_slots
from fairlane.core.retry import Retry
from fairlane.core.text import plural
from fairlane.errors import (
    ConfigError,
    FairlaneError,
    HandlerRefused,
    InvalidOption,
    NonRetryable,
    PutOff,
    Snooze,
    StoreError,
    UnreadablePayload,
    shown,
)
from fairlane.stores.url import redacted, store_named_by
from fairlane.supervisors.contract import QUEUE
from fairlane.supervisors.envelope import FAILED, SUCCEEDED, DBFunctionResult, HandlerFailed
from fairlane.supervisors.function_check import examine_functions, require_membership
from fairlane.supervisors.handlers import HandlerHeldUp, HandlerInvoker, TaskContext

log = GuardedLogger("fairlane.supervisors")

TIMEOUT_S = 60.0
"""Of one delivery, unless the channel has its own."""

RECORD_PAUSES_S = (0.5, 2.0, 5.0)
"""Between calls of a success handler that the database holds up."""

HELD_UP = Retry(max_attempts=1_000)
"""Of a `db_function`. Only what the database holds up runs again, and a supervisor that is given up leaves its process
open for ever. Its pauses are also those of a task that has delivered and waits for its success handler."""

DELIVERED = "delivered"
"""The durable step that keeps what a provider answered."""

_NUL = re.compile(rb"(?<!\\)((?:\\\\)*)\\u0000")
"""The escape of NUL in JSON text, and not a backslash before `u0000`."""


_decoder = msgspec.json.Decoder(float_hook=Decimal)
"""Of payloads, which may hold numbers that no float does."""


class Provider(Protocol):
    """Delivers for one channel. What it raises is a failed delivery, which `NonRetryable` spares the breaker.

    A method `async def close(self)`, where there is one, is called when the worker ends.
    """

    async def deliver(self, payload: dict[str, Any], /) -> dict[str, Any]:
        """Deliver what a before handler prepared; the answer becomes the success handler's `worker_payload`."""
        ...


class ChannelOptions(TypedDict, total=False):
    timeout: float
    """Seconds for one delivery; 60 by default."""
    breaker: str | Breaker
    """Of the provider; one of the channel's name by default."""
    running: int
    """How many run at once, over all workers."""
    rate: RateLike
    """How many start in a span, over all workers: `"50/s"`."""
    limit: str | NamedLimit | tuple[str | NamedLimit, ...]


class TaskRefused(FairlaneError):
    """The before handler, or the payload itself, lets nothing be delivered."""

    def __init__(self, message: str, validation_failure_message: str | None = None) -> None:
        self.validation_failure_message = validation_failure_message
        super().__init__(message)


class ChannelDefinition(Definition[Any]):
    """A task that is given its payload whole, whatever is in it, and completed although its delivery has failed."""

    has_failed = staticmethod(lambda answer: answer["status"] == FAILED)

    def decode(self, lease: Lease) -> dict[str, Any]:
        try:
            return {"payload": _decoder.decode(lease.payload)}
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise UnreadablePayload(self.name, (str(error),)) from None


class Channels:
    """The channels of one application. `db_function` is one from the start.

    Their tasks have a lane of their own: they wait for providers and the database most of the time, and need more slots
    than tasks that compute.
    """

    def __init__(
        self,
        app: Fairlane,
        *,
        url: str | None = None,
        connections: int = 10,
        slots: int | str = 20,
        strict: bool = False,
    ) -> None:
        """`url`: where handlers are called, as a role that may become `worker_service_user`; the store's by default.

        What is risky about the functions granted to the worker is logged at the first task; with `strict` no task runs
        before it is mended: `fairlane supervisors check`.

        `connections`: at most, for handlers, of one process; `slots`: of the lane, shared by the processes of a worker
        or `"20/process"`, unless the settings give the queue `supervisors` slots.
        """
        self._app = app
        address = url or app.runtime.settings.url
        if not store_named_by(address).startswith("postgres"):
            raise ConfigError(f"url = {redacted(address)}: supervisors and handlers live in PostgreSQL")

        @app.resource(scope="worker")
        async def handlers() -> AsyncIterator[HandlerInvoker]:
            await asyncio.to_thread(_check_functions, app.runtime.settings, address, strict=strict)
            invoker = HandlerInvoker(app.runtime.settings, address, connections)
            try:
                yield invoker
            finally:
                await invoker.close()
                for provider in self._providers:
                    if hasattr(provider, "close"):
                        await provider.close()

        read_slots(slots, "slots of the channels")
        app.runtime.queue_slots[QUEUE] = slots
        self._handlers = handlers
        self._providers: list[Provider] = []
        self._register("db_function", self._run_function, {"retry": HELD_UP})

    def add(self, task_type: str, provider: Provider, /, **options: Unpack[ChannelOptions]) -> None:
        """Run tasks of this type by this provider."""
        if not callable(getattr(provider, "deliver", None)):
            raise InvalidOption("provider", provider, "an object with `async def deliver(self, payload)`")
        channel = Channel(self._app, task_type, provider, options)
        self._providers.append(provider)

        async def run(payload: dict[str, Any]) -> dict[str, Any]:
            return await channel.run(await self._handlers(), payload)

        limits = {name: value for name, value in options.items() if name in ("running", "rate", "limit")}
        self._register(task_type, run, limits)

    def _register(self, task_type: str, function: Any, options: dict[str, Any]) -> None:
        given = {"name": task_type, "queue": QUEUE, **options}
        register(self._app.runtime, function, given, kind=ChannelDefinition)

    async def _run_function(self, payload: dict[str, Any]) -> dict[str, Any]:
        """A supervisor, or any other function of the database. Its outcome is logged; only a failure is recorded.

        One that does not succeed has ended its process: nobody looks again.
        """
        invoker, run = await self._handlers(), TaskRun.current()
        try:
            result = await invoker.invoke(_named(payload, "db_function"), run.payload, run.context)
        except (HandlerHeldUp, HandlerRefused) as error:
            await run.held_up(invoker, str(error))
            raise
        except (HandlerFailed, TaskRefused) as error:
            answer = await run.failed(invoker, payload, error)
        else:
            answer = run.ended(result)
        if answer["status"] != SUCCEEDED:
            await self._add_stopped_event(str(payload.get("db_function")), answer["status"])
        return answer

    async def _add_stopped_event(self, function: str, status: str) -> None:
        job = current_job()
        data = {"function": function, "status": status, "id": str(job.id)}
        with suppress(StoreError):  # its result says so, too
            event = EventDraft(kind="process_stopped", tenant=job.tenant, data=data)
            await self._app.runtime.access.arun(AddEvents(events=(event,)))


class TaskRun:
    """One task being processed."""

    def __init__(self, task_id: int, task_type: str, context: TaskContext, payload: msgspec.Raw) -> None:
        self.task_id, self.task_type, self.context = task_id, task_type, context
        self.payload = payload
        """As it is stored: handlers get every digit of its numbers."""

    @classmethod
    def current(cls) -> TaskRun:
        job = current_job()
        return cls(job.fence[0], job.type, TaskContext.of(job), msgspec.Raw(job.lease.payload))

    def ended(self, result: DBFunctionResult) -> dict[str, Any]:
        if not result.succeeded:
            log.info("task %s (%s) ended: %s", self.task_id, self.task_type, result.message)
        return {"status": result.status}

    async def failed(self, invoker: HandlerInvoker, payload: dict[str, Any], error: Exception) -> dict[str, Any]:
        """Give the error to the error handler, and record it."""
        said = [safe_str(error) or type(error).__name__]
        if payload.get("error_handler") is not None:
            about: dict[str, Any] = {"original_payload": self.payload, "error": said[0]}
            if isinstance(error, TaskRefused) and error.validation_failure_message is not None:
                about["validation_failure_message"] = error.validation_failure_message
            try:
                result = await invoker.invoke(_named(payload, "error_handler"), about, self.context)
                if not result.succeeded:
                    log.info("error handler of task %s: %s", self.task_id, result.message)
            except (HandlerHeldUp, HandlerRefused) as second:
                await self.held_up(invoker, f"{said[0]}; then {second}")
                raise
            except (HandlerFailed, TaskRefused) as second:
                said.append(str(second))
        message = "; then ".join(said)
        log.warning("task %s (%s) failed: %s", self.task_id, self.task_type, message)
        await invoker.fail_task(self.task_id, message, self.context)
        return {"status": FAILED, "error": message}

    async def held_up(self, invoker: HandlerInvoker, message: str) -> None:
        """Record, as far as the database lets it, why the task is to run again."""
        log.warning("task %s (%s) is held up and runs again: %s", self.task_id, self.task_type, message)
        with suppress(StoreError):  # the attempt keeps the error, too
            await invoker.fail_task(self.task_id, message, self.context)


class Delivery:
    """What a task has delivered. Once it is kept, another run of the task finds it and delivers nothing.

    It is kept when the success handler is held up, and not before: a crash may come between any two of these calls.
    """

    def __init__(self, run: TaskRun) -> None:
        self._run, self._log = run, log_of("a channel")
        self._n = self._log.next()
        self._ran_s = 0.0
        self._is_kept = False
        self.answer: object = None
        """Of the provider, as JSON."""

    async def is_kept(self) -> bool:
        """Whether an earlier run has delivered; its `answer` is there then."""
        found = await arun_steps(self._log.store, self._log.recorded(self._n, "call", DELIVERED))
        if found is not None:
            self._is_kept, self.answer = True, msgspec.json.decode(found.result or "null")
        return self._is_kept

    async def make(self, delivering: Awaitable[dict[str, Any]]) -> None:
        began_s = self._log.store.monotonic()
        self.answer = _as_json(self._run, await delivering)
        self._ran_s = self._log.store.monotonic() - began_s

    async def keep(self) -> None:
        if self._is_kept:
            return
        try:
            await self._record(self.answer)
        except NonRetryable as error:  # too large: that it was delivered counts
            log.warning(
                "task %s (%s): the provider's answer is lost: %s", self._run.task_id, self._run.task_type, error
            )
            await self._record({})
        self._is_kept = True

    async def _record(self, answer: object) -> None:
        await arun_steps(self._log.store, self._log.record(self._n, DELIVERED, answer, self._ran_s))

    def later(self) -> Snooze:
        """For the success handler: uncharged, as a task that is given up would be delivered again by a new attempt."""
        return Snooze(HELD_UP.delay_s(current_job().lease.attempt, self._log.store.fraction()))


class Channel:
    """How tasks of one type are delivered."""

    def __init__(self, app: Fairlane, task_type: str, provider: Provider, options: ChannelOptions) -> None:
        self._provider = provider
        self._timeout_s = options.get("timeout", TIMEOUT_S)
        if not 0 < self._timeout_s <= 240:
            raise InvalidOption(f"timeout of channel {task_type}", self._timeout_s, "more than 0 and up to 240 seconds")
        self._guard = app.breakers.guard(options.get("breaker", task_type))

    async def run(self, invoker: HandlerInvoker, payload: dict[str, Any]) -> dict[str, Any]:
        run = TaskRun.current()
        delivery = Delivery(run)
        try:
            if not await delivery.is_kept():
                await delivery.make(self._delivered(await self._prepared(invoker, run, payload)))
            if payload.get("success_handler") is None:
                return {"status": SUCCEEDED}
            return run.ended(await self._recorded(invoker, run, _named(payload, "success_handler"), delivery))
        except (HandlerHeldUp, HandlerRefused) as error:
            await run.held_up(invoker, str(error))
            raise
        except (PutOff, Snooze, StoreError):
            raise  # an open breaker, or a database that is away: the task runs again, uncharged or after a pause
        except Exception as error:  # noqa: BLE001 - whatever a provider or handler raises is a failure of the task
            return await run.failed(invoker, payload, error)

    async def _prepared(self, invoker: HandlerInvoker, run: TaskRun, payload: dict[str, Any]) -> dict[str, Any]:
        result = await invoker.invoke(_named(payload, "before_handler"), run.payload, run.context)
        if not result.succeeded:
            raise TaskRefused(result.message, result.validation_failure_message)
        if not isinstance(result.payload, dict):
            raise TaskRefused(f"{payload['before_handler']} prepared {shown(result.payload)}, not an object")
        return result.payload

    async def _delivered(self, prepared: dict[str, Any]) -> dict[str, Any]:
        limit = asyncio.timeout(self._timeout_s)
        async with self._guard:
            try:
                async with limit:
                    return await self._provider.deliver(prepared)
            except TimeoutError as error:
                if not limit.expired():
                    raise
                raise TimeoutError(f"no answer within {self._timeout_s:g} s") from error

    async def _recorded(
        self, invoker: HandlerInvoker, run: TaskRun, handler: str, delivery: Delivery
    ) -> DBFunctionResult:
        """The success handler's answer. One that is held up is called again: first here, then by the task run again."""
        about = {"original_payload": run.payload, "worker_payload": delivery.answer}
        for pause_s in (*RECORD_PAUSES_S, None):
            try:
                return await invoker.invoke(handler, about, run.context)
            except HandlerRefused:
                await delivery.keep()
                raise
            except StoreError as error:
                await delivery.keep()
                if pause_s is None or not isinstance(error, HandlerHeldUp):
                    await run.held_up(invoker, str(error))
                    raise delivery.later() from error
            await asyncio.sleep(pause_s)
        raise AssertionError


def _check_functions(settings: Settings, address: str, *, strict: bool) -> None:
    try:
        require_membership(settings, address)
        findings = examine_functions(settings, address, tasks=False)
    except StoreError:
        if strict:
            raise
        return  # it only warns, and the handlers say what is wrong
    for found in findings:
        log.warning("function %s: %s; run: %s", found.function, found.says, found.remedy)
    if findings and strict:
        first = findings[0]
        why = f"strict channels run no task: {plural(len(findings), 'finding')}, such as {first.function}: {first.says}"
        raise HandlerRefused(why, "see `fairlane supervisors check`")


def _as_json(run: TaskRun, delivered: object) -> object:
    """What was delivered stays delivered, even if its provider answers with something that jsonb cannot hold."""
    try:
        return msgspec.json.decode(_NUL.sub(rb"\1\\ufffd", msgspec.json.encode(delivered)))
    except (TypeError, ValueError, UnicodeError, RecursionError) as error:
        log.warning("the provider of task %s (%s) answered what is no JSON: %s", run.task_id, run.task_type, error)
        return {}


def _named(payload: dict[str, Any], handler: str) -> str:
    name = payload.get(handler)
    if not isinstance(name, str) or "\0" in name:
        raise TaskRefused(f"{handler} of the payload is {shown(name)}, not the name of a function")
    return name
