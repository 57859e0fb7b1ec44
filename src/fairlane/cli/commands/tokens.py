"""`fairlane tokens`: credentials for the HTTP API."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import click

from fairlane.cli.exits import NOT_FOUND, Failed
from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.options import acts, at_store, prints
from fairlane.cli.output import Printer, instant
from fairlane.cli.target import At
from fairlane.cli.times import span

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.core.ops import Credential

TITLES = ("id", "name", "prefix", "roles", "tenant", "expires", "last used", "revoked")
ROLE = click.Choice(["viewer", "operator", "staff", "manager", "admin"])


@click.group(cls=SuggestingGroup)
def tokens() -> None:
    """Make tokens and log-in links for the HTTP API, list and revoke them."""


@tokens.command("create")
@click.argument("name")
@click.option("--role", "roles", type=ROLE, multiple=True, required=True, help="What it may do; may be given again.")
@click.option("--tenant", help="Bind it to one tenant.")
@click.option("--ttl", type=span, metavar="SPAN", help="How long it is good for: 90d; left out, until it is revoked.")
@acts
@at_store
@prints
def create(
    name: str,
    roles: tuple[str, ...],
    tenant: str | None,
    ttl: timedelta | None,
    by: str,
    notes: str | None,
    at: At,
    out: Printer,
) -> None:
    """Make a token for NAME, a program. The secret is printed this once."""
    from fairlane.api.auth.credentials import prepared

    with at.client(creates=True) as client:
        ttl_s = None if ttl is None else ttl.total_seconds()
        secret, op = prepared(client, "token", name, roles, tenant=tenant, ttl_s=ttl_s, by=by, notes=notes)
        made = client.runtime.access.run(op).credential
    if out.as_json:
        out.data({"token": secret, "credential": made})
        return
    out.line(secret)
    out.note("keep it now: it cannot be shown again. Send it as the header Authorization: Bearer fl_…")


@tokens.command("link")
@click.argument("name")
@click.option("--role", "roles", type=ROLE, multiple=True, required=True, help="What they may do; may be given again.")
@click.option("--tenant", help="Bind them to one tenant.")
@click.option("--ttl", type=span, metavar="SPAN", default="10m", show_default=True, help="How long it can be opened.")
@acts
@at_store
@prints
def link(
    name: str,
    roles: tuple[str, ...],
    tenant: str | None,
    ttl: timedelta,
    by: str,
    notes: str | None,
    at: At,
    out: Printer,
) -> None:
    """Make a link by which NAME, a person, logs in once."""
    from fairlane.api.auth.credentials import prepared

    with at.client(creates=True) as client:
        ttl_s = ttl.total_seconds()
        secret, op = prepared(client, "link", name, roles, tenant=tenant, ttl_s=ttl_s, by=by, notes=notes)
        made = client.runtime.access.run(op).credential
    if out.as_json:
        out.data({"link": secret, "path": f"/login?link={secret}", "credential": made})
        return
    out.line(f"/login?link={secret}")
    out.note("open it below the API's address; it is good once")


@tokens.command("list")
@click.option(
    "--kind", type=click.Choice(["token", "link", "session"]), default="token", show_default=True, help="Which to list."
)
@click.option("--all", "also_bad", is_flag=True, help="Revoked and expired ones, too.")
@at_store
@prints
def list_credentials(kind: str, also_bad: bool, at: At, out: Printer) -> None:
    """List tokens, links or sessions, newest first."""
    from fairlane.core.ops import ListCredentials

    with at.client() as client:
        op = ListCredentials(kind=kind, also_bad=also_bad)  # type: ignore[arg-type]  # one of the choices
        found = client.runtime.access.run(op).credentials
    if out.as_json:
        out.data({"credentials": found})
    elif found:
        out.table(TITLES, [_row(credential) for credential in found])
    else:
        out.note(f"there is no {kind}")


@tokens.command("revoke")
@click.argument("id", type=click.UUID)
@acts
@at_store
@prints
def revoke(id: UUID, by: str, notes: str | None, at: At, out: Printer) -> None:
    """Revoke a token, a link or a session: from now on it is good for nothing."""
    with at.client() as client:
        found = _revoked(client, id, by, notes)
    if out.as_json:
        out.data(found)
    else:
        out.note(f"{found.kind} of {found.name} is revoked")


def _revoked(client: Fairlane, id: UUID, by: str, notes: str | None) -> Credential:
    from fairlane.core.names import check_key
    from fairlane.core.ops import RevokeCredential

    found = client.runtime.access.run(RevokeCredential(id=id, by=check_key("by", by), notes=notes)).credential
    if found is None:
        raise Failed(f"no credential {id} here; `fairlane tokens list --all` shows them", NOT_FOUND)
    return found


def _row(credential: Credential) -> tuple[object, ...]:
    return (
        credential.id,
        credential.name,
        credential.prefix,
        ",".join(credential.roles),
        credential.tenant,
        instant(credential.expires_at),
        instant(credential.last_used_at),
        instant(credential.revoked_at),
    )
