"""`app.audit`: list the audit records, and verify their hash chain."""

from __future__ import annotations

from msgspec import Struct

from fairlane.client.admin.filters import page_size, seq_before
from fairlane.client.context import in_scope, require_all_tenants
from fairlane.client.rights import Right
from fairlane.client.steps import Steps, Verbs, ask, both
from fairlane.core.audit_chain import BrokenLink, verify
from fairlane.core.names import check_words
from fairlane.core.ops import AuditLink, AuditPage, PageAudit, ReadAuditChain, SealedRecord

LINKS_A_READ = 1_000


class ChainVerified(Struct, frozen=True, kw_only=True):
    """The result of verifying the hash chain."""

    links: int
    """Valid links, up to the first broken one."""
    last: AuditLink | None
    """The last valid link: store it where writers of the audit cannot reach it, and pass it as `kept` or `after`."""
    broken: BrokenLink | None
    """The first broken link; None if there is none."""
    unsealed: int
    """Records too new to be sealed, counted up to 1,000."""
    has_more: bool = False
    """The check ended at its `limit`: continue with `after=last`."""


class AuditAdmin(Verbs):
    """Methods for the audit."""

    __slots__ = ()

    def _list(
        self,
        *,
        tenant: str | int | None = None,
        action: str | None = None,
        target: str | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> Steps[AuditPage]:
        """One page of operators' acts, newest first."""
        for name, words in (("action", action), ("target", target)):
            if words is not None:
                check_words(name, words)
        scope, size = in_scope(tenant), page_size(limit)
        op = PageAudit(scope=scope, action=action, target=target, before=seq_before(before), limit=size)
        return (yield from ask(op))

    def _verify(
        self,
        *,
        kept: tuple[int, str] | None = None,
        after: tuple[int, str] | None = None,
        limit: int | None = None,
    ) -> Steps[ChainVerified]:
        """Verify the hash chain of the audit, up to the first record that was tampered with.

        `kept` is the number and hash of a link stored elsewhere, which must still be in the chain: without it, a
        chain that was cut short or rebuilt entirely looks valid. `after` begins after such a link; `limit` ends the
        check after that many links or a few more.
        """
        require_all_tenants("verifying the audit")
        last = None if after is None else AuditLink(n=after[0], audit_id=0, hash=after[1])
        if after is not None and (broken := (yield from _missing(after))) is not None:
            return ChainVerified(links=0, last=None, broken=broken, unsealed=0)
        links, missing = 0, kept
        while True:
            page = yield from ask(ReadAuditChain(after=0 if last is None else last.n, limit=LINKS_A_READ))
            found = verify(page.sealed, last)
            for one in page.sealed[: found.links]:
                if missing is not None and one.link.n == missing[0]:
                    if one.link.hash != missing[1]:
                        return ChainVerified(links=links, last=last, broken=_renewed(one), unsealed=page.unsealed)
                    missing = None
                links, last = links + 1, one.link
            broken, is_end = found.broken, len(page.sealed) < LINKS_A_READ
            if broken is None and is_end and missing is not None:
                broken = BrokenLink(n=missing[0], audit_id=None, why="cut_off")
            if broken is None and is_end:
                broken = yield from _unaccounted(last)
            is_enough = limit is not None and links >= limit
            if broken is not None or is_end or is_enough:
                more = broken is None and not is_end
                return ChainVerified(links=links, last=last, broken=broken, unsealed=page.unsealed, has_more=more)

    list, alist = both(_list, Right.READ)
    verify, averify = both(_verify, Right.READ)


def _missing(kept: tuple[int, str]) -> Steps[BrokenLink | None]:
    """What is wrong with a link the caller stored: after a missing link nothing follows, which looks like the end."""
    found = (yield from ask(ReadAuditChain(after=kept[0] - 1, limit=1))).sealed
    if not found or found[0].link.n != kept[0]:
        return BrokenLink(n=kept[0], audit_id=None, why="gap")
    if found[0].link.hash != kept[1]:
        return BrokenLink(n=kept[0], audit_id=found[0].link.audit_id, why="link_changed")
    return None


def _unaccounted(last: AuditLink | None) -> Steps[BrokenLink | None]:
    n = 0 if last is None else last.n
    found = (yield from ask(ReadAuditChain(after=n, limit=1, also_unaccounted=True))).unaccounted
    return None if found is None else BrokenLink(n=n + 1, audit_id=found, why="unaccounted")


def _renewed(sealed: SealedRecord) -> BrokenLink:
    return BrokenLink(n=sealed.link.n, audit_id=sealed.link.audit_id, why="renewed")
