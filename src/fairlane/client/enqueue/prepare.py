"""Turns a call's arguments and options into a checked `JobSpec`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from operator import is_
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from fairlane.client.context import NOBODY, CurrentJob, job_in_force, tenant_in_force
from fairlane.client.enqueue.options import NO_TENANT, Options, checked_headers, seconds
from fairlane.client.enqueue.results import Result, result_names, without_results
from fairlane.client.logs import GuardedLogger
from fairlane.client.settings.model import Settings
from fairlane.core.alike import AlikeJobs, JobIds
from fairlane.core.chance import Chance
from fairlane.core.clock import Clock
from fairlane.core.ids import SYSTEM_TENANT, JobId, uuid7
from fairlane.core.job import PRIORITY_HEADER, JobSpec, Priorities, PriorityScope
from fairlane.core.payload import secrets
from fairlane.core.payload.codec import encode_plain, encode_value, size_warning
from fairlane.core.payload.secrets import is_clean
from fairlane.core.payload.validator import PayloadValidator
from fairlane.core.queues import Router
from fairlane.core.retry import Policy
from fairlane.core.workflows import RESULT_KEY
from fairlane.errors import InvalidOption, InvalidPayload, PermissionDenied, nearest

if TYPE_CHECKING:
    from fairlane.client.task import Bound, Definition


_RESULT = f'"{RESULT_KEY}":'.encode()
_PLACEHOLDER_ID = "00000000-0000-7000-8000-000000000000"
"""Placeholder for the job's own id, the default of correlation id and idempotency key."""


class Envelope:
    """Checks tenant, correlation id, idempotency key, category and references together with the arguments.

    With `strict_payload` each of them must have been given or inherited, and an object referred to. Else defaults count
    as given, and only the validator's own required fields and schemas can refuse the job.
    """

    def __init__(self, settings: Settings, validator: PayloadValidator | None) -> None:
        self._settings = settings
        self.validator = validator or PayloadValidator(
            categories=settings.categories, limits=settings.limits, sensitive="allow"
        )

    def problems(
        self, task: Definition[Any], options: Options, args: dict[str, Any], *, is_node: bool = False
    ) -> list[str]:
        """A node needs no key: the workflow has it. What a node's arguments take from results is given, too."""
        around = job_in_force.get()
        tenant = options.tenant or tenant_in_force.get()
        correlation = options.correlation_id or (inherited_correlation(around) if around else None)
        key = options.idempotency_key or (_PLACEHOLDER_ID if is_node else None)
        if not self._settings.strict_payload:
            tenant, correlation, key = tenant or self._settings.default_tenant, _PLACEHOLDER_ID, key or _PLACEHOLDER_ID
        named = {"tenant_id": tenant, "correlation_id": correlation, "idempotency_key": key}
        given = {name: _PLACEHOLDER_ID if isinstance(value, Result) else value for name, value in args.items()}
        text, _ = encode_value(without_results(given) if is_node else args, limits=self._settings.limits)
        refs = refs_of(task, options, args)
        document = {
            **refs,
            **({} if text is None else msgspec.json.decode(text)),
            **{name: value for name, value in named.items() if value is not None},
        }
        has_reference = bool(refs) or any(args.get(name) is not None for name in (*task.required, *task.refs))
        return self.validator.review(
            document,
            task.category,
            task=task.name,
            is_reference_required=self._settings.strict_payload and not has_reference,
        ).errors


def refuse_results(call: Bound[Any]) -> None:
    """Refuse a bound call that takes the result of a node, where there is no workflow."""
    if _RESULT in bytes(call.payload) and (used := next(result_names(call.args), None)) is not None:
        raise result_outside(call.definition.name, used)


def result_outside(task: str, used: Result) -> InvalidPayload:
    said = f'the result of node "{used.name}" is there only within its workflow: flow.add({task}.bind(…))'
    return InvalidPayload(task, [said])


def inherited_correlation(around: CurrentJob) -> str | None:
    """The correlation id of the job that runs here; of several in one call, the one that all of them have."""
    found = around.correlation_id
    return None if any(job.correlation_id != found for job in around.batch) else found


def refs_of(task: Definition[Any], options: Options, args: dict[str, Any]) -> dict[str, int | str]:
    """The ids a job works on: from the task's arguments, then those added by the call.

    A result of another node is no id yet: the job is listed without it.
    """
    if not task.refs:
        return options.refs
    own = {
        name: _ref(name, args[name])
        for name in task.refs
        if args.get(name) is not None and not isinstance(args[name], Result)
    }
    return {**own, **options.refs}


def _ref(name: str, value: object) -> int | str:
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise InvalidOption(f"refs[{name!r}]", value, "an id: a whole number, text or a UUID")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise InvalidOption(f"refs[{name!r}]", value, "a whole number of 64 bits; give larger ones as text")
    return value


logger = GuardedLogger("fairlane.client")


class Draft(Struct, frozen=True, kw_only=True):
    """A job about to be enqueued, as an enqueue hook sees it."""

    type: str
    tenant: str
    queue: str
    args: Mapping[str, Any]
    priority: int
    delay_s: float | None = None
    run_at: datetime | None = None
    id: JobId
    correlation_id: str
    headers: Mapping[str, str] = {}

    def change(
        self,
        *,
        priority: int | str | None = None,
        delay: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Draft:
        """A copy with another priority (number or label) or delay in seconds, or with further headers.

        A delay replaces `run_at`; a header replaces one of the same name.
        """
        changes: dict[str, Any] = {}
        if headers is not None:
            changes["headers"] = {**self.headers, **checked_headers(headers)}
        if priority is not None:
            changes["priority"] = priority
        if delay is not None:
            changes.update(delay_s=seconds("delay", delay), run_at=None)
        return replace(self, **changes)


EnqueueHook = Callable[[Draft], Draft | None]
"""Receives each job before it is enqueued and may change its priority, delay and headers; None leaves it unchanged."""


class JobRules(NamedTuple):
    """What one task's jobs get in one queue, unless their call says otherwise."""

    policy: Policy
    max_attempts: int
    timeout_s: float
    priority_scope: PriorityScope


class Preparer:
    """Applies an application's rules to enqueue calls."""

    def __init__(
        self, settings: Settings, clock: Clock, chance: Chance, validator: PayloadValidator | None = None
    ) -> None:
        self.settings, self._clock, self._chance = settings, clock, chance
        self.priorities = Priorities(settings.priorities)
        self.router = Router(settings.routes, settings.queues, settings.category_routes)
        self.hooks: list[EnqueueHook] = []
        self.queues = {*settings.queues, *settings.routes.values()}
        """The queues of settings and tasks, and those that were warned of."""
        self.uses_tenants = False
        """Whether a job was given to a tenant here: `using(tenant=None)` is a mistake from then on."""
        self._limits = settings.limits
        self._rules: dict[tuple[str, str], JobRules] = {}
        self._last: dict[str, tuple[tuple[Definition[Any], Options, str | None], JobSpec]] = {}
        """Of each task the last job, and what it was made for: another call for the same differs in id and payload."""
        self._envelope: Envelope | None = None
        if settings.strict_payload or validator is not None:
            self._envelope = Envelope(settings, validator)

    def copied(self, settings: Settings, clock: Clock) -> Preparer:
        """The same hooks, queues and validator with other settings: for tests."""
        found = Preparer(settings, clock, self._chance, None if self._envelope is None else self._envelope.validator)
        found.hooks, found.queues = list(self.hooks), found.queues | self.queues
        return found

    def new_id(self) -> JobId:
        return JobId(uuid7(int(self._clock.now().timestamp() * 1000), self._chance.entropy(10)))

    def new_ids(self, count: int) -> JobIds:
        return JobIds(int(self._clock.now().timestamp() * 1000), count, self._chance.entropy)

    def rules(self, task: Definition[Any], queue: str) -> JobRules:
        """The rules for a job of this task in this queue: the task's own, else the queue's, else the settings'."""
        found = self._rules.get((task.name, queue))
        if found is None:
            settings, grants = self.settings, self.router.policy_for(queue)
            policy = Policy(
                attempts=task.max_attempts,
                task=task.retry,
                queue=grants.retry,
                by_class=settings.retry_by_class,
                app=settings.retry,
                missing_data_s=settings.missing_data_retry_s,
                newer_code_s=settings.newer_code_wait_s,
            )
            is_fast = grants.fast if task.fast is None else task.fast
            timeout_s = task.timeout_s or grants.timeout_s
            found = self._rules[task.name, queue] = JobRules(
                policy=policy,
                max_attempts=policy.max_attempts(),
                timeout_s=timeout_s or (settings.fast_timeout_s if is_fast else settings.slow_timeout_s),
                priority_scope=grants.priority_scope,
            )
        return found

    def job(self, task: Definition[Any], options: Options, args: dict[str, Any], id: JobId | None = None) -> JobSpec:
        """One call as a checked job. A refusal lists every problem of payload and required fields."""
        if self._envelope is None:
            return self.spec(task, options, args, self.payload(task, args), id)
        missing = self._envelope.problems(task, options, args)
        try:
            payload = self.payload(task, args)
        except InvalidPayload as error:
            raise InvalidPayload(task.name, [*missing, *error.problems]) from None
        if missing:
            raise InvalidPayload(task.name, missing)
        return self.spec(task, options, args, payload, id)

    def bound_job(
        self,
        task: Definition[Any],
        options: Options,
        args: dict[str, Any],
        payload: Raw,
        id: JobId | None = None,
        *,
        is_node: bool = False,
    ) -> JobSpec:
        """Like `job`, for a call whose payload was checked when it was bound. `is_node`: a job of a workflow."""
        if self._envelope is not None and (missing := self._envelope.problems(task, options, args, is_node=is_node)):
            raise InvalidPayload(task.name, missing)
        return self.spec(task, options, args, payload, id)

    def jobs(self, task: Definition[Any], options: Options, calls: Sequence[dict[str, Any]]) -> Sequence[JobSpec]:
        """Calls of one task with the same options, as checked jobs."""
        ids = self.new_ids(len(calls))
        if self._envelope is not None:
            return tuple([self.job(task, options, args, job_id) for args, job_id in zip(calls, ids, strict=True)])
        payloads = self.payloads(task, calls)
        if self._are_alike(task, options):
            return AlikeJobs(self.spec(task, options, {}, payloads[0], ids[0]), ids, payloads)
        return tuple([self.spec(task, options, *each) for each in zip(calls, payloads, ids, strict=True)])

    def bound_jobs(self, bounds: Sequence[Bound[Any]]) -> Sequence[JobSpec]:
        """The same for calls of any tasks, whose payloads were checked when they were bound."""
        ids, task, options = self.new_ids(len(bounds)), bounds[0].definition, bounds[0].options
        if (
            self._envelope is None
            and self._are_alike(task, options)
            and all(bound.definition is task and bound.options is options for bound in bounds)
        ):
            payloads = [bound.payload for bound in bounds]
            return AlikeJobs(self.spec(task, options, {}, payloads[0], ids[0]), ids, payloads)
        given = zip(bounds, ids, strict=True)
        return tuple([self.bound_job(b.definition, b.options, b.args, b.payload, job_id) for b, job_id in given])

    def _are_alike(self, task: Definition[Any], options: Options) -> bool:
        """Whether jobs of this task and these options differ in id and payload alone."""
        own = options.id or options.idempotency_key or options.dedup_key or options.key or task.key
        return own is None and not task.refs and not self.hooks

    def payload(self, task: Definition[Any], args: dict[str, Any], *, in_workflow: bool = False) -> Raw:
        """The arguments as the exact text to store. A refusal lists every problem.

        `in_workflow`: results of nodes may stand among them.
        """
        return self.payloads(task, (args,), in_workflow=in_workflow)[0]

    def payloads(
        self, task: Definition[Any], calls: Sequence[dict[str, Any]], *, in_workflow: bool = False
    ) -> Sequence[Raw]:
        """The same for several calls: one look over all of them, and a closer one at each where that is not enough."""
        read_all = task.signature.read_all
        plain = None if read_all is None else encode_plain(calls, self._limits, read_all)
        if (
            plain is None
            or _RESULT in plain[1]
            or ((task.sensitive or self.settings.sensitive) != "allow" and not is_clean(plain[1]))
            or (task.required and any(args.get(name) is None for args in calls for name in task.required))
            or any(task.signature.changes(args) for args in calls)
        ):
            texts = [self._checked(task, args, in_workflow=in_workflow) for args in calls]
        else:
            texts, _ = plain
        if task.is_large or max(map(len, texts)) > self._limits.warn_bytes:
            for text in texts:
                self._warn_of_size(task, text)
        return [Raw(text) for text in texts]

    def _checked(self, task: Definition[Any], args: dict[str, Any], *, in_workflow: bool) -> bytes:
        text, problems = encode_value(args, limits=self._limits)
        has_results = bool(problems) and any(result_names(args))
        if has_results and not in_workflow:
            raise result_outside(task.name, next(result_names(args)))
        if has_results:
            text, problems = encode_value(without_results(args), limits=self._limits)
        if problems := [problem.replace("$.", "", 1) for problem in problems]:
            raise InvalidPayload(task.name, problems)
        assert text is not None
        if text.count(_RESULT) != (sum(1 for _ in result_names(args)) if has_results else 0):
            raise InvalidPayload(task.name, [f'"{RESULT_KEY}": a reserved key: it stands for the result of a node'])
        policy = task.sensitive or self.settings.sensitive
        if policy != "allow":
            text, problems = self._without_secrets(text, policy)
        problems += task.signature.changes(args)
        problems += [f"{name}: required" for name in task.required if args.get(name) is None]
        if problems:
            raise InvalidPayload(task.name, problems)
        if not has_results:  # else it is checked when the job runs, with the results in it
            task.signature.check(text)
        return text

    def signal_data(self, name: str, data: object) -> Raw:
        """The data of a signal as the exact text to store, under the rules for payloads."""
        text, problems = encode_value(data, limits=self._limits)
        if text is not None and not problems and self.settings.sensitive != "allow":
            text, problems = self._without_secrets(text, self.settings.sensitive)
        if text is None or problems:
            raise InvalidPayload(name, [f"data{problem.removeprefix('$')}" for problem in problems])
        return Raw(text)

    def spec(
        self, task: Definition[Any], options: Options, args: dict[str, Any], payload: Raw, id: JobId | None = None
    ) -> JobSpec:
        """One job as a store keeps it.

        Options of the call override the context, which overrides the task, the queue and the settings.
        """
        around, made_for = job_in_force.get(), (task, options, tenant_in_force.get())
        last = self._last.get(task.name)
        key = options.key_of(args, task.key) if task.key or options.key else None
        if last is not None and around is None and not self.hooks and all(map(is_, last[0], made_for)):
            return replace(last[1], id=id or self.new_id(), payload=payload, key=key)
        tenant = self.tenant(options.tenant, around)
        queue = options.queue or task.queue
        if queue not in self.queues and task.is_registered:
            self._warn_of_queue(queue, task)
        rules = self.rules(task, queue)
        if options.priority is None:
            priority, label = task.priority, task.priority_label
        else:
            priority, label = options.priority, options.priority_label
        delay_s, run_at, given_headers = options.delay, options.run_at, options.headers
        job_id = options.id or id or self.new_id()
        correlation_id = options.correlation_id or (inherited_correlation(around) if around else None)
        if self.hooks:
            draft = self._hooked(
                Draft(
                    id=job_id,
                    correlation_id=correlation_id or str(job_id),
                    headers=given_headers,
                    type=task.name,
                    tenant=tenant or self.settings.default_tenant,
                    queue=queue,
                    args=args,
                    priority=priority,
                    delay_s=delay_s,
                    run_at=run_at,
                )
            )
            asked: object = draft.priority
            if asked != priority:
                label = asked if isinstance(asked, str) else None
            priority, delay_s, run_at = self.priorities.resolve(draft.priority), draft.delay_s, draft.run_at
            given_headers = dict(draft.headers)
        headers = self._headers(task, given_headers) if given_headers else {}
        if label is not None:
            headers = {**headers, PRIORITY_HEADER: label}
        spec = JobSpec(
            id=job_id,
            type=task.name,
            payload=payload,
            payload_version=task.version,
            tenant=tenant or self.settings.default_tenant,
            queue=queue,
            priority=priority,
            priority_scope=rules.priority_scope,
            category=task.category,
            idempotency_key=options.idempotency_key,
            dedup_key=options.dedup_key,
            correlation_id=correlation_id,
            parent_id=options.parent or (around.id if around and len(around.batch) < 2 else None),
            created_by=options.created_by,
            refs=refs_of(task, options, args),
            headers=headers,
            max_attempts=(options.max_attempts or (options.retry and options.retry.max_attempts) or rules.max_attempts),
            timeout_s=options.timeout or task.timeout_s,
            retry=None if options.retry is None else Raw(options.retry.to_json()),
            run_at=run_at,
            delay_s=delay_s,
            key=key,
        )
        own = options.id or options.conn is not None or options.tenant == NO_TENANT  # nobody's connection is kept
        if around is None and not (self.hooks or task.refs or own):
            self._last[task.name] = made_for, replace(spec, payload=Raw(b"{}"))
        return spec

    def tenant(self, named: str | None, around: CurrentJob | None, what: str = "a job") -> str | None:
        """The call's own tenant, else the current one.

        A job of one tenant enqueues for that tenant alone, unless inside `all_tenants()`.
        """
        in_force = tenant_in_force.get()
        tenant = named or in_force
        if tenant is None:
            self._check_none(named, what)
            return None
        if tenant == NOBODY:
            raise PermissionDenied(what, NOBODY)
        if named and around is not None and in_force not in (None, SYSTEM_TENANT, named):
            raise PermissionDenied(f'{what} for tenant "{named}"', around.tenant)
        self.uses_tenants = self.uses_tenants or tenant != SYSTEM_TENANT
        return tenant

    def _check_none(self, named: str | None, what: str) -> None:
        """Refuse a job without a tenant where each must have one, and `tenant=None` where tenants are used."""
        required = self.settings.require_tenant
        if required or (required is None and named == NO_TENANT and self.uses_tenants):
            raise InvalidOption(
                "tenant", None, f"the tenant {what} belongs to, or SYSTEM for the application itself (require_tenant)"
            )

    def _hooked(self, draft: Draft) -> Draft:
        for hook in self.hooks:
            name = getattr(hook, "__qualname__", repr(hook))
            try:
                changed = hook(draft)
            except Exception as error:
                error.add_note(f'raised by the enqueue hook {name} for "{draft.type}"; nothing was enqueued')
                raise
            if changed is None:
                continue
            if not isinstance(changed, Draft):
                raise InvalidOption(f"what the enqueue hook {name} returned", changed, "the draft, changed, or None")
            draft = changed
        return draft

    def _without_secrets(self, text: bytes, policy: str) -> tuple[bytes, list[str]]:
        content = msgspec.json.decode(text)
        if is_clean(msgspec.json.encode(content)):  # not the text itself: a `Raw` may hide a name behind its spelling
            return text, []
        if policy == "redact":
            content, paths = secrets.redact(content)
            return (encode_value(content)[0] or text) if paths else text, []
        return text, [
            f"{path}: {why}; pass an id instead, or set sensitive to redact or allow"
            for path, why in secrets.find(content)
        ]

    def _headers(self, task: Definition[Any], headers: dict[str, str]) -> dict[str, str]:
        """Headers are stored, shown and logged like the payload, so the same rule applies."""
        policy = task.sensitive or self.settings.sensitive
        if policy == "redact":
            return secrets.redact(headers)[0]
        if policy == "refuse" and (found := secrets.find(headers)):
            raise InvalidPayload(task.name, [f"headers.{path}: {why}" for path, why in found])
        return headers

    def _warn_of_queue(self, queue: str, task: Definition[Any]) -> None:
        said = 'queue "%s" for "%s" is unknown here: no task or setting names it. Does a worker serve it?%s'
        logger.warning(said, queue, task.name, nearest(queue, self.queues))
        self.queues.add(queue)

    def _warn_of_size(self, task: Definition[Any], text: bytes) -> None:
        is_large = len(text) > self._limits.warn_bytes
        if is_large and not task.is_large:
            logger.warning("%s: %s", task.name, size_warning(text, self._limits))
        task.is_large = is_large
