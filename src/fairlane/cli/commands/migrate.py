"""`fairlane migrate`: bring the store's schema up to date."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import click

from fairlane.cli.options import SuggestingGroup, at_store, prints
from fairlane.cli.output import FAILED, Printer, progress
from fairlane.cli.target import At

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlane.stores.base import Migrator
    from fairlane.stores.migrations import Migration

sql_option = click.option(
    "--sql",
    is_flag=True,
    help="Print a script to run by hand instead. For PostgreSQL it contains every step, skips completed ones, and "
    "needs no connection; for SQLite it contains the pending steps.",
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Print the steps that would run; run nothing.")
with_option = click.option(
    "--with",
    "parts",
    type=click.Choice(["supervisors"]),
    multiple=True,
    help="Install this beside the store's schema, too. What is installed already follows every `up` by itself.",
)
to_option = click.option("--to", type=click.IntRange(min=1), metavar="N", help="Stop at version N of the schema.")


class Outer(NamedTuple):
    """Options given before the subcommand; options after it override them."""

    at: At
    out: Printer

    def joined(self, at: At, out: Printer) -> tuple[At, Printer]:
        return At(at.url or self.at.url, at.app or self.at.app), self.out if self.out.as_json else out


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@with_option
@sql_option
@dry_run_option
@at_store
@prints
@click.pass_context
def migrate(context: click.Context, parts: tuple[str, ...], sql: bool, dry_run: bool, at: At, out: Printer) -> None:
    """Bring the store's schema up to date.

    Run `up` with the new release before its code is deployed: older code keeps running while the schema is only
    expanded. Run `contract` once no older code is left. A SQLite file gets its schema at first use, and later versions
    by this command. Safe to run from many processes at once.
    """
    context.obj = Outer(at, out)
    if context.invoked_subcommand is not None:
        given = "--sql" if sql else "--dry-run" if dry_run else "--with" if parts else None
        if given:
            raise click.UsageError(f"put {given} behind `up`, or leave `up` out", context)
        return
    if not sql and not dry_run and not parts:
        raise click.UsageError(
            "say what to do: up, contract, status, check, isolate, --with, --sql or --dry-run", context
        )
    _up(at, out, sql=sql, dry_run=dry_run, parts=parts)


@migrate.command()
@with_option
@to_option
@sql_option
@dry_run_option
@at_store
@prints
@click.pass_obj
def up(outer: Outer, parts: tuple[str, ...], to: int | None, sql: bool, dry_run: bool, at: At, out: Printer) -> None:
    """Run the pending steps, and replace the functions if they differ."""
    at, out = outer.joined(at, out)
    _up(at, out, sql=sql, dry_run=dry_run, parts=parts, to=to)


@migrate.command()
@dry_run_option
@at_store
@prints
@click.pass_obj
def contract(outer: Outer, dry_run: bool, at: At, out: Printer) -> None:
    """Remove schema parts that only older code needs; refused while workers of older code are alive."""
    at, out = outer.joined(at, out)
    migrators = [_migrator(at), *_beside(at)]
    with progress(None if dry_run else "Contracting"):
        steps = [step for each in migrators for step in (each.contracting() if dry_run else each.contract())]
    _report(migrators[0], steps, out, dry_run=dry_run)


@migrate.command()
@at_store
@prints
@click.pass_obj
def status(outer: Outer, at: At, out: Printer) -> None:
    """Show the installed version, the required version and the pending steps."""
    at, out = outer.joined(at, out)
    _show(at, out)


@migrate.command()
@at_store
@prints
@click.pass_obj
def check(outer: Outer, at: At, out: Printer) -> None:
    """Exit with 1 unless this code can run on the schema."""
    at, out = outer.joined(at, out)
    if not _show(at, out):
        raise click.exceptions.Exit(FAILED)


@migrate.command()
@click.option("--prefix", metavar="NAME", help="Prefix of the role names; the schema's name by default.")
@click.option("--sql", is_flag=True, help="Print the change as one script, without a connection.")
@at_store
@prints
@click.pass_obj
def isolate(outer: Outer, prefix: str | None, sql: bool, at: At, out: Printer) -> None:
    """Separate roles and force row-level security (PostgreSQL).

    Creates the roles NAME_owner, NAME_engine, NAME_worker, NAME_enqueue, NAME_api, NAME_tokens and NAME_read; none can
    log in. Grant the last five to the roles your processes and people log in with. Safe to repeat; `migrate up`
    preserves the isolation.
    """
    from fairlane.cli.target import isolator_of

    at, out = outer.joined(at, out)
    isolator = isolator_of(at.settings())
    if sql:
        click.echo(isolator.script(prefix), nl=False)
        return
    roles = isolator.apply(prefix)
    if out.as_json:
        out.data(roles._asdict())
        return
    out.facts(
        [
            ("owner", f"{roles.owner}, for migrations"),
            ("engine", f"{roles.engine}, for nobody"),
            ("worker", f"grant {roles.worker} to who runs jobs"),
            ("enqueue", f"grant {roles.enqueue} to who only enqueues"),
            ("api", f"grant {roles.api} to who enqueues, looks and acts"),
            ("tokens", f"grant {roles.tokens} to who makes tokens and log-in links"),
            ("read", f"grant {roles.read} to who reads one tenant's rows by SQL"),
        ]
    )


def _up(at: At, out: Printer, *, sql: bool, dry_run: bool, parts: tuple[str, ...] = (), to: int | None = None) -> None:
    from fairlane.stores.url import store_named_by

    if store_named_by(at.settings().url) == "redis" and not sql and not parts:
        _report(None, (), out, dry_run=dry_run)  # one script of a deployment serves every store
        return
    migrator = _migrator(at)
    if parts and to is not None:
        raise click.UsageError("--to stops short of what --with needs; give one of them")
    if sql:
        scripts = (migrator.script(to), *(each.script() for each in _beside(at, parts, look=False)))
        click.echo("\n".join(scripts), nl=False)
        return
    with progress(None if dry_run else "Migrating"):
        steps = [*(migrator.pending(to) if dry_run else migrator.up(to))]
        if to is None:
            for each in _beside(at, parts):
                steps += each.pending() if dry_run else each.up()
    _report(migrator, steps, out, dry_run=dry_run)
    found, ours = migrator.state().functions, migrator.needed.functions
    if found > ours:
        out.note(f"the functions are of release {found}, newer than this one's {ours}: left as they are")


def _report(migrator: Migrator | None, steps: Sequence[Migration], out: Printer, *, dry_run: bool) -> None:
    if out.as_json:
        out.data({"dry_run": dry_run, "migrations": [_described(step) for step in steps]})
        return
    for step in steps:
        out.line(f"{'would run' if dry_run else 'ran'} {_line(step)}")
    if not steps:
        found = "" if migrator is None else str(migrator.state()).removesuffix(", functions 0")
        out.note(f"nothing to do: the schema is {found}" if found else "nothing to do: a redis store keeps no schema")


def _show(at: At, out: Printer) -> bool:
    from fairlane.errors import SchemaOutOfDate
    from fairlane.stores.migrations import require

    migrator = _migrator(at)
    state, needed = migrator.state(), migrator.needed
    fault = ""
    pending: tuple[Migration, ...] = ()
    try:
        pending = migrator.pending()
        require(state, needed)
        pending += tuple(step for each in _beside(at) for step in each.pending())
    except SchemaOutOfDate as error:
        fault = str(error)
    if out.as_json:
        out.data(
            {
                "current": state.expanded,
                "needed": needed.expanded,
                "contracted": state.contracted,
                "functions": state.functions,
                "functions_needed": needed.functions,
                "runs": not fault,
                "up_to_date": not fault and not pending,
                "pending": [_described(step) for step in pending],
            }
        )
        return not fault
    out.facts(
        [
            ("current", state.expanded or "none"),
            ("needed", needed.expanded),
            ("contracted", state.contracted or "no"),
            *([("functions", f"release {state.functions} of {needed.functions}")] if needed.functions else []),
            ("pending", ", ".join(map(_line, pending)) or "nothing"),
        ]
    )
    if fault:
        out.note(fault)
    elif state.expanded > needed.expanded or state.functions > needed.functions:
        out.note("the schema is newer than this release, which can run on it")
    elif pending:
        out.note("run `fairlane migrate up`")
    return not fault


def _migrator(at: At) -> Migrator:
    from fairlane.cli.target import schema_of

    return schema_of(at.settings())


def _beside(at: At, parts: tuple[str, ...] = (), *, look: bool = True) -> list[Migrator]:
    """What stands beside the store's schema: what is named, or installed already."""
    from fairlane.cli.target import contract_of
    from fairlane.stores.url import store_named_by

    settings = at.settings()
    if not parts and not (look and store_named_by(settings.url).startswith("postgres")):
        return []
    contract = contract_of(settings)
    return [contract] if parts or contract.state().expanded else []


def _line(step: Migration) -> str:
    if step.phase == "functions":
        return f"{step.name}, release {step.version}"
    return f"{step.version} {step.name} ({step.phase})" if step.version else f"{step.name} ({step.phase})"


def _described(step: Migration) -> dict[str, object]:
    return {"version": step.version, "name": step.name, "phase": step.phase}
