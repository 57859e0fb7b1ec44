"""Credentials: tokens for programs, links that are good once, sessions for people."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest

from fairlane.core.ops import (
    SESSION_S,
    Credential,
    CredentialAct,
    CredentialKind,
    FindCredential,
    ForgetOld,
    IssueCredential,
    ListCredentials,
    NewSession,
    Op,
    Purge,
    RedeemLink,
    RevokeCredential,
    SeeCredentials,
    only,
)
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("W13")

KINDS: tuple[CredentialKind, ...] = ("token", "link", "session")
every_kind = pytest.mark.parametrize("kind", KINDS)


def hash_of(secret: str) -> str:
    return sha256(secret.encode()).hexdigest()


def issuing(scene: Scene, secret: str = "s3cret", kind: CredentialKind = "token", **facts: Any) -> IssueCredential:
    facts = {"name": "ci", "prefix": "fl_abc", "roles": ("viewer", "manager"), "by": "ada", **facts}
    facts.setdefault("id", scene.making.job_id())
    return IssueCredential(kind=kind, hash=hash_of(secret), **facts)


def issue(scene: Scene, secret: str = "s3cret", kind: CredentialKind = "token", **facts: Any) -> Credential:
    act = scene.run(issuing(scene, secret, kind, **facts))
    assert act.changed
    assert act.credential is not None
    return act.credential


def find(scene: Scene, secret: str = "s3cret", kind: CredentialKind = "token") -> Credential | None:
    act = scene.run(FindCredential(kind=kind, hash=hash_of(secret)))
    assert not act.changed
    return act.credential


def redeem(scene: Scene, secret: str = "s3cret") -> CredentialAct:
    return scene.run(RedeemLink(hash=hash_of(secret)))


def revoke(scene: Scene, id: UUID, **how: Any) -> CredentialAct:
    return scene.run(RevokeCredential(id=id, **{"by": "grace", **how}))


def listed(scene: Scene, kind: CredentialKind = "token", **how: Any) -> list[UUID]:
    return [one.id for one in scene.run(ListCredentials(kind=kind, **how)).credentials]


@every_kind
def test_a_credential_is_found_by_its_secret_alone(scene: Scene, kind: CredentialKind) -> None:
    asked = issuing(scene, kind=kind, tenant="acme", ttl_s=90.5, notes="for the robot")
    act = scene.run(asked)
    assert act == CredentialAct(
        changed=True,
        credential=Credential(
            id=asked.id,
            kind=kind,
            name="ci",
            prefix="fl_abc",
            roles=("viewer", "manager"),
            tenant="acme",
            created_by="ada",
            created_at=scene.now,
            expires_at=scene.at(90.5),
            revoked_at=None,
            last_used_at=None,
        ),
    )
    assert find(scene, kind=kind) == act.credential
    assert find(scene, "another", kind=kind) is None
    assert find(scene, "S3cret", kind=kind) is None


@every_kind
def test_a_credential_is_good_for_its_kind_alone(scene: Scene, kind: CredentialKind) -> None:
    issue(scene, kind=kind)
    assert [other for other in KINDS if find(scene, kind=other)] == [kind]


def test_a_credential_without_roles_tenant_and_end_is_kept_as_it_is(scene: Scene) -> None:
    kept = issue(scene, roles=(), name="Zoë's laptop")
    assert (kept.roles, kept.tenant, kept.expires_at, kept.name) == ((), None, None, "Zoë's laptop")
    scene.later(10**9)
    assert find(scene) == kept


def test_issuing_again_after_a_lost_reply_keeps_one(scene: Scene) -> None:
    asked = issuing(scene)
    first, audited = scene.run(asked), scene.audit()
    scene.later(5)
    again = scene.run(asked)
    assert (again.credential, again.changed) == (first.credential, False)
    assert listed(scene) == [asked.id]
    assert scene.audit() == audited


def test_issuing_again_does_not_bring_a_revoked_one_back(scene: Scene) -> None:
    asked = issuing(scene)
    scene.run(asked)
    revoked = revoke(scene, asked.id)
    assert scene.run(asked) == CredentialAct(credential=revoked.credential)
    assert find(scene) is None


def test_an_id_or_a_secret_that_is_taken_gives_none(scene: Scene) -> None:
    kept = issue(scene)
    audited = scene.audit()
    assert scene.run(issuing(scene, "another secret", id=kept.id)) == CredentialAct()
    assert scene.run(issuing(scene)) == CredentialAct()
    assert scene.run(issuing(scene, kind="session")) == CredentialAct()
    assert find(scene, "another secret") is None
    assert find(scene) == kept
    assert scene.audit() == audited


@every_kind
def test_a_credential_is_good_until_it_expires(scene: Scene, kind: CredentialKind) -> None:
    kept = issue(scene, kind=kind, ttl_s=60)
    scene.later(59.999999)
    assert find(scene, kind=kind) == kept
    scene.later(0.000001)
    assert find(scene, kind=kind) is None
    assert listed(scene, kind) == []
    assert listed(scene, kind, also_bad=True) == [kept.id]


@every_kind
def test_a_revoked_credential_is_good_for_nothing(scene: Scene, kind: CredentialKind) -> None:
    kept, other = issue(scene, kind=kind, ttl_s=60), issue(scene, "other", kind)
    scene.later(5)
    act = revoke(scene, kept.id)
    assert act.changed
    assert act.credential is not None
    assert (act.credential.id, act.credential.revoked_at, act.credential.expires_at) == (
        kept.id,
        scene.now,
        kept.expires_at,
    )
    assert find(scene, kind=kind) is None
    assert find(scene, "other", kind) == other


def test_revoking_twice_writes_nothing(scene: Scene) -> None:
    kept = issue(scene)
    first, audited = revoke(scene, kept.id), scene.audit()
    scene.later(5)
    assert revoke(scene, kept.id) == CredentialAct(credential=first.credential)
    assert scene.audit() == audited


def test_revoking_what_nobody_knows_comes_to_nothing(scene: Scene) -> None:
    assert revoke(scene, scene.making.job_id()) == CredentialAct()
    assert scene.audit() == ()


def test_an_expired_credential_may_still_be_revoked(scene: Scene) -> None:
    kept = issue(scene, ttl_s=1)
    scene.later(10)
    assert revoke(scene, kept.id).changed
    assert [record.action for record in scene.audit()] == ["token_revoke", "token_create"]


def test_a_link_is_good_once(scene: Scene) -> None:
    link = issue(scene, kind="link", name="grace", tenant="acme", ttl_s=600)
    scene.later(30)
    act = redeem(scene)
    assert act.changed
    assert act.credential is not None
    assert (act.credential.id, act.credential.roles, act.credential.tenant) == (link.id, link.roles, "acme")
    assert act.credential.revoked_at == scene.now
    assert redeem(scene) == CredentialAct()
    assert find(scene, kind="link") is None
    assert [record.action for record in scene.audit()] == ["link_redeem", "link_create"]


Spoils = Callable[[Scene, Credential], object]
SPOILED: dict[str, Spoils] = {
    "expired": lambda scene, link: scene.later(600),
    "revoked": lambda scene, link: revoke(scene, link.id),
    "used": lambda scene, link: redeem(scene),
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_link_that_is_not_good_any_more_is_not_redeemed(scene: Scene, how: str) -> None:
    link = issue(scene, kind="link", ttl_s=600)
    SPOILED[how](scene, link)
    audited = scene.audit()
    assert redeem(scene) == CredentialAct()
    assert scene.audit() == audited


@pytest.mark.parametrize("kind", ["token", "session"])
def test_only_links_are_redeemed(scene: Scene, kind: CredentialKind) -> None:
    kept = issue(scene, kind=kind)
    assert redeem(scene) == redeem(scene, "nobody's") == CredentialAct()
    assert find(scene, kind=kind) == kept


@pytest.mark.requirement("W12")
@pytest.mark.parametrize("kind", ["token", "link"])
def test_issuing_and_revoking_are_written_down_without_the_secret(scene: Scene, kind: CredentialKind) -> None:
    kept = issue(scene, kind=kind, tenant="acme", ttl_s=3600, notes="quarterly", name="robot")
    forever = issue(scene, "other", kind, name="Zoë", roles=())
    scene.later(7.25)
    revoke(scene, kept.id, notes="lost laptop")
    revoked, second, first = scene.audit()
    assert [record.action for record in (first, second, revoked)] == [
        f"{kind}_create",
        f"{kind}_create",
        f"{kind}_revoke",
    ]
    assert (first.target, revoked.target) == (f"{kind}:{kept.id}",) * 2
    assert second.target == f"{kind}:{forever.id}"
    assert (first.tenant, second.tenant, revoked.tenant) == ("acme", None, "acme")
    assert (first.by, first.notes, revoked.by, revoked.notes) == ("ada", "quarterly", "grace", "lost laptop")
    assert (first.before, revoked.before, revoked.after, revoked.at) == (None, None, None, scene.now)
    assert first.after == {
        "name": "robot",
        "prefix": "fl_abc",
        "roles": ["viewer", "manager"],
        "tenant": "acme",
        "expires_at": "2026-03-01T13:00:00.000000Z",
    }
    assert second.after is not None
    assert (second.after["roles"], second.after["expires_at"], second.after["tenant"]) == ([], None, None)
    assert [record.id for record in scene.audit(only("acme"))] == [revoked.id, first.id]


@pytest.mark.requirement("W12")
def test_an_instant_in_the_audit_keeps_its_microseconds(scene: Scene) -> None:
    scene.later(0.25)
    issue(scene, ttl_s=0.000001)
    [record] = scene.audit()
    assert record.after is not None
    assert record.after["expires_at"] == "2026-03-01T12:00:00.250001Z"


@pytest.mark.requirement("W12")
def test_a_redeemed_link_is_written_down_as_its_owners_act(scene: Scene) -> None:
    link = issue(scene, kind="link", name="grace", tenant="acme")
    scene.later(3)
    redeem(scene)
    record, _ = scene.audit()
    assert (record.action, record.by, record.target) == ("link_redeem", "grace", f"link:{link.id}")
    assert (record.tenant, record.at) == ("acme", scene.now)
    assert (record.notes, record.before, record.after) == (None, None, None)


@pytest.mark.requirement("W12")
def test_a_redeemed_link_opens_a_session_of_its_owner_and_no_more(scene: Scene) -> None:
    link = issue(scene, kind="link", name="grace", roles=("viewer",), tenant="acme", ttl_s=60)
    session = NewSession(id=scene.making.job_id(), hash=hash_of("cookie"), prefix="fl_def", ttl_s=100)
    act = scene.run(RedeemLink(hash=hash_of("s3cret"), session=session))
    opened = act.credential
    assert act.changed
    assert opened is not None
    assert (opened.id, opened.kind, opened.prefix, opened.created_by) == (session.id, "session", "fl_def", "grace")
    assert (opened.name, opened.roles, opened.tenant) == (link.name, link.roles, link.tenant)
    assert opened.expires_at == scene.at(100)
    assert find(scene, "cookie", "session") == opened
    assert scene.run(RedeemLink(hash=hash_of("s3cret"), session=session)) == CredentialAct()
    assert [record.action for record in scene.audit()] == ["session_create", "link_redeem", "link_create"]


def test_a_link_that_is_not_good_opens_no_session(scene: Scene) -> None:
    session = NewSession(id=scene.making.job_id(), hash=hash_of("cookie"), prefix="fl_def")
    assert scene.run(RedeemLink(hash=hash_of("nobody's"), session=session)) == CredentialAct()
    assert find(scene, "cookie", "session") is None


@pytest.mark.requirement("W12")
def test_a_session_is_written_down_and_always_ends(scene: Scene) -> None:
    session = issue(scene, kind="session", tenant="acme")
    assert session.expires_at == scene.at(SESSION_S)
    revoke(scene, session.id, notes="gone home")
    ended, begun = scene.audit()
    assert (begun.action, begun.target, begun.tenant) == ("session_create", f"session:{session.id}", "acme")
    assert (ended.action, ended.target, ended.tenant) == ("session_revoke", f"session:{session.id}", "acme")
    assert (ended.by, ended.notes) == ("grace", "gone home")


def test_last_use_is_told_now_and_then(scene: Scene) -> None:
    token, session, unused = (issue(scene, kind, kind) for kind in ("token", "session", "link"))
    scene.later(60)
    seen = scene.run(SeeCredentials(ids=(token.id, session.id, token.id, scene.making.job_id())))
    assert seen.count == 2
    for kept, last_used_at in ((token, scene.now), (session, scene.now), (unused, None)):
        found = find(scene, kept.kind, kept.kind)
        assert found is not None
        assert found.last_used_at == last_used_at
    first_use = scene.now
    scene.later(60)
    assert scene.run(SeeCredentials(ids=(token.id,))).count == 1
    assert scene.run(SeeCredentials(ids=())).count == 0
    found = find(scene, "session", "session")
    assert found is not None
    assert found.last_used_at == first_use
    assert [record.action for record in scene.audit()] == ["link_create", "session_create", "token_create"]


@pytest.mark.parametrize("also_bad", [False, True])
def test_no_credential_is_hidden_behind_newer_ones(scene: Scene, also_bad: bool) -> None:
    """Those made at one instant are told apart by id; the place of a page outlives the credential it names."""
    made = []
    for number in range(9):
        made.append(issue(scene, f"s{number}", name="ci" if number % 3 else "deploy").id)
        if number % 2:
            scene.later(1)
    revoke(scene, made[4])
    wanted = listed(scene, also_bad=also_bad, limit=100)
    assert len(wanted) == (9 if also_bad else 8)
    for limit in (1, 2, 8, 9):
        seen, before = [], None
        while True:
            page = scene.run(ListCredentials(kind="token", also_bad=also_bad, before=before, limit=limit))
            assert len(page.credentials) <= limit
            seen += [one.id for one in page.credentials]
            if page.next is None:
                break
            before = page.next
        assert seen == wanted
    assert scene.run(ListCredentials(kind="token", limit=0)).next is None
    ours = scene.run(ListCredentials(kind="token", name="deploy", limit=1))
    assert [one.name for one in ours.credentials] == ["deploy"]
    rest = scene.run(ListCredentials(kind="token", name="deploy", before=ours.next))
    assert [one.name for one in rest.credentials] == ["deploy", "deploy"]


def test_credentials_are_listed_newest_first(scene: Scene) -> None:
    first = issue(scene, "a").id
    scene.later(1)
    second, third = (issue(scene, secret).id for secret in "bc")
    issue(scene, "d", "session")
    assert second < third
    assert listed(scene) == [third, second, first]
    assert listed(scene, limit=2) == [third, second]


def test_credentials_are_listed_by_name_and_bad_ones_where_asked_for(scene: Scene) -> None:
    revoked, expired, good, other = (
        issue(scene, "a", name="robot"),
        issue(scene, "b", name="robot", ttl_s=5),
        issue(scene, "c", name="robot"),
        issue(scene, "d", name="Robot"),
    )
    revoke(scene, revoked.id)
    scene.later(5)
    assert listed(scene, name="robot") == [good.id]
    assert listed(scene) == [other.id, good.id]
    assert listed(scene, name="robot", also_bad=True) == [good.id, expired.id, revoked.id]
    assert listed(scene, name="nobody") == []


def test_a_listed_credential_shows_how_it_ended(scene: Scene) -> None:
    token = issue(scene)
    scene.later(2)
    revoked = revoke(scene, token.id).credential
    [shown] = scene.run(ListCredentials(kind="token", also_bad=True)).credentials
    assert shown == revoked


def test_credentials_that_went_bad_long_ago_are_forgotten(scene: Scene) -> None:
    revoked = issue(scene, "a", "session")
    expired = issue(scene, "b", "session", ttl_s=10)
    both = issue(scene, "c", "session", ttl_s=1000)
    good = issue(scene, "d", "session", ttl_s=10**6)
    revoke(scene, both.id)
    scene.later(20)
    revoke(scene, revoked.id)
    scene.later(100)
    assert scene.run(ForgetOld(credentials_before=scene.at(-110))).credentials == 1
    assert listed(scene, "session", also_bad=True) == [good.id, expired.id, revoked.id]
    assert scene.run(ForgetOld(credentials_before=scene.at(-100))).credentials == 1
    assert listed(scene, "session", also_bad=True) == [good.id, revoked.id]
    told = scene.run(ForgetOld(credentials_before=scene.now))
    assert (told.credentials, told.events) == (1, 0)
    assert listed(scene, "session", also_bad=True) == [good.id]


def test_the_longest_bad_are_forgotten_first_and_no_more_than_the_limit(scene: Scene) -> None:
    ids = [issue(scene, secret, ttl_s=ttl_s).id for secret, ttl_s in (("a", 30), ("b", 10), ("c", 20))]
    scene.later(100)
    forgotten = [scene.run(ForgetOld(credentials_before=scene.now, limit=limit)).credentials for limit in (0, 1, 1)]
    assert forgotten == [0, 1, 1]
    assert listed(scene, also_bad=True) == [ids[0]]


def test_a_good_credential_is_never_forgotten(scene: Scene) -> None:
    ids = [issue(scene, "a", ttl_s=10).id, issue(scene, "b").id]
    assert scene.run(ForgetOld(credentials_before=scene.at(1000))).credentials == 0
    assert sorted(listed(scene)) == sorted(ids)
    assert scene.run(ForgetOld()).credentials == 0


def test_a_purge_takes_credentials_too(scene: Scene) -> None:
    for kind in KINDS:
        issue(scene, kind, kind)
    scene.run(Purge())
    acts: list[Op[CredentialAct]] = [FindCredential(kind=kind, hash=hash_of(kind)) for kind in KINDS]
    assert {scene.run(act).credential for act in acts} == {None}
    assert [listed(scene, kind, also_bad=True) for kind in KINDS] == [[]] * 3
