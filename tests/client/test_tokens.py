"""Credentials of the HTTP API: made, found by their secret, revoked."""

from __future__ import annotations

import asyncio

import pytest

from fairlane import Fairlane, FakeClock, InvalidOption, PermissionDenied, tenant
from fairlane.client.admin.tokens import hash_of
from fairlane.errors import CredentialNotFound


def test_a_token_is_found_by_its_secret_until_it_is_revoked(app: Fairlane) -> None:
    issued = app.tokens.create("deploy", ["staff", "viewer"], tenant="acme", by="ada")
    assert (issued.credential.roles, issued.credential.tenant) == (("viewer", "staff"), "acme")
    assert issued.secret.startswith(issued.credential.prefix)
    assert app.tokens.find("token", issued.secret) == issued.credential
    assert app.tokens.find("session", issued.secret) is None
    assert app.tokens.find("token", "fl_short") is None
    assert app.tokens.is_good("token", hash_of(issued.secret))
    app.tokens.note_use([issued.credential.id])
    [listed] = app.tokens.list().credentials
    assert listed.last_used_at is not None
    revoked = asyncio.run(app.tokens.arevoke(issued.credential.id, by="ada"))
    assert revoked.revoked_at is not None
    assert app.tokens.find("token", issued.secret) is None
    assert not app.tokens.is_good("token", hash_of(issued.secret))
    assert (app.tokens.list().credentials, len(app.tokens.list(also_bad=True).credentials)) == ((), 1)
    with pytest.raises(CredentialNotFound):
        app.tokens.revoke(app.runtime.new_job_id())


def test_a_link_opens_one_session_and_expires(app: Fairlane, clock: FakeClock) -> None:
    link = app.tokens.create_link("ada", ["viewer"])
    session = app.tokens.redeem_link(link.secret)
    assert session is not None
    assert (session.credential.kind, session.credential.name) == ("session", "ada")
    assert app.tokens.find("session", session.secret) == session.credential
    assert app.tokens.redeem_link(link.secret) is None
    assert app.tokens.redeem_link("no secret") is None
    late = app.tokens.create_link("ada", ["viewer"], ttl=60)
    clock.advance(61)
    assert app.tokens.redeem_link(late.secret) is None


@pytest.mark.parametrize(("roles", "ttl"), [([], None), (["boss"], None), (["viewer"], 0), (["viewer"], 10**12)])
def test_a_token_that_cannot_be_is_refused(app: Fairlane, roles: list[str], ttl: float | None) -> None:
    with pytest.raises(InvalidOption):
        app.tokens.create("deploy", roles, ttl=ttl)
    assert app.tokens.list().credentials == ()


def test_inside_one_tenant_no_credential_is_made_or_listed(app: Fairlane) -> None:
    with tenant("acme"):
        for act in (
            lambda: app.tokens.create("x", ["viewer"]),
            lambda: app.tokens.create_link("x", ["viewer"]),
            app.tokens.list,
            lambda: app.tokens.revoke(app.runtime.new_job_id()),
        ):
            with pytest.raises(PermissionDenied):
                act()
