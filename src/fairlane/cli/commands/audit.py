"""`fairlane audit`: who did what, and whether the record of it is whole.

The whole chain that seals the audit, walked page by page.
"""

from __future__ import annotations

import re

import click
from msgspec import Struct

from fairlane.cli.exits import Failed
from fairlane.cli.lazy import SuggestingGroup
from fairlane.cli.options import at_store, in_scope, paged, prints
from fairlane.cli.output import Printer, count, instant, plural, shortened
from fairlane.cli.target import At
from fairlane.client.app import Fairlane
from fairlane.core.audit_chain import verify
from fairlane.core.ops import AuditLink, ReadAuditChain

TITLES = ("id", "at", "by", "action", "tenant", "target", "notes")
_LINK = re.compile(r"(\d{1,18}):([0-9a-f]{64})", re.ASCII)
_UNSEALED_CAP = 1_000


def kept_link(text: str) -> tuple[int, str]:
    found = _LINK.fullmatch(text.strip())
    if found is None:
        raise click.BadParameter(f"{text!r}: expected a link as this command prints it, NUMBER:HASH")
    return int(found[1]), found[2]


@click.group(cls=SuggestingGroup)
def audit() -> None:
    """See who did what."""


@audit.command("list")
@click.option("--action", help="Only this act, such as job_cancel.")
@click.option("--target", metavar="job:ID|dead_letter:ID", help="Only what was done to this.")
@paged
@in_scope
@at_store
@prints
def list_records(
    action: str | None, target: str | None, tenant: str | None, limit: int, before: int | None, at: At, out: Printer
) -> None:
    """List what people did, newest first."""
    with at.client() as client:
        page = client.audit.list(tenant=tenant, action=action, target=target, before=before, limit=limit)
    if out.as_json:
        out.data(page)
        return
    if page.records:
        rows = [
            (r.id, instant(r.at), r.by, r.action, r.tenant, r.target, shortened(r.notes or "")) for r in page.records
        ]
        out.table(TITLES, rows)
    else:
        out.note("no audit record matches" if action or target or tenant else "nobody has acted by hand yet")
    if page.next is not None:
        out.note(f"there are more: go on with --before {page.next}")


@audit.command("verify")
@click.option(
    "--kept",
    type=kept_link,
    metavar="NUMBER:HASH",
    help="A link this command printed before, kept where nobody who writes the audit can reach: it must still be there.",
)
@at_store
@prints
def verify_records(kept: tuple[int, str] | None, at: At, out: Printer) -> None:
    """Walk the chain that seals the audit, up to the first record that was tampered with.

    Workers seal new records every few seconds. Exits with 1 where the chain is broken.
    """

    with at.client() as client:
        found = verified(client, kept)
    if out.as_json:
        out.data(found)
    else:
        _say(found, out)
    if found.broken is not None:
        raise Failed(f"the audit was tampered with: {found.broken}")


def _say(found: ChainVerified, out: Printer) -> None:
    if found.broken is None:
        out.line(f"whole: {plural(found.links, 'sealed record')}")
    if found.last is not None:
        out.line(f"last good link: {found.last.n}:{found.last.hash}")
    if found.unsealed:
        out.note(f"{count(found.unsealed, _UNSEALED_CAP)} not sealed yet: a running worker does that")


PAGE = 1_000


class ChainVerified(Struct, frozen=True, kw_only=True):
    links: int
    """Good ones, up to the first that is broken."""
    last: AuditLink | None
    broken: str | None
    """Which link or record, and why; None: nothing is."""
    unsealed: int


def verified(client: Fairlane, kept: tuple[int, str] | None = None) -> ChainVerified:
    """Whether every sealed record is as it was, and the chain still goes through a link that was `kept` elsewhere.

    Without one, a chain that was cut short or made anew as a whole looks like a good one.
    """
    links, last, missing = 0, None, kept
    while True:
        page = client.runtime.access.run(ReadAuditChain(after=0 if last is None else last.n, limit=PAGE))
        found = verify(page.sealed, last)
        for one in page.sealed[: found.links]:
            if missing is not None and one.link.n == missing[0]:
                if one.link.hash != missing[1]:
                    return ChainVerified(links=links, last=last, broken=_another(one.link), unsealed=page.unsealed)
                missing = None
            links, last = links + 1, one.link
        if found.broken is not None:
            return ChainVerified(links=links, last=last, broken=str(found.broken), unsealed=page.unsealed)
        if len(page.sealed) < PAGE:
            broken = (
                None if missing is None else f"link {missing[0]}, which was kept, is not there: the end was cut off"
            )
            return ChainVerified(links=links, last=last, broken=broken, unsealed=page.unsealed)


def _another(link: AuditLink) -> str:
    return f"link {link.n} (audit record {link.audit_id}) is not the one that was kept: the chain was made anew"
