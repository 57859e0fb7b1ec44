"""Routes for the audit: list its records, and verify its hash chain."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from msgspec import Struct
from msgspec.structs import asdict

from fairlane.api.fields import Cursor, Key, Name, NextCursor, PageSize, RowId, next_cursor, seq_at, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.audit import AuditAdmin
from fairlane.core.audit_chain import BrokenLink
from fairlane.core.ops import AuditPage
from fairlane.errors import InvalidOption

routes = Routes("audit", "/api/jobs/audit/")

LINKS_A_REQUEST = 5_000
RECORDS = shape("AuditList", AuditPage, without=("next",), next_cursor=NextCursor)


class BrokenChain(BrokenLink, frozen=True, kw_only=True):
    message: str


class ChainReport(Struct, frozen=True, kw_only=True):
    is_whole: bool
    """No checked link is broken."""
    links: int
    """Valid links, up to the first broken one."""
    broken: BrokenChain | None
    unsealed: int
    """Records too new to be sealed, counted up to 1,000."""
    last: str | None
    """Hash of the last valid link: store it where writers of the audit cannot reach it."""
    next: int | None
    """There are more: continue with `after` = this, `hash` = `last`."""


@routes.get("", AuditAdmin.alist, answer=RECORDS)
async def list_audit(
    ctx: Context, action: Name | None = None, target: Key | None = None, limit: PageSize = 50, cursor: Cursor = None
) -> object:
    """List operators' acts, newest first."""
    page = await ctx.app.audit.alist(action=action, target=target, before=seq_at(cursor), limit=limit)
    return {"records": page.records, "next_cursor": next_cursor(page.next)}


@routes.get("verify/", AuditAdmin.averify, all_tenants=True)
async def verify_audit(
    ctx: Context,
    after: Annotated[
        RowId | None, Query(description="Begin after this link, which must still exist; requires `hash`.")
    ] = None,
    hash: Annotated[str | None, Query(pattern=r"^[0-9a-f]{64}$", description="Hash of the link `after`.")] = None,
) -> ChainReport:
    """Verify the hash chain of the audit, 5,000 links per request, up to the first broken one."""
    if (after is None) != (hash is None):
        raise InvalidOption("after, hash", None, "both of them, or neither")
    behind = None if after is None or hash is None else (after, hash)
    found = await ctx.app.audit.averify(after=behind, limit=LINKS_A_REQUEST)
    broken = found.broken
    return ChainReport(
        is_whole=broken is None,
        links=found.links,
        broken=None if broken is None else BrokenChain(**asdict(broken), message=str(broken)),
        unsealed=found.unsealed,
        last=None if found.last is None else found.last.hash,
        next=found.last.n if found.has_more and found.last is not None else None,
    )
