"""`fairlane enqueue`: put one job in."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.cli.times import instant_ahead, span

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.client.handle import Handle


@click.command()
@click.argument("type")
@click.argument("pairs", nargs=-1, metavar="[NAME=VALUE]...")
@click.option("--payload", metavar="JSON|-", help="The payload as one JSON object; - reads it from stdin.")
@click.option("--tenant", envvar="FAIRLANE_TENANT", show_envvar=True, help="Whose job it is.")
@click.option("--queue", help="Another queue than its own.")
@click.option("--priority", help="A label such as high, or a number: smaller first.")
@click.option("--delay", type=span, metavar="SPAN", help="Run this much later: 90s, 5m, 1h30m.")
@click.option("--at", "run_at", type=instant_ahead, metavar="WHEN", help='Run then: 2030-01-01T09:00Z, or "in 5m".')
@click.option("--key", "idempotency_key", help="Idempotency key: one job per tenant and key.")
@click.option("--dedup-key", help="One unfinished job per tenant, type and key.")
@click.option(
    "--on-duplicate",
    type=click.Choice(["return", "raise"]),
    default="return",
    show_default=True,
    help="A taken key: give the job that is there, or exit with 4.",
)
@click.option("--correlation-id", help="Joins jobs that belong together.")
@click.option("--created-by", help="Who enqueues it.")
@click.option("--max-attempts", type=int, help="How often it may run and fail.")
@click.option(
    "--wait", is_flag=True, help="Wait until it has ended and print its result; needs a worker that knows it."
)
@click.option("--wait-for", type=span, metavar="SPAN", help="The same, but no longer than this.")
@click.option("--raw", is_flag=True, help="By name alone: do not look the type up in the application.")
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
    """Put one job in and print its id.

    Values are JSON where they are JSON, else text: `user_id=7 name=Dana tags='["a"]' zip='"0123"'`. With an
    application (--app) the payload is checked against the task; without one the type goes by its name.
    """
    if run_at is not None and options["delay"] is not None:
        raise click.UsageError("give either --delay or --at", click.get_current_context())
    if isinstance(run_at, timedelta):
        options["delay"], run_at = run_at, None
    application = None if raw else at.application()
    with at.client(creates=True) as client:
        handle = _enqueued(client, application, type, pairs, payload, {**options, "run_at": run_at})
        if handle.duplicate:
            out.note("the key is taken: this is the job that was there already, nothing new was enqueued")
        waits = wait or wait_for is not None
        result = handle.result(None if wait_for is None else wait_for.total_seconds()) if waits else None
        if out.as_json:
            out.data({"id": str(handle.id), "duplicate": handle.duplicate, "job": handle.job()})
        elif waits:
            out.data(result)
        else:
            out.line(str(handle.id))


def _enqueued(
    client: Fairlane,
    application: Fairlane | None,
    type: str,
    pairs: tuple[str, ...],
    payload: str | None,
    options: dict[str, Any],
) -> Handle[Any]:
    from fairlane.cli.by_name import TaskByName
    from fairlane.cli.payloads import read_payload
    from fairlane.client.enqueue.enqueuer import Enqueuer
    from fairlane.client.enqueue.options import Options
    from fairlane.client.task import Definition

    preparer = (application or client).runtime.preparer
    task: Definition[Any]
    task = TaskByName(type, preparer) if application is None else application.tasks.require(type).definition
    arguments = read_payload(type, pairs, payload, preparer.settings.limits)
    if application is not None:
        arguments = task.signature.bind((), arguments)
    if (options["priority"] or "").isdecimal():
        options["priority"] = int(options["priority"])
    chosen = Options().changed(
        {name: value for name, value in options.items() if value is not None}, preparer.priorities
    )
    # The job is made by the application's rules and goes to the store the operator named.
    enqueuer = Enqueuer(client.runtime, None if application is None else application.runtime)
    return enqueuer.one(task, chosen, arguments)
