"""`fairlane migrate isolate`: let PostgreSQL itself keep tenants apart."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import click

from fairlane.cli.options import at_store, prints
from fairlane.cli.output import Printer
from fairlane.cli.target import At

if TYPE_CHECKING:
    from fairlane.client.settings.model import Settings
    from fairlane.stores.postgres.roles import PostgresIsolator


class JoinedOptions(Protocol):
    def joined(self, at: At, out: Printer) -> tuple[At, Printer]: ...


@click.command()
@click.option("--prefix", metavar="NAME", help="What the names of the roles begin with; the schema's name by default.")
@click.option("--sql", is_flag=True, help="Print the change as one script; nothing is connected to.")
@at_store
@prints
@click.pass_obj
def isolate(outer: JoinedOptions, prefix: str | None, sql: bool, at: At, out: Printer) -> None:
    """Separate roles and force row-level security (PostgreSQL).

    Makes the roles NAME_owner, NAME_engine, NAME_worker, NAME_api and NAME_read; none can log in. Grant the last three
    to the roles your processes log in with. Safe to run again; `migrate up` keeps to it by itself.
    """
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
            ("api", f"grant {roles.api} to who enqueues, looks and acts"),
            ("read", f"grant {roles.read} to who reads one tenant's rows by SQL"),
        ]
    )


def isolator_of(settings: Settings) -> PostgresIsolator:
    from fairlane.errors import ConfigError
    from fairlane.stores.url import redacted, store_named_by

    named = store_named_by(settings.url)
    if not named.startswith("postgres"):
        raise ConfigError(
            f"url = {redacted(settings.url)}: a {named} store has no roles; isolation by the database needs PostgreSQL"
        )
    from fairlane.stores.postgres import PostgresStore

    return PostgresStore(
        settings.url, schema=settings.schema, statement_timeout_s=settings.statement_timeout_s
    ).isolator()
