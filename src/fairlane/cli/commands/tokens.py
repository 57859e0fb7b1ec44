"""`fairlane tokens`: credentials for the HTTP API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import UUID

import click

from fairlane.cli.options import SuggestingGroup, acts, at_store, lists, prints, read_span
from fairlane.cli.output import Printer
from fairlane.cli.target import At
from fairlane.errors import InvalidOption

if TYPE_CHECKING:
    from fairlane.client.app import Fairlane
    from fairlane.core.ops import CredentialKind

COLUMNS = ("id", "name", "prefix", "roles", "tenant", "expires_at", "last_used_at", "revoked_at")
ROLE = click.Choice(["viewer", "operator", "staff", "manager", "admin", "metrics"])


@click.group(cls=SuggestingGroup)
def tokens() -> None:
    """Create, list and revoke tokens and log-in links for the HTTP API."""


@tokens.command("create")
@click.argument("name")
@click.option("--role", "roles", type=ROLE, multiple=True, required=True, help="What it may do; may be repeated.")
@click.option("--tenant", help="Bind it to one tenant.")
@click.option(
    "--ttl", type=read_span, metavar="SPAN", help="How long it is valid, such as 90d; by default until it is revoked."
)
@acts
@at_store
@prints
def create(name: str, roles: tuple[str, ...], at: At, out: Printer, **given: Any) -> None:
    """Create a token for NAME, a program. The secret is printed only once."""
    with at.client(creates=True) as client:
        made = client.tokens.create(name, roles, **given)
    if out.as_json:
        out.data({"token": made.secret, "credential": made.credential})
        return
    out.line(made.secret)
    out.note("store it now: it cannot be shown again. Send it as the header Authorization: Bearer fl_…")


@tokens.command("link")
@click.argument("name")
@click.option(
    "--role", "roles", type=ROLE, multiple=True, required=True, help="What the person may do; may be repeated."
)
@click.option("--tenant", help="Bind the person to one tenant.")
@click.option(
    "--ttl", type=read_span, metavar="SPAN", default="10m", show_default=True, help="How long the link is valid."
)
@acts
@at_store
@prints
def link(name: str, roles: tuple[str, ...], at: At, out: Printer, **given: Any) -> None:
    """Create a link by which NAME, a person, logs in once."""
    with at.client(creates=True) as client:
        made = client.tokens.create_link(name, roles, **given)
    path = f"/login?link={made.secret}"
    if out.as_json:
        out.data({"link": made.secret, "path": path, "credential": made.credential})
        return
    out.line(path)
    out.note("append it to the API's address; it works once")


@tokens.command("list")
@click.option(
    "--kind", type=click.Choice(["token", "link", "session"]), default="token", show_default=True, help="Which to list."
)
@click.option("--name", help="Of this name.")
@click.option("--all", "also_bad", is_flag=True, help="Include revoked and expired ones.")
@click.option("--limit", type=click.IntRange(1, 200), default=50, show_default=True, help="Rows to show.")
@click.option("--before", metavar="PLACE", help="Continue where the previous page ended.")
@at_store
@lists
def list_credentials(kind: CredentialKind, at: At, out: Printer, **given: Any) -> None:
    """List tokens, links or sessions, newest first."""
    with at.client() as client:
        found = client.tokens.list(kind, **given)
    drops = ("prefix", "last used", "tenant")
    out.listing("credentials", found, COLUMNS, empty=f"there is no {kind}", drops=drops)


@tokens.command("revoke")
@click.argument("id")
@acts
@at_store
@prints
def revoke(id: str, at: At, out: Printer, **given: Any) -> None:
    """Revoke a token, a link or a session, with immediate effect."""
    with at.client() as client:
        found = client.tokens.revoke(_whole_id(client, id), **given)
    if out.as_json:
        out.data(found)
    else:
        out.note(f"{found.kind} of {found.name} is revoked")


def _whole_id(client: Fairlane, text: str) -> UUID:
    """The id of a credential, given in full or by its last block, as narrow terminals show it."""
    try:
        return UUID(text)
    except ValueError:
        kinds: tuple[CredentialKind, ...] = ("token", "link", "session")
        pages = (client.tokens.list(kind, also_bad=True, limit=200) for kind in kinds)
        found = [each.id for page in pages for each in page.credentials if str(each.id).endswith(f"-{text.lower()}")]
    if len(found) != 1:
        raise InvalidOption("ID", text, "the id of a token, link or session, in full or its last block")
    return found[0]
