"""The whole chain that seals the audit, walked page by page."""

from __future__ import annotations

from msgspec import Struct

from fairlane.client.app import Fairlane
from fairlane.core.ops import AuditLink, ReadAuditChain
from fairlane.core.sealing import verify

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
        page = client.access.run(ReadAuditChain(after=0 if last is None else last.n, limit=PAGE))
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
