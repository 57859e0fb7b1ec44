"""Sentry: failed jobs with what is known of them, traces that go on in jobs, check-ins of schedules.

sentry_sdk.init(dsn=…)
instrument(app)    # where tasks are registered
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from fairlane import Cancel, CurrentJob, Draft, FailedAttempt, Fairlane, InvalidOption, Snooze
from fairlane.extras import needed_for

with needed_for("fairlane.contrib.sentry", "sentry"):
    import sentry_sdk
    from sentry_sdk.crons import capture_checkin
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import add_global_event_processor, global_event_processors
    from sentry_sdk.utils import current_stacktrace, event_from_exception

if TYPE_CHECKING:
    from sentry_sdk import Scope

LOGGER = "fairlane.jobs"
"""Where Fairlane logs failed jobs: Sentry would report each of them a second time."""
ORIGIN = "auto.queue.fairlane"
SCHEDULE = "schedule:"
"""How `created_by` of a schedule's jobs begins."""
SLUG_CHARS = 50
CRON_FIELDS = 5
FILTERED = "[Filtered]"
SHORTEST = 4
"""Texts of at least this length are hidden within longer ones, too."""
TELLS_NOTHING = (None, True, False, "", "None", "True", "False", "''", "[]", "{}")


def instrument(app: Fairlane, *, retries: bool = False, monitors: bool = True, arguments: bool = False) -> None:
    """Report dead jobs to Sentry, with `retries` each failed attempt, and with `monitors` the runs of schedules.

    With `arguments` the arguments of a job are sent along, which may be personal data. Without, the local variables of
    a job's events are sent without them.
    """
    ignore_logger(LOGGER)
    if _without_own_variables not in global_event_processors:
        add_global_event_processor(_without_own_variables)

    @app.jobs.on_enqueue
    def send_trace(draft: Draft) -> Draft | None:
        try:
            return draft.change(headers=_headers())
        except InvalidOption:  # too long for a header: the job goes without
            return None

    @app.around_job
    def in_scope(job: CurrentJob) -> Iterator[None]:
        if monitors:
            _check_in(app, job, "in_progress")
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            _describe(scope, job, with_arguments=arguments)
            transaction = _continued(job)
            with sentry_sdk.start_transaction(transaction):
                job.trace = (job.trace or {}) | _headers()
                for name, value in _data(job).items():
                    transaction.set_data(name, value)
                try:
                    yield
                except (Snooze, Cancel) as signal:
                    transaction.set_status("cancelled")
                    if monitors and isinstance(signal, Cancel):  # no other hook is told of this end
                        _check_in(app, job, "ok")
                    raise
                except BaseException:
                    transaction.set_status("internal_error")
                    raise
                transaction.set_status("ok")

    @app.on_failure
    def report(job: CurrentJob, failed: FailedAttempt) -> None:
        if failed.is_dead or retries:
            with sentry_sdk.isolation_scope() as scope:
                _describe(scope, job, with_arguments=arguments)
                _continued(job)
                scope.set_tag("fairlane.is_dead", str(failed.is_dead).lower())
                scope.set_tag("fairlane.error_class", failed.error_class)
                event, hint = event_from_exception(
                    failed.exception,
                    client_options=sentry_sdk.get_client().options,
                    mechanism={"type": "fairlane", "handled": False},
                )
                event["level"] = "error" if failed.is_dead else "warning"
                scope.capture_event(event, hint=hint)
        if monitors and failed.is_dead:
            _check_in(app, job, "error")

    @app.after_job
    def completed(job: CurrentJob, result: Any) -> None:
        if monitors:
            _check_in(app, job, "ok")


def _headers() -> dict[str, str]:
    """The trace that is current."""
    trace = {"sentry-trace": sentry_sdk.get_traceparent(), "baggage": sentry_sdk.get_baggage()}
    return {name: text for name, text in trace.items() if text}


def _describe(scope: Scope, job: CurrentJob, *, with_arguments: bool) -> None:
    """What the events of a job say of it."""
    scope.set_transaction_name(job.type, source="task")
    for name, value in (("task", job.type), ("queue", job.queue), ("tenant", job.tenant)):
        scope.set_tag(f"fairlane.{name}", value)
    scope.set_tag("correlation_id", job.correlation_id)
    about: dict[str, Any] = {
        "id": str(job.id),
        "task": job.type,
        "queue": job.queue,
        "tenant": job.tenant,
        "attempt": job.attempts + 1,
        "max_attempts": job.max_attempts,
        "correlation_id": job.correlation_id,
        "refs": job.refs,
    }
    if with_arguments:
        about["arguments"] = job.arguments
    else:
        scope.add_event_processor(lambda event, _: _without_arguments(event, job.arguments))
    scope.set_context("fairlane_job", about)


def _frames(event: Any) -> Iterator[dict[str, Any]]:
    """Frames that have local variables."""
    for part in ("exception", "threads"):
        for value in (event.get(part) or {}).get("values") or ():
            for frame in (value.get("stacktrace") or {}).get("frames") or ():
                if frame.get("vars"):
                    yield frame


def _without_own_variables(event: Any, _: object) -> Any:
    """Leave out the variables of Fairlane's frames: leases and calls, which hold arguments and help nobody."""
    for frame in _frames(event):
        if (frame.get("module") or "").partition(".")[0] == "fairlane":
            del frame["vars"]
    return event


def _without_arguments(event: Any, arguments: dict[str, Any]) -> Any:
    """Hide arguments in the variables of an event: by their names, and by their values in whatever holds them."""
    if sentry_sdk.get_client().options["attach_stacktrace"] and "exception" not in event:
        stack = current_stacktrace(include_local_variables=False)  # the SDK would add one with variables later
        event.setdefault("threads", {"values": [{"stacktrace": stack, "current": True, "crashed": False}]})
    frames = list(_frames(event))
    named = [value for frame in frames for name, value in frame["vars"].items() if name in arguments]
    leaves = set(_leaves(arguments))
    whole = {repr(leaf) for leaf in leaves} | set(_leaves(named))
    within = sorted((text for text in map(str, leaves) if len(text) >= SHORTEST), key=len, reverse=True)
    for frame in frames:
        for name, value in frame["vars"].items():
            frame["vars"][name] = FILTERED if name in arguments else _hidden(value, whole, within)
    return event


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    elif value not in TELLS_NOTHING:
        yield value


def _hidden(value: Any, whole: set[str], within: list[str]) -> Any:
    if isinstance(value, dict):
        return {name: _hidden(item, whole, within) for name, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item, whole, within) for item in value]
    if not isinstance(value, str):
        return value
    if value in whole:
        return FILTERED
    for text in within:
        value = value.replace(text, FILTERED)
    return value


def _continued(job: CurrentJob) -> Any:
    """The transaction of an attempt, in the trace of whoever enqueued the job."""
    return sentry_sdk.continue_trace(dict(job.headers), op="queue.process", name=job.type, source="task", origin=ORIGIN)


def _data(job: CurrentJob) -> dict[str, Any]:
    return {
        "messaging.system": "fairlane",
        "messaging.destination.name": job.queue,
        "messaging.message.id": str(job.id),
        "messaging.message.retry.count": job.attempts,
    }


def _check_in(app: Fairlane, job: CurrentJob, status: Literal["in_progress", "ok", "error"]) -> None:
    """Report a run of a schedule. All attempts of a job are one run, whose id is the job's."""
    if not (job.created_by or "").startswith(SCHEDULE):
        return
    name = (job.created_by or "").removeprefix(SCHEDULE)
    declared = app.runtime.schedules.get(name)
    config: Any = None
    if declared is not None and len(declared.cron.split()) == CRON_FIELDS:
        config = {"schedule": {"type": "crontab", "value": declared.cron}, "timezone": declared.timezone}
    slug = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:SLUG_CHARS]
    capture_checkin(monitor_slug=slug, check_in_id=job.id.hex, status=status, monitor_config=config)
