"""`fairlane supervisors`: make processes that a supervisor drives."""

from __future__ import annotations

import click

from fairlane.cli.options import SuggestingGroup, at_store
from fairlane.cli.target import At


@click.group(cls=SuggestingGroup)
def supervisors() -> None:
    """Make processes that a supervisor in SQL drives."""


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
    from fairlane.cli.target import postgres_of
    from fairlane.supervisors.kit import ProcessPlan, create_process, process_sql

    settings = at.settings()
    postgres_of(settings, "has no SQL functions; a supervisor").close()
    plan = ProcessPlan(process, subject, channel, noun, max_attempts, base_s, cap_s)
    if apply:
        create_process(settings, plan)
    else:
        click.echo(process_sql(settings, plan), nl=False)
