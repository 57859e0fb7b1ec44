"""Every error Fairlane raises.

    FairlaneError
      BadInput                 the caller gave something that cannot be taken; nothing was changed
        InvalidPayload           its `problems` lists all of them
        InvalidArguments         arguments do not fit the task's signature
        InvalidOption            an enqueue, task or filter option out of range
        InvalidWorkflow          a workflow that cannot be built: a cycle, an unknown parent, too many nodes
        UnknownTask  UnknownPriority
        ConfigError              settings, URLs, files
          MissingExtra             packages of an extra are not installed; an ImportError, too
        AddressRefused           a webhook that leads where none may
      DuplicateJob  IdConflict   the key, or the id, is taken
      QueueFull                  back-pressure; `retry_after_s` says when to try again
        TenantLimitReached         one tenant has too many jobs waiting, or too large a payload
        EnqueueRateReached         one tenant enqueues too fast
        SpoolFull                  the store is away, and the spool beside it is full
      QueuePaused                a queue, task or tenant is paused and refuses new jobs
      PermissionDenied           another tenant's data, asked for inside one tenant's context
      RoleMissing                a caller of the API lacks the role that a verb requires
      NoTransaction              a tenant to be set on a connection that would forget it at once
      NotFound                   no such thing here, or another tenant's
        JobNotFound  DeadLetterNotFound  ScheduleNotFound  BreakerNotFound  CredentialNotFound  WorkflowNotFound
      InvalidState               the thing is not in a state this act starts from
        ClaimLost                  a job claimed by hand whose lease has ended
      JobFailed  ResultTimeout   asking a handle for its result
      BlocksEventLoop            a call that waits, on the thread of an event loop; its async twin does not
      NoCurrentJob               asked for the running job where none runs
      BreakerOpen                a guarded call may not begin now; inside a job it is a Snooze, too
      StillRunning               drained, but not in time
      UnreadablePayload          a stored payload that today's code cannot take; nothing ran
        NeedsNewerCode             newer code wrote it: it waits for a worker that has it
      StoreError
        StoreUnavailable         not reachable, busy or not usable now; nothing is known to be wrong with the request
          NotAdmitted              user, password, database or parameter refused: only a person can mend that
        StoreClosed
        StoreRefused             the store refused the data itself
        SchemaOutOfDate
        SchemaConflict           a schema that somebody else made, or uses, is in the way of a migration
        OldWorkersAlive
        UnsupportedConnection    `conn=` is not one this store can write through
        RoleLacksRights  SqliteLibraryMismatch
    TaskVerdict                  raised by task code to say how the attempt is to end
      Snooze  Cancel  RateLimited  NonRetryable  MissingData
      PutOff                     the job waits, uncharged, for something that is not here
        MissingPrincipal  HandlerRefused
        StepMismatch             a durable step is not the one recorded in its place; NonRetryable, too
        SignalTimedOut           the signal a job waited for did not come in time; NonRetryable, too
    AttemptInterrupted (BaseException)  what task code must not swallow
      AttemptCancelled  LeaseLost
      Suspended                  the job sleeps, or waits for a signal; its slot goes to others

Each class has a stable `code`: its name in lower case, used by the API's problem details, the command line and metrics.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from shlex import quote
from typing import ClassVar, Literal


def nearest(name: object, known: Iterable[str]) -> str:
    """` Nearest: "x".` for a mistyped name, or nothing."""
    close = difflib.get_close_matches(name if isinstance(name, str) else shown(name), list(known), n=1, cutoff=0.5)
    return f' Nearest: "{close[0]}".' if close else ""


def shown(value: object, limit: int = 80) -> str:
    """A value as it may stand in a message: short, and never raising."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a hostile __repr__ must not hide the error being reported
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class FairlaneError(Exception):
    code: ClassVar[str] = "error"
    """The name of the class in lower case, `job_not_found`, unless it states another; a renamed class states it."""

    def __init_subclass__(cls) -> None:
        if "code" not in cls.__dict__:
            cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class BadInput(FairlaneError, ValueError):
    pass


class InvalidPayload(BadInput):
    def __init__(self, task: str, problems: Sequence[str]) -> None:
        self.task, self.problems = task, tuple(problems)
        listing = "; ".join(self.problems)
        super().__init__(f'payload of "{task}" was not accepted, nothing was enqueued: {listing}')


class InvalidArguments(BadInput, TypeError):
    def __init__(self, task: str, signature: str, problem: str) -> None:
        self.task, self.signature, self.problem = task, signature, problem
        super().__init__(f'arguments do not fit task "{task}": {problem}. It is called as {task}{signature}')


class InvalidOption(BadInput):
    def __init__(self, option: str, value: object, expected: str) -> None:
        self.option, self.value, self.expected = option, value, expected
        super().__init__(f"{option} = {shown(value)}: expected {expected}")


class InvalidWorkflow(BadInput):
    def __init__(self, problem: str) -> None:
        self.problem = problem
        super().__init__(f"the workflow was not enqueued: {problem}")


class UnknownTask(BadInput, KeyError):
    """Also a `KeyError`: `app.tasks` is a mapping."""

    __str__ = Exception.__str__

    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(
            f'no task named "{name}" is registered; did you import the module that defines it?{nearest(name, known)}'
        )


class UnknownPriority(BadInput):
    def __init__(self, label: str, known: Iterable[str]) -> None:
        self.label = label
        names = ", ".join(known)
        super().__init__(
            f'no priority named "{label}"; use a whole number from 0 on, or one of {names}.'
            f"{nearest(label, names.split(', '))}"
        )


class ConfigError(BadInput):
    code = "config"


class MissingExtra(ConfigError, ImportError):
    def __init__(self, purpose: str, package: str, extra: str) -> None:
        self.purpose, self.package, self.extra = purpose, package, extra
        self.remedy = f"pip install 'fairlane[{extra}]'"
        super().__init__(f"{purpose} needs {package}, which is not installed: {self.remedy}")


class AddressRefused(BadInput):
    def __init__(self, where: str, why: str) -> None:
        self.where, self.why = where, why
        super().__init__(f"nothing was sent to {shown(where)}: {why}")


class DuplicateJob(FairlaneError):
    def __init__(self, existing_id: object, key: str, value: str | None = None) -> None:
        """`value`: of the job's own key, where that has no place."""
        self.existing_id, self.key = existing_id, key
        which = f"this {key} key" if value is None else f"the key {shown(value)}"
        super().__init__(f"a job with {which} is there already: {existing_id}; nothing was enqueued")


class IdConflict(FairlaneError):
    def __init__(self, job_id: object) -> None:
        self.job_id = job_id
        super().__init__(f"job id {job_id} is taken by a job with other content; let the client make the id")


class QueueFull(FairlaneError):
    def __init__(self, depth: int, capacity: int, retry_after_s: float = 1.0) -> None:
        self.depth, self.capacity, self.retry_after_s = depth, capacity, retry_after_s
        super().__init__(
            f"{depth} jobs are waiting, the capacity is {capacity}: nothing was enqueued; "
            f"try again in {retry_after_s:g} s, or raise `capacity`"
        )


class TenantLimitReached(QueueFull):
    def __init__(self, tenant: str, queue: str, cause: str, limit: int, found: int, retry_after_s: float = 1.0) -> None:
        self.tenant, self.queue, self.cause, self.limit = tenant, queue, cause, limit
        self.depth, self.capacity, self.retry_after_s = found, limit, retry_after_s
        if cause == "payload_bytes":
            what = f'a payload of {found} bytes is more than the {limit} allowed to tenant "{tenant}"'
            step = "pass an id instead of the data, or raise the limit"
        else:
            what = f'tenant "{tenant}" has {found} jobs waiting and running in queue "{queue}", its limit is {limit}'
            step = f"try again in {retry_after_s:g} s, or raise the limit"
        FairlaneError.__init__(self, f"{what}: nothing was enqueued; {step}: fairlane limits set --tenant …")


class EnqueueRateReached(QueueFull):
    def __init__(self, tenant: str, rate: str, retry_after_s: float | None) -> None:
        self.tenant, self.rate = tenant, rate
        self.retry_after_s = 60.0 if retry_after_s is None else retry_after_s
        step = "enqueue fewer at once" if retry_after_s is None else f"try again in {retry_after_s:.1f} s"
        FairlaneError.__init__(self, f'tenant "{tenant}" may enqueue {rate}: nothing was enqueued; {step}')


class SpoolFull(QueueFull):
    def __init__(self, depth: int, capacity: int, retry_after_s: float = 5.0) -> None:
        self.depth, self.capacity, self.retry_after_s = depth, capacity, retry_after_s
        FairlaneError.__init__(
            self,
            f"the store cannot be reached, and {depth} jobs wait for it in the spool, which takes {capacity}: nothing "
            f"was enqueued; try again in {retry_after_s:g} s, or raise `spool_capacity`",
        )


class QueuePaused(FairlaneError):
    def __init__(self, kind: str, name: str, reason: str | None) -> None:
        self.kind, self.name, self.reason = kind, name, reason
        noun = "task" if kind == "type" else kind
        why = f" ({reason})" if reason else ""
        super().__init__(
            f'{noun} "{name}" is paused and refuses new jobs{why}: nothing was enqueued; try again once it is resumed: '
            f"fairlane {noun}s resume {quote(name)}"
        )


class PermissionDenied(FairlaneError, PermissionError):
    def __init__(self, asked: str, tenant: str) -> None:
        self.asked, self.tenant = asked, tenant
        where = f'this runs in the context of tenant "{tenant}" alone' if tenant else "no tenant is known here"
        enter = "" if tenant else "Enter one: with fairlane.tenant(name): … "
        super().__init__(
            f"{asked}: {where}; nothing was done. {enter}For work over all tenants: with fairlane.all_tenants(): …"
        )


class RoleMissing(FairlaneError, PermissionError):
    def __init__(self, roles: Sequence[str]) -> None:
        self.roles = tuple(roles)
        named = " and ".join(f'"{role}"' for role in roles)
        super().__init__(f"this needs the role{'s' if len(roles) > 1 else ''} {named}; nothing was changed")


class NoTransaction(FairlaneError, RuntimeError):
    def __init__(self) -> None:
        super().__init__(
            "this connection is outside a transaction (autocommit): the tenant would be forgotten before your next "
            "statement. Begin one first, or write: with fairlane.isolation.tenant_transaction(conn): …"
        )


class NotFound(FairlaneError, LookupError):
    pass


class JobNotFound(NotFound):
    def __init__(self, job_id: object) -> None:
        self.job_id = job_id
        super().__init__(f"no job {job_id} here: never enqueued, past retention, or another tenant's")


class DeadLetterNotFound(NotFound):
    def __init__(self, dead_letter_id: object) -> None:
        self.dead_letter_id = dead_letter_id
        super().__init__(f"no dead letter {dead_letter_id} here: never died, past retention, or another tenant's")


class ScheduleNotFound(NotFound):
    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(f'no schedule "{name}" here; `fairlane schedules list` shows them all.{nearest(name, known)}')


class BreakerNotFound(NotFound):
    def __init__(self, name: str, known: Iterable[str] = ()) -> None:
        self.name = name
        super().__init__(
            f'no breaker "{name}" guards a task or has been used; `fairlane breakers list` shows those used.'
            f"{nearest(name, known)}"
        )


class CredentialNotFound(NotFound):
    def __init__(self, id: object) -> None:
        self.id = id
        super().__init__(f"no credential {id} here; `fairlane tokens list --all` shows them")


class WorkflowNotFound(NotFound):
    def __init__(self, id: object) -> None:
        self.id = id
        super().__init__(f"no workflow {id} here: never enqueued, past retention, or another tenant's")


class InvalidState(FairlaneError):
    def __init__(self, act: str, target: str, status: str) -> None:
        self.act, self.target, self.status = act, target, status
        super().__init__(f"cannot {act} {target}: it is {status}; nothing was changed")


class ClaimLost(InvalidState):
    """The lease of a job that was claimed by hand has ended: the job was taken back, or its claim has settled it."""

    def __init__(self, act: str, target: str) -> None:
        super().__init__(act, target, "not held by this claim any more")


class JobFailed(FairlaneError):
    def __init__(self, job_id: object, status: str, error_type: str | None, message: str | None) -> None:
        self.job_id, self.status, self.error_type, self.message = job_id, status, error_type, message
        why = f": {error_type}: {message}" if error_type else ""
        super().__init__(f"job {job_id} is {status}{why}")


class ResultTimeout(FairlaneError, TimeoutError):
    def __init__(
        self, job_id: object, status: str, waited_s: float, *, next_at: datetime | None = None, error: str | None = None
    ) -> None:
        self.job_id, self.status, self.waited_s, self.next_at = job_id, status, waited_s, next_at
        if next_at is None:
            why = "is a worker running that knows its task?"
        else:
            last = f"its last attempt failed ({error})" if error else "it is scheduled"
            why = f"{last} and it runs next at {next_at.isoformat(timespec='seconds')}"
        super().__init__(f"job {job_id} is still {status} after {waited_s:g} s; {why}")


class BlocksEventLoop(FairlaneError, RuntimeError):
    def __init__(self, blocking: str, instead: str) -> None:
        super().__init__(f"{blocking} would block the event loop that runs in this thread; use await {instead}")


class NoCurrentJob(FairlaneError, LookupError):
    def __init__(self, asked: str = "current_job()") -> None:
        super().__init__(f"no job runs here: {asked} works inside a task's code while a worker runs it")


class StillRunning(FairlaneError, TimeoutError):
    def __init__(self, what: str, waited_s: float) -> None:
        self.what, self.waited_s = what, waited_s
        super().__init__(
            f"jobs of {what} are still running after {waited_s:g} s; it stays paused: drain it again, or resume it"
        )


class UnreadablePayload(FairlaneError):
    verdict: ClassVar[str] = "cannot be taken"

    def __init__(self, task: str, problems: Sequence[str]) -> None:
        self.task, self.problems = task, tuple(problems)
        super().__init__(f'the stored payload of "{task}" {self.verdict}, nothing ran: {"; ".join(self.problems)}')


class NeedsNewerCode(UnreadablePayload):
    verdict = "needs newer code"


class StoreError(FairlaneError):
    code = "store"


class StoreUnavailable(StoreError):
    def __init__(self, store: str, why: str, problem: str = "cannot be reached") -> None:
        self.store, self.why, self.problem = store, why, problem
        super().__init__(f"the {store} store {problem}: {why}")


class NotAdmitted(StoreUnavailable):
    pass


class StoreClosed(StoreError):
    def __init__(self, store: str) -> None:
        super().__init__(f"the {store} store is closed; nothing was done. `with app:` opens an application again")


class StoreRefused(StoreError):
    def __init__(self, store: str, why: str) -> None:
        self.store, self.why = store, why
        super().__init__(f"the {store} store refused the data: {why}")


class SchemaOutOfDate(StoreError):
    """The schema, or the set of functions in it, is too old for this code, or newer code has contracted it."""

    def __init__(self, found: int, needed: int, part: Literal["schema", "functions"] = "schema", why: str = "") -> None:
        self.found, self.needed, self.part = found, needed, part
        unit, where = "version" if part == "schema" else "release", f" ({why})" if why else ""
        if found < needed:
            verb = "is" if part == "schema" else "are"
            state = f"the {part} {verb} {unit} {found}" if found else f"there {verb} no Fairlane {part}"
            super().__init__(f"{state}{where}, this Fairlane needs {unit} {needed}: run `fairlane migrate up`")
        else:
            state = f"the {part} belong{'s' if part == 'schema' else ''} to {unit} {found}"
            step = "upgrade the fairlane package"
            super().__init__(f"{state}{where}, this Fairlane knows no further than {needed}: {step}")


class SchemaConflict(StoreError):
    """A schema of the database is somebody else's, or in a state that a migration does not start from; it changed
    nothing."""


class OldWorkersAlive(StoreError):
    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        shown = ", ".join(self.names[:5]) + (" and others" if len(self.names) > 5 else "")
        super().__init__(f"workers of older code still need what would be removed: {shown}; stop or upgrade them first")


class UnsupportedConnection(StoreError, TypeError):
    def __init__(self, conn: object, expected: str) -> None:
        kind = f"{type(conn).__module__}.{type(conn).__qualname__}"
        super().__init__(f"conn is a {kind}; this store can enqueue through {expected}")


class RoleLacksRights(StoreError):
    """The role that a worker connects as may not do a worker's work."""

    def __init__(self, role: str, schema: str, why: str, remedy: str) -> None:
        super().__init__(f'the role "{role}" may not run jobs in the schema "{schema}" ({why}): {remedy}')


class SqliteLibraryMismatch(StoreError):
    def __init__(self, theirs: str, ours: str) -> None:
        super().__init__(
            f"the connection is {theirs}'s, this store uses {ours}: two copies of SQLite on one file in one process "
            f'can corrupt it. Set sqlite_library = "{theirs}" so that both use one'
        )


class TaskVerdict(Exception):
    """Raised by task code to say how its attempt is to end."""


class Snooze(TaskVerdict):
    """Not now: run again after `seconds`, without charging an attempt."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        super().__init__(f"snoozed for {seconds:g} s")


class BreakerOpen(FairlaneError, Snooze):
    """A dependency is failing and is spared: no call before `seconds` are over.

    Out of a task, the job is snoozed for as long.
    """

    def __init__(self, breaker: str, seconds: float, retry_at: datetime | None = None) -> None:
        self.breaker, self.seconds, self.retry_at = breaker, seconds, retry_at
        when = "until somebody resets it" if retry_at is None else f"until {retry_at:%H:%M:%S} UTC"
        Exception.__init__(self, f'breaker "{breaker}" is open {when}; nothing was called')


class Cancel(TaskVerdict):
    """End this job as cancelled."""

    def __init__(self, reason: str = "") -> None:
        self.reason = reason
        super().__init__(reason or "cancelled by its task")


class RateLimited(TaskVerdict):
    """The other side asks to slow down; its own `retry_after` (seconds) wins over our delays."""

    def __init__(self, message: str = "rate limited", *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        super().__init__(message)


class NonRetryable(TaskVerdict):
    """Trying again will not help: straight to the dead letters."""


class MissingData(TaskVerdict):
    """What the job needs is not there yet: it runs again by itself at `retry_at`, 30 minutes on by default."""

    def __init__(self, message: str = "data not there yet", *, retry_at: datetime | None = None) -> None:
        self.retry_at = retry_at
        super().__init__(message)


class PutOff(TaskVerdict):
    """Nothing is wrong with the job, and nothing was done: it waits, uncharged, for something that is not here."""


class MissingPrincipal(PutOff):
    """The tenant has nobody its jobs can act as: they are put off, uncharged, until there is somebody."""

    def __init__(self, tenant: str) -> None:
        self.tenant = tenant
        super().__init__(f'tenant "{tenant}" has nobody to act as: the find_principal hook returned None')


class HandlerRefused(PutOff):
    """The worker may not run a supervisor or handler. Nothing was called, and the task waits until it may."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(f"{why}; {remedy.rstrip('.;')}")


class AttemptInterrupted(BaseException):
    """What task code must not swallow."""


class AttemptCancelled(AttemptInterrupted):
    """Somebody asked this attempt to stop."""


class LeaseLost(AttemptInterrupted):
    """This attempt no longer belongs to this worker: nothing it writes will count."""


class Suspended(AttemptInterrupted):
    """The job sleeps, or waits for a signal, in its step `n`: its slot goes to others and it runs again later."""

    def __init__(self, n: int, name: str, delay_s: float, *, signal: bool = False, key: str = "") -> None:
        self.n, self.name, self.delay_s, self.signal, self.key = n, name, delay_s, signal, key
        super().__init__(f'waits for the signal "{name}"' if signal else f"sleeps for {delay_s:g} s")


class StepMismatch(NonRetryable):
    """The code of a job has changed under it: its next step is not the one that was recorded in this place."""

    def __init__(self, n: int, recorded: str, now: str) -> None:
        self.n, self.recorded, self.now = n, recorded, now
        super().__init__(
            f"step {n} of this job was recorded as {recorded} and is now {now}: steps that are recorded keep their "
            "order and names. Restore them, add new steps behind them, and reprocess the job"
        )


class SignalTimedOut(NonRetryable, TimeoutError):
    """No signal came while the job waited for it."""

    def __init__(self, name: str, key: str = "") -> None:
        self.name, self.key = name, key
        super().__init__(f'no signal "{name}"{f" with the key {shown(key)}" if key else ""} came in time')
