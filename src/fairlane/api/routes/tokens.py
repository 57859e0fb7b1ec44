"""Routes for tokens of programs and one-time links of people: create, list and revoke them."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query
from msgspec import Meta, Struct
from pydantic import Field

from fairlane.api.fields import ActBody, Key, NextCursor, PageSize, TenantName, many, shape
from fairlane.api.request import Context
from fairlane.api.router import Routes
from fairlane.client.admin.tokens import LINK_S, LONGEST_LINK_S, MAX_TTL_S, TokenAdmin
from fairlane.core.ops import Credential, CredentialKind

routes = Routes("tokens", "/api/jobs/tokens/")

Role = Literal["viewer", "operator", "staff", "manager", "admin", "metrics"]
Secret = Annotated[str, Meta(description="The secret. It is shown only once.", examples=["fl_…"])]


class TokenBody(ActBody):
    name: Key = Field(description="The program or person it is for.", examples=["deploy"])
    roles: Annotated[list[Role], Field(min_length=1, max_length=6, examples=[["staff", "manager"]])]
    tenant: TenantName | None = Field(default=None, description="Bind it to one tenant.")
    ttl_s: Annotated[float, Field(gt=0, le=MAX_TTL_S, allow_inf_nan=False)] | None = Field(
        default=None, description="Seconds it is valid; by default until it is revoked."
    )


class LinkBody(TokenBody):
    ttl_s: Annotated[float, Field(gt=0, le=LONGEST_LINK_S, allow_inf_nan=False)] = Field(
        default=LINK_S, description="Seconds the link is valid; its session lasts half a day."
    )


class NewToken(Struct, frozen=True, kw_only=True):
    token: Secret
    credential: Credential


class NewLink(Struct, frozen=True, kw_only=True):
    link: Secret
    path: Annotated[str, Meta(description="Path, relative to this API's address.", examples=["/login?link=fl_…"])]
    credential: Credential


CREDENTIALS = shape("CredentialList", credentials=many(Credential), next_cursor=NextCursor)


@routes.get("", TokenAdmin.alist, all_tenants=True, answer=CREDENTIALS)
async def list_tokens(
    ctx: Context,
    kind: CredentialKind = "token",
    name: Key | None = None,
    also_bad: Annotated[bool, Query(description="Include revoked and expired ones.")] = False,
    limit: PageSize = 50,
    cursor: Annotated[
        str | None, Query(max_length=60, description="Continue from the previous page's `next_cursor`.")
    ] = None,
) -> object:
    """List tokens, links or sessions, newest first."""
    page = await ctx.app.tokens.alist(kind, name=name, also_bad=also_bad, before=cursor, limit=limit)
    return {"credentials": page.credentials, "next_cursor": page.next}


@routes.post("", TokenAdmin.acreate, all_tenants=True, status_code=201)
async def create_token(ctx: Context, body: TokenBody) -> NewToken:
    """Create a token; its secret is shown once and not stored."""
    made = await ctx.app.tokens.acreate(
        body.name, body.roles, tenant=body.tenant, ttl=body.ttl_s, by=ctx.by, notes=body.notes
    )
    return NewToken(token=made.secret, credential=made.credential)


@routes.post("links/", TokenAdmin.acreate_link, all_tenants=True, status_code=201)
async def create_link(ctx: Context, body: LinkBody) -> NewLink:
    """Create a one-time link by which a person logs in."""
    made = await ctx.app.tokens.acreate_link(
        body.name, body.roles, tenant=body.tenant, ttl=body.ttl_s, by=ctx.by, notes=body.notes
    )
    return NewLink(link=made.secret, path=f"/login?link={made.secret}", credential=made.credential)


@routes.delete("{id:uuid}/", TokenAdmin.arevoke, all_tenants=True)
async def revoke_credential(ctx: Context, id: UUID) -> Credential:
    """Revoke a token, a link or a session, with immediate effect."""
    return await ctx.app.tokens.arevoke(id, by=ctx.by)
