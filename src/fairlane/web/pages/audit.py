"""The page of the audit: who did what, when and why, and whether the chain of hashes is whole."""

from __future__ import annotations

from fairlane.api.fields import Cursor, Key, Name, next_cursor, seq_at
from fairlane.api.routes.audit import LINKS_A_REQUEST
from fairlane.client.admin.audit import AuditAdmin
from fairlane.web.page import CurrentPage, Pages, Values

pages = Pages("audit", "/audit", title="Audit", key="u")

PAGE_SIZE = 50


@pages.page("", AuditAdmin.alist, "audit.html")
async def show_audit(
    page: CurrentPage, action: Name | None = None, target: Key | None = None, cursor: Cursor = None
) -> Values:
    """Show people's acts, newest first."""
    found = await page.app.audit.alist(
        tenant=page.tenant, action=action, target=target, before=seq_at(cursor), limit=PAGE_SIZE
    )
    return {
        "records": found.records,
        "action": action,
        "target": target,
        "cursor": cursor,
        "next": next_cursor(found.next),
    }


@pages.page("/verify", AuditAdmin.averify, "audit_verified.html", all_tenants=True)
async def verify_chain(page: CurrentPage) -> Values:
    """Verify the first links of the hash chain; the command verifies all of them."""
    return {"found": await page.app.audit.averify(limit=LINKS_A_REQUEST), "most": LINKS_A_REQUEST}
