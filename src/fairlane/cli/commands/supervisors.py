"""`fairlane supervisors`: make, examine and start again processes that a supervisor drives."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, prints
from fairlane.cli.output import CONFLICT, FAILED, USAGE, Column, Failed, Printer, plural
from fairlane.cli.target import At
from fairlane.core.text import printable

if TYPE_CHECKING:
    from fairlane.client.settings.model import Settings


COUNTS: tuple[Column, ...] = (
    *("process", "open", "succeeded", "stopped", "failed_attempts", "last_failed_at", "last_stopped_at"),
    ("last error", "error_message"),
)
ERRORS: tuple[Column, ...] = ("created_at", "task_id", "task_type", "tenant", ("error", "error_message"))


@click.group(cls=SuggestingGroup)
def supervisors() -> None:
    """Make and examine processes that supervisors in SQL drive."""


@supervisors.command()
@click.argument("process", metavar="DOMAIN.PROCESS")
@click.option("--subject", metavar="SCHEMA.TABLE.COLUMN", help="What one process is about, once: an existing column.")
@click.option(
    "--channel", default="db_function", show_default=True, help="The task type of an attempt: email, sms, file_delete."
)
@click.option("--noun", help="Names the handlers: get_NOUN_payload, record_NOUN_success; the process by default.")
@click.option(
    "--max-attempts", type=click.IntRange(1, 1000), default=5, show_default=True, help="Failures that end the process."
)
@click.option(
    "--base", "base_s", type=click.IntRange(1), default=10, show_default=True, help="Seconds to the second attempt."
)
@click.option(
    "--cap", "cap_s", type=click.IntRange(1), default=3600, show_default=True, help="Most seconds between attempts."
)
@click.option("--apply", is_flag=True, help="Run the script instead of printing it.")
@at_store
def new(
    process: str,
    subject: str | None,
    channel: str,
    noun: str | None,
    max_attempts: int,
    base_s: int,
    cap_s: int,
    apply: bool,
    at: At,
) -> None:
    """Generate a process: tables, facts, kickoff, supervisor, handlers and grants.

    Prints SQL for a migration of yours. The database must have the supervisors installed: `fairlane migrate up --with
    supervisors`. Two functions of a process are yours to write; the script names them.
    """
    from fairlane.supervisors.kit import ProcessPlan, create_process, process_sql

    settings = _postgres(at)
    plan = ProcessPlan(process, subject, channel, noun, max_attempts, base_s, cap_s)
    if apply:
        create_process(settings, plan)
    else:
        click.echo(process_sql(settings, plan), nl=False)


@supervisors.command("list")
@at_store
@lists
def list_processes(at: At, out: Printer) -> None:
    """Count the processes of each kind: open, succeeded and stopped, and what the last attempt failed with.

    A kind is known by its tables `…_task`, `…_attempt`, `…_attempt_succeeded` and `…_attempt_failed`. Where it has no
    `…_stopped`, as supervisors written by hand, nobody knows which have stopped, and they count as open.
    """
    from fairlane.supervisors.kit import process_counts

    found = process_counts(_postgres(at))
    out.listing("processes", found, COUNTS, empty="there are no processes: `fairlane supervisors new` makes one")


@supervisors.command()
@click.argument("process", metavar="DOMAIN.PROCESS")
@click.argument("subjects", nargs=-1, metavar="[SUBJECT]...")
@click.option("--stopped", is_flag=True, help="All that have stopped, instead of subjects.")
@click.option(
    "--limit", type=click.IntRange(1, 100_000), default=1000, show_default=True, help="How many with --stopped."
)
@acts
@at_store
@prints
def restart(
    process: str,
    subjects: tuple[str, ...],
    stopped: bool,
    limit: int,
    by: str,
    notes: str | None,
    at: At,
    out: Printer,
) -> None:
    """Start processes again that have stopped, or whose supervisor is lost: `select DOMAIN.restart_PROCESS(SUBJECT)`.

    A subject is the value of the column that the process is about. Its failures count from now on, and the supervisor
    looks at once. Who did it and why is a fact, in `…_restarted`. A process that has succeeded is left alone.
    """
    from fairlane.supervisors import kit

    if stopped == bool(subjects):
        raise Failed("name subjects, or --stopped for all that have stopped", USAGE)
    settings = _postgres(at)
    if stopped:
        number = kit.restart_stopped(settings, process, limit, by=by, notes=notes)
        out.answer({"restarted": number}, f"started {plural(number, 'process')} of {process} again")
        return
    answers = kit.restart_processes(settings, process, subjects, by=by, notes=notes)
    refused = {subject: why for subject, why in answers.items() if why is not None}
    started = [subject for subject in answers if subject not in refused]
    if out.as_json:
        out.data({"restarted": started, "refused": refused})
    for name in started if not out.as_json else ():
        out.line(f"started {process} {name} again")
    if refused:
        raise Failed("; ".join(refused.values()), CONFLICT)


@supervisors.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="How many at most.")
@at_store
@lists
def errors(limit: int, at: At, out: Printer) -> None:
    """List the last errors of tasks (`queues.error`), the newest first."""
    from fairlane.supervisors.kit import last_errors

    out.listing("errors", last_errors(_postgres(at), limit), ERRORS, empty="no task has recorded an error")


@supervisors.command()
@click.option("--strict", is_flag=True, help="Exit with 1 for warnings, too.")
@at_store
@prints
def check(strict: bool, at: At, out: Printer) -> None:
    """Examine the functions that the worker calls, and print the SQL that mends them.

    Refused are those that waiting tasks name and the worker may not run; their tasks wait until it may. A warning is
    about a function that runs. Changes nothing. Exits with 1 if one is refused.
    """
    from fairlane.supervisors.function_check import examine_functions

    findings = examine_functions(_postgres(at))
    refused = [finding for finding in findings if finding.state == "refused"]
    if out.as_json:
        out.data({"ok": not refused, "findings": [finding._asdict() for finding in findings]})
    else:
        for found in findings:
            waiting = f" ({plural(found.waiting, 'task')} waiting)" if found.waiting else ""
            # A task's payload names the function: a line of its own would be SQL, or a command of psql.
            out.line(f"-- {found.state}: {printable(f'{found.function}: {found.says}')}{waiting}")
            out.line(found.remedy if found.remedy.endswith(";") else f"-- {found.remedy}")
        out.note(f"{len(refused)} refused, {plural(len(findings) - len(refused), 'warning')}")
    if refused or (strict and findings):
        raise click.exceptions.Exit(FAILED)


@supervisors.command("take-over")
@click.option("--dry-run", is_flag=True, help="Do everything, and undo it.")
@at_store
@prints
def take_over(dry_run: bool, at: At, out: Printer) -> None:
    """Install the supervisors where another worker has a schema "queues", and move its open tasks.

    Stop that worker first: while it holds a task this is refused. What was there stays readable in the schema
    "queues_before". All of it is done, or nothing; safe to repeat.
    """
    from fairlane.supervisors import takeover

    done = takeover.take_over(_postgres(at), dry_run=dry_run)
    if not done.installed:
        text = "nothing to do: the supervisors are installed already"
    else:
        text = f"{'would move' if dry_run else 'moved'} {plural(done.moved, 'open task')}"
    out.answer({"dry_run": dry_run, "installed": done.installed, "moved": done.moved, "views": done.views}, text)
    for view in done.views:
        out.note(f"create the view {view} again: it reads queues_before, where nothing changes any more")
    if not dry_run:
        out.note("see what the worker may run: `fairlane supervisors check`")


def _postgres(at: At) -> Settings:
    from fairlane.cli.target import postgres_of

    settings = at.settings()
    postgres_of(settings, "has no SQL functions; a supervisor").close()
    return settings
