"""`fairlane enqueue`: enqueues one job; its payload is given as `name=value` pairs, one JSON object, or on stdin."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, get_args

import click
import msgspec

from fairlane.cli.options import at_store, instant_ahead, names_of, prints, queue_option, read_span
from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.core.job_keys import OnConflict
from fairlane.core.names import BUILT_IN_TASKS
from fairlane.core.payload.codec import decode
from fairlane.core.payload.json_scan import ScanLimits
from fairlane.errors import InvalidOption, StoreError, nearest

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane


@click.command()
@click.argument("type", shell_complete=names_of("types"))
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--payload", metavar="JSON|-", help="The payload as one JSON object; - reads it from stdin.")
@click.option("--tenant", envvar="FAIRLANE_TENANT", show_envvar=True, help="The job's tenant.")
@queue_option(help="Queue, instead of the task's own.")
@click.option("--priority", help="A label such as high, or a number: smaller first.")
@click.option("--delay", type=read_span, metavar="SPAN", help="Run after this delay: 90s, 5m, 1h30m.")
@click.option(
    "--at", "run_at", type=instant_ahead, metavar="WHEN", help='Run at this time: 2030-01-01T09:00Z, or "in 5m".'
)
@click.option("--key", metavar="NAME:VALUE", help="Its key, as customer:42: jobs with one key wait for each other.")
@click.option("--ordered", is_flag=True, default=None, help="Jobs with its key run one by one, as they were enqueued.")
@click.option(
    "--on-conflict",
    type=click.Choice(get_args(OnConflict)),
    help="While its key has no place: wait (the default), or discard this job, or replace those that wait or run.",
)
@click.option("--idempotency-key", help="One job per tenant and key.")
@click.option("--dedup-key", help="One unfinished job per tenant, type and key.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["return", "raise"]),
    default="return",
    show_default=True,
    help="If the key is taken: return the existing job, or exit with 4.",
)
@click.option("--correlation-id", help="Correlation id, shared by related jobs.")
@click.option("--created-by", help="Who enqueues it.")
@click.option("--max-attempts", type=int, help="Attempts before the job is dead.")
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the job has ended and print its result; needs a worker that knows its task.",
)
@click.option("--wait-for", type=read_span, metavar="SPAN", help="Like --wait, for at most this long.")
@click.option("--raw", is_flag=True, help="Do not look the type up in the application.")
@at_store
@prints
def enqueue(
    type: str,
    pairs: tuple[str, ...],
    payload: str | None,
    run_at: datetime | timedelta | None,
    wait: bool,
    wait_for: timedelta | None,
    raw: bool,
    at: At,
    out: Printer,
    **options: Any,
) -> None:
    """Enqueue one job and print its id.

    Values are read as JSON if they are valid JSON, else as text: `user_id=7 name=Dana tags='["a"]' zip='"0123"'`.
    With an application (--app) the payload is checked against the task; without one it is not checked, and the
    store's file must be there.
    """
    if run_at is not None and options["delay"] is not None:
        raise click.UsageError("give either --delay or --at", click.get_current_context())
    if isinstance(run_at, timedelta):
        options["delay"], run_at = run_at, None
    application = None if raw else at.application()
    with at.client(creates="for_application") as client:
        rules = None if application is None else application.runtime
        arguments = read_payload(type, pairs, payload, (rules or client.runtime).settings.limits)
        options |= {"run_at": run_at, "priority": read_priority(options["priority"])}
        handle = client.tasks.enqueue(type, arguments, rules=rules, **options)
        if rules is None:
            _warn_if_unknown(client, None if raw else type, options["queue"], out)
        if handle.duplicate:
            out.note("the key is taken: this is the existing job, nothing was enqueued")
        waits = wait or wait_for is not None
        result = handle.result(None if wait_for is None else wait_for.total_seconds()) if waits else None
        if out.as_json:
            out.data({"id": str(handle.id), "duplicate": handle.duplicate, "job": handle.job()})
        elif waits:
            out.data(result)
        else:
            out.line(str(handle.id))


def _warn_if_unknown(client: Fairlane, task: str | None, queue: str | None, out: Printer) -> None:
    """Say that nobody may serve the task or the queue; without the application only workers know them."""
    try:
        workers = client.workers.list().workers
    except StoreError:
        return  # It is enqueued; that this role may not see the workers changes nothing.
    types = {name for worker in workers for name in worker.types} - BUILT_IN_TASKS
    if task is not None and task not in types:
        why = "no application is named (--app) and no worker serves it"
        out.note(f'task "{task}" is unknown here: {why}.{nearest(task, types)}')
    served = {name for worker in workers for name in worker.queues}
    if queue is not None and queue not in (known := {*client.runtime.settings.queues, *served}):
        why = "no worker serves it and no setting names it"
        out.note(f'queue "{queue}" is unknown here: {why}.{nearest(queue, known)}')


STDIN = "-"


def read_payload(task: str, pairs: Sequence[str], text: str | None, limits: ScanLimits) -> dict[str, Any]:
    """The payload, checked as untrusted input. A refusal lists every problem."""
    if text is not None and pairs:
        raise click.UsageError("give the payload once: as name=value, or with --payload", click.get_current_context())
    if text is None:
        return _from_pairs(pairs)
    raw = sys.stdin.buffer.read(limits.max_bytes + 1) if text == STDIN else text
    return decode(raw, task=task, limits=limits)


def _from_pairs(pairs: Sequence[str]) -> dict[str, Any]:
    payload: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidOption("argument", pair, "name=value, as in user_id=7")
        if name in payload:
            raise InvalidOption("argument", pair, f"{name} once only")
        payload[name] = _value(value)
    return payload


def _value(text: str) -> Any:
    """The value as JSON if it is valid JSON (`7`, `true`, `[1, 2]`, `"7"`), else the text itself."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return text


def read_priority(text: str | None) -> str | int | None:
    return int(text) if text is not None and text.isdecimal() else text
