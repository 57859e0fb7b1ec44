"""Tokens for programs and one-time links for people: made, listed, revoked."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel, Field

from fairlane.api.auth.credentials import LINK_S, LONGEST_LINK_S, MAX_TTL_S, issue
from fairlane.api.auth.rights import Right
from fairlane.api.fields import Act, Key, Seen, TenantName
from fairlane.api.problems import Problem
from fairlane.api.request import Here
from fairlane.api.router import Routes
from fairlane.core.ops import ListCredentials, RevokeCredential

routes = Routes("tokens", "/api/jobs/tokens/")

Role = Literal["viewer", "operator", "staff", "manager", "admin"]
Roles = Annotated[list[Role], Field(min_length=1, max_length=5, examples=[["staff", "manager"]])]


class CredentialSeen(Seen):
    """A credential; its secret is kept nowhere."""

    id: UUID
    kind: Literal["token", "link", "session"]
    name: str = Field(description="Whose it is; signs what is done with it.", examples=["deploy"])
    prefix: str = Field(description="How its secret begins.", examples=["fl_3Nq9ZkWb"])
    roles: list[str]
    tenant: str | None
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewToken(Act):
    name: Key = Field(description="The program, or the person it is for.", examples=["deploy"])
    roles: Roles
    tenant: TenantName | None = Field(default=None, description="Bind it to one tenant.")
    ttl_s: Annotated[float, Field(gt=0, le=MAX_TTL_S, allow_inf_nan=False)] | None = Field(
        default=None, description="Seconds it is good for; left out: until it is revoked."
    )


class NewLink(Act):
    name: Key = Field(description="The person it is for.", examples=["ada"])
    roles: Roles
    tenant: TenantName | None = Field(default=None, description="Bind the session to one tenant.")
    ttl_s: Annotated[float, Field(gt=0, le=LONGEST_LINK_S, allow_inf_nan=False)] = Field(
        default=LINK_S, description="Seconds the link is good for; the session it opens lasts half a day."
    )


class MadeToken(BaseModel):
    token: str = Field(description="The secret. It is shown this once.", examples=["fl_…"])
    credential: CredentialSeen


class MadeLink(BaseModel):
    link: str = Field(description="The secret. It is shown this once.", examples=["fl_…"])
    path: str = Field(description="Where to open it, below this API's address.", examples=["/login?link=fl_…"])
    credential: CredentialSeen


class Credentials(BaseModel):
    credentials: list[CredentialSeen]


@routes.get("", Right.TOKENS, house_wide=True)
async def list_tokens(
    here: Here,
    kind: Literal["token", "link", "session"] = "token",
    also_bad: Annotated[bool, Query(description="Revoked and expired ones, too.")] = False,
) -> Credentials:
    """List tokens, links or sessions, newest first: 200 at most."""
    page = await here.ask(ListCredentials(kind=kind, also_bad=also_bad))
    return Credentials(credentials=[CredentialSeen.model_validate(one) for one in page.credentials])


@routes.post("", Right.TOKENS, house_wide=True, status_code=201)
async def create_token(here: Here, body: NewToken) -> MadeToken:
    """Make a token; its secret is shown once and kept nowhere."""
    secret, credential = await issue(
        here.app, "token", body.name, body.roles, tenant=body.tenant, ttl_s=body.ttl_s, by=here.by, notes=body.notes
    )
    return MadeToken(token=secret, credential=CredentialSeen.model_validate(credential))


@routes.post("links/", Right.TOKENS, house_wide=True, status_code=201)
async def create_link(here: Here, body: NewLink) -> MadeLink:
    """Make a one-time link by which a person logs in."""
    secret, credential = await issue(
        here.app, "link", body.name, body.roles, tenant=body.tenant, ttl_s=body.ttl_s, by=here.by, notes=body.notes
    )
    return MadeLink(link=secret, path=f"/login?link={secret}", credential=CredentialSeen.model_validate(credential))


@routes.delete("{id:uuid}/", Right.TOKENS, house_wide=True)
async def revoke_credential(here: Here, id: UUID) -> CredentialSeen:
    """Revoke a token, a link or a session: from now on it is good for nothing."""
    act = await here.ask(RevokeCredential(id=id, by=here.by))
    if act.credential is None:
        raise Problem(404, "credential_not_found", f"no credential {id} here")
    return CredentialSeen.model_validate(act.credential)
