"""`fairlane migrate`: bring the store's schema up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from fairlane.cli.commands.isolate import isolate
from fairlane.cli.exits import FAILED
from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.cli.schema import Schema
    from fairlane.stores.base import Migration

sql_option = click.option("--sql", is_flag=True, help="Print every migration as one script; nothing is connected to.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Say what `up` would run, and run nothing.")


class Outer(NamedTuple):
    """Options given before the sub-command; those behind it win."""

    at: At
    out: Printer

    def joined(self, at: At, out: Printer) -> tuple[At, Printer]:
        return At(at.url or self.at.url, at.app or self.at.app), self.out if self.out.as_json else out


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@sql_option
@dry_run_option
@at_store
@prints
@click.pass_context
def migrate(context: click.Context, sql: bool, dry_run: bool, at: At, out: Printer) -> None:
    """Bring the store's schema up to date.

    SQLite files are brought up to date when they are first used; PostgreSQL is migrated by this command alone. Safe to
    run from many processes at once.
    """
    context.obj = Outer(at, out)
    if context.invoked_subcommand is not None:
        if sql or dry_run:
            raise click.UsageError(f"put {'--sql' if sql else '--dry-run'} behind `up`, or leave `up` out", context)
        return
    if not sql and not dry_run:
        raise click.UsageError("say what to do: up, status, check, isolate, --sql or --dry-run", context)
    _up(at, out, sql=sql, dry_run=dry_run)


@migrate.command()
@sql_option
@dry_run_option
@at_store
@prints
@click.pass_obj
def up(outer: Outer, sql: bool, dry_run: bool, at: At, out: Printer) -> None:
    """Run what is pending."""
    at, out = outer.joined(at, out)
    _up(at, out, sql=sql, dry_run=dry_run)


@migrate.command()
@at_store
@prints
@click.pass_obj
def status(outer: Outer, at: At, out: Printer) -> None:
    """Say which version is there, which is needed, and what is pending."""
    at, out = outer.joined(at, out)
    _show(_schema(at), out)


@migrate.command()
@at_store
@prints
@click.pass_obj
def check(outer: Outer, at: At, out: Printer) -> None:
    """Exit with 1 unless the schema is the one this version needs."""
    at, out = outer.joined(at, out)
    if not _show(_schema(at), out):
        raise click.exceptions.Exit(FAILED)


migrate.add_command(isolate)


def _up(at: At, out: Printer, *, sql: bool, dry_run: bool) -> None:
    schema = _schema(at)
    if sql:
        click.echo(schema.script(), nl=False)
        return
    ran = schema.pending() if dry_run else schema.up()
    if out.as_json:
        out.data({"dry_run": dry_run, "migrations": [_described(step) for step in ran]})
        return
    for step in ran:
        out.line(f"{'would run' if dry_run else 'ran'} {step.version} {step.name} ({step.phase})")
    if not ran:
        out.note(f"nothing to do: the schema is version {schema.needed}")


def _show(schema: Schema, out: Printer) -> bool:
    current, pending = schema.current(), schema.pending()
    is_current = current == schema.needed
    if out.as_json:
        steps = [_described(step) for step in pending]
        out.data({"current": current, "needed": schema.needed, "up_to_date": is_current, "pending": steps})
        return is_current
    out.facts(
        [
            ("current", current or "none"),
            ("needed", schema.needed),
            ("pending", ", ".join(f"{step.version} {step.name} ({step.phase})" for step in pending) or "nothing"),
        ]
    )
    if current > schema.needed:
        out.note("the schema is newer than this version of Fairlane: upgrade the package")
    elif not is_current:
        out.note("run `fairlane migrate up`")
    return is_current


def _schema(at: At) -> Schema:
    from fairlane.cli.schema import schema_of

    return schema_of(at.settings())


def _described(step: Migration) -> dict[str, object]:
    return {"version": step.version, "name": step.name, "phase": step.phase}
