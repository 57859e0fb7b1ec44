"""The audit: who did what, and whether its chain is whole."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import BaseModel, Field

from fairlane.api.auth.rights import Right
from fairlane.api.fields import Key, Name, RowId, Seen
from fairlane.api.paging import Cursor, NextCursor, PageSize, next_cursor
from fairlane.api.request import Here, Visit
from fairlane.api.router import Routes
from fairlane.core.audit_chain import BrokenLink, verify
from fairlane.core.ops import AuditLink, PageAudit, ReadAuditChain
from fairlane.errors import InvalidOption

routes = Routes("audit", "/api/jobs/audit/")

LINKS_A_REQUEST = 5_000


class AuditSeen(Seen):
    id: int
    at: datetime
    by: str = Field(examples=["ada"])
    action: str = Field(examples=["job_dlq_reprocess_requested"])
    tenant: str | None
    target: str = Field(examples=["dead_letter:123"])
    notes: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None


class AuditList(BaseModel):
    records: list[AuditSeen]
    next_cursor: NextCursor


class Broken(BaseModel):
    n: int = Field(description="Which link of the chain.")
    audit_id: int | None = Field(description="The record it seals.")
    why: str = Field(examples=["record_changed"])
    message: str


class ChainVerified(BaseModel):
    is_whole: bool = Field(description="No link looked at is broken.")
    links: int = Field(description="Good links, up to the first broken one.")
    broken: Broken | None
    unsealed: int = Field(description="Records too new to be sealed, counted up to 1,000.")
    last: str | None = Field(
        description="The newest good link's hash: keep it where nobody who writes the audit can reach."
    )
    next: int | None = Field(description="There are more: go on with `after` = this, `hash` = `last`.")


@routes.get("", Right.READ)
async def list_audit(
    here: Here, action: Name | None = None, target: Key | None = None, limit: PageSize = 50, cursor: Cursor = None
) -> AuditList:
    """List what people did, newest first."""
    before = None if cursor is None else int(cursor)
    page = await here.ask(PageAudit(scope=here.scope, action=action, target=target, before=before, limit=limit))
    return AuditList(
        records=[AuditSeen.model_validate(record) for record in page.records], next_cursor=next_cursor(page.next)
    )


@routes.get("verify/", Right.READ, house_wide=True)
async def verify_audit(
    here: Here,
    after: Annotated[
        RowId | None, Query(description="Begin behind this link, which must still be there; with its hash.")
    ] = None,
    hash: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$", description="Of the link `after`.")] = None,
) -> ChainVerified:
    """Walk the chain that seals the audit, 5,000 links a request, up to the first broken one."""
    if (after is None) != (hash is None):
        raise InvalidOption("after, hash", None, "both of them, or neither")
    behind = None if after is None or hash is None else AuditLink(n=after, audit_id=0, hash=hash)
    if behind is not None and (broken := await _missing(here, behind)) is not None:
        return ChainVerified(is_whole=False, links=0, broken=broken, unsealed=0, last=None, next=None)
    links, at, unsealed, more = 0, 0 if behind is None else behind.n, 0, True
    while more and links < LINKS_A_REQUEST:
        chain = await here.ask(ReadAuditChain(after=at, limit=1000))
        verified = verify(chain.sealed, behind)
        links, unsealed, behind = links + verified.links, chain.unsealed, verified.last
        if verified.broken is not None:
            return ChainVerified(
                is_whole=False,
                links=links,
                broken=_told(verified.broken),
                unsealed=unsealed,
                last=_hash(behind),
                next=None,
            )
        more = len(chain.sealed) == 1000
        at = at if behind is None else behind.n
    return ChainVerified(
        is_whole=True, links=links, broken=None, unsealed=unsealed, last=_hash(behind), next=at if more else None
    )


async def _missing(here: Visit, kept: AuditLink) -> Broken | None:
    """What is wrong with a link the caller knows: behind one that is gone nothing follows, which looks like the end."""
    found = (await here.ask(ReadAuditChain(after=kept.n - 1, limit=1))).sealed
    if not found or found[0].link.n != kept.n:
        return _told(BrokenLink(n=kept.n, audit_id=None, why="gap"))
    if found[0].link.hash != kept.hash:
        return _told(BrokenLink(n=kept.n, audit_id=found[0].link.audit_id, why="link_changed"))
    return None


def _told(broken: BrokenLink) -> Broken:
    return Broken(n=broken.n, audit_id=broken.audit_id, why=broken.why, message=str(broken))


def _hash(link: AuditLink | None) -> str | None:
    return None if link is None else link.hash
