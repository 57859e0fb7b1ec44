"""The audit's seal: a chain over committed records, made by whoever is first."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from fairlane.core.audit_chain import Verified, seal, verify
from fairlane.core.ops import (
    AuditChain,
    AuditLink,
    AuditRecord,
    AuditToSeal,
    Purge,
    ReadAuditChain,
    ReadUnsealed,
    SealAudit,
)
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("W12")


def act(scene: Scene, times: int = 1) -> None:
    for nth in range(times):
        scene.cancel(scene.put(tenant="acme").id, by="Zoë", notes=f'"{nth}"\n')


def unsealed(scene: Scene, **how: Any) -> AuditToSeal:
    return scene.run(ReadUnsealed(**how))


def add(scene: Scene, *links: AuditLink) -> bool:
    return scene.run(SealAudit(links=links)).sealed


def seal_all(scene: Scene) -> tuple[AuditLink, ...]:
    there = unsealed(scene)
    links = seal(there.last, there.records)
    assert add(scene, *links)
    return links


def chain(scene: Scene, **how: Any) -> AuditChain:
    return scene.run(ReadAuditChain(**how))


def verified(scene: Scene) -> Verified:
    return verify(chain(scene, limit=1000).sealed)


def oldest_first(scene: Scene) -> tuple[AuditRecord, ...]:
    return scene.audit(limit=200)[::-1]


def test_at_first_there_is_nothing_to_seal(scene: Scene) -> None:
    assert unsealed(scene) == AuditToSeal(last=None, records=())
    assert chain(scene) == AuditChain(sealed=(), unsealed=0)


def test_records_wait_for_their_seal_in_the_order_of_their_numbers(scene: Scene) -> None:
    act(scene, 3)
    scene.later(5)
    act(scene)
    there = unsealed(scene)
    assert there.last is None
    assert there.records == oldest_first(scene)
    assert unsealed(scene, limit=2).records == there.records[:2]
    assert chain(scene) == AuditChain(sealed=(), unsealed=4)


def test_a_sealed_record_does_not_wait_any_more(scene: Scene) -> None:
    act(scene, 3)
    links = seal_all(scene)
    assert [link.n for link in links] == [1, 2, 3]
    assert unsealed(scene) == AuditToSeal(last=links[-1], records=())
    act(scene)
    there = unsealed(scene)
    assert there.last == links[-1]
    assert there.records == oldest_first(scene)[3:]


def test_a_chain_is_read_link_by_link_with_its_records(scene: Scene) -> None:
    act(scene, 5)
    links = seal_all(scene)
    act(scene, 2)
    told = chain(scene)
    assert [one.link for one in told.sealed] == list(links)
    assert tuple(one.record for one in told.sealed) == oldest_first(scene)[:5]
    assert told.unsealed == 2
    assert [one.link.n for one in chain(scene, after=2, limit=2).sealed] == [3, 4]
    assert chain(scene, after=5) == AuditChain(sealed=(), unsealed=2)


def test_a_page_of_the_chain_holds_at_least_one(scene: Scene) -> None:
    act(scene, 3)
    seal_all(scene)
    assert [len(chain(scene, limit=limit).sealed) for limit in (-1, 0, 1, 2, 5000)] == [1, 1, 1, 2, 3]


def test_a_chain_made_bit_by_bit_is_good(scene: Scene) -> None:
    for _ in range(4):
        act(scene, 3)
        scene.later(0.000001)
        there = unsealed(scene, limit=2)
        assert add(scene, *seal(there.last, there.records))
    seal_all(scene)
    found = verified(scene)
    assert (found.links, found.broken) == (12, None)
    assert found.last == unsealed(scene).last


def test_every_kind_of_record_verifies_as_it_is_read_again(scene: Scene) -> None:
    """What a store gives back must be, to the letter, what was sealed: numbers, nulls, empty notes, far instants."""
    lease = scene.dead(tenant="acme")
    scene.acknowledge(lease.seq, by="ada", notes="")
    scene.later(0.123456)
    scene.reprocess(lease.seq, by="Ünal \U0001f600", notes="tab\t\\ \u2028")
    scene.resolve(lease.seq)
    scene.fail(scene.put().id, reason="x")
    seal_all(scene)
    found = verified(scene)
    assert (found.links, found.broken) == (len(scene.audit()), None)


def test_of_two_sealers_one_wins_and_nothing_is_lost(scene: Scene) -> None:
    act(scene, 3)
    one, other = unsealed(scene), unsealed(scene, limit=2)
    assert add(scene, *seal(one.last, one.records))
    assert not add(scene, *seal(other.last, other.records))
    act(scene, 2)
    assert not add(scene, *seal(other.last, other.records))
    assert [record.id for record in unsealed(scene).records] == [record.id for record in oldest_first(scene)[3:]]
    seal_all(scene)
    found = verified(scene)
    assert (found.links, found.broken) == (5, None)


def test_a_seal_repeated_after_a_lost_reply_is_refused_and_changes_nothing(scene: Scene) -> None:
    act(scene, 2)
    links = seal_all(scene)
    told = chain(scene)
    assert not add(scene, *links)
    assert chain(scene) == told


def test_a_record_is_sealed_once(scene: Scene) -> None:
    act(scene, 3)
    first, second, third = oldest_first(scene)
    [link] = seal(None, [first])
    assert add(scene, link)
    assert not add(scene, *seal(link, [second, first]))
    assert not add(scene, *seal(link, [second, second]))
    assert [one.id for one in unsealed(scene).records] == [second.id, third.id]
    assert chain(scene).unsealed == 2


@pytest.mark.parametrize("n", [0, 1, 3, 4])
def test_links_that_do_not_follow_the_last_are_refused(scene: Scene, n: int) -> None:
    act(scene, 2)
    first, second = oldest_first(scene)
    [link] = seal(None, [first])
    assert add(scene, link)
    assert not add(scene, AuditLink(n=n, audit_id=second.id, hash="a" * 64))
    assert [one.link for one in chain(scene).sealed] == [link]


def test_a_link_whose_hash_is_not_that_of_its_record_is_refused(scene: Scene) -> None:
    """Else whoever may seal could make the chain look tampered with, for ever."""
    act(scene, 2)
    first, second = seal(None, oldest_first(scene))
    for wrong in (replace(first, hash="a" * 64), replace(first, audit_id=second.audit_id)):
        assert not add(scene, wrong)
    assert not add(scene, first, replace(second, hash="b" * 64))
    assert chain(scene) == AuditChain(sealed=(), unsealed=2)
    assert add(scene, first, second)


@pytest.mark.parametrize("n", [0, 2])
def test_a_chain_begins_with_one(scene: Scene, n: int) -> None:
    act(scene)
    [record] = oldest_first(scene)
    assert not add(scene, AuditLink(n=n, audit_id=record.id, hash="a" * 64))
    assert chain(scene) == AuditChain(sealed=(), unsealed=1)


@pytest.mark.parametrize("numbers", [(1, 3), (1, 1), (2, 1), (1, 0)])
def test_links_that_do_not_follow_each_other_are_refused_together(scene: Scene, numbers: tuple[int, int]) -> None:
    act(scene, 2)
    links = [
        AuditLink(n=n, audit_id=one.id, hash="a" * 64) for n, one in zip(numbers, oldest_first(scene), strict=True)
    ]
    assert not add(scene, *links)
    assert chain(scene) == AuditChain(sealed=(), unsealed=2)


def test_an_act_that_committed_late_is_sealed_late(scene: Scene) -> None:
    """Its record has a lower number than some that are sealed already: it must not be passed over."""
    act(scene, 4)
    first, late, third, fourth = oldest_first(scene)
    assert add(scene, *seal(None, [first, third]))
    there = unsealed(scene)
    assert there.records == (late, fourth)
    assert there.last is not None
    assert (there.last.n, there.last.audit_id) == (2, third.id)
    seal_all(scene)
    assert [one.link.audit_id for one in chain(scene).sealed] == [first.id, third.id, late.id, fourth.id]
    assert verified(scene).broken is None


def test_sealing_writes_no_record_of_its_own(scene: Scene) -> None:
    act(scene, 2)
    seal_all(scene)
    assert len(scene.audit()) == 2


def test_retention_leaves_the_chain(scene: Scene) -> None:
    act(scene, 2)
    seal_all(scene)
    assert scene.retain(finished_before=scene.at(1)) == 2
    found = verified(scene)
    assert (found.links, found.broken) == (2, None)


def test_a_purge_begins_a_new_chain(scene: Scene) -> None:
    act(scene, 2)
    seal_all(scene)
    scene.run(Purge())
    assert unsealed(scene) == AuditToSeal(last=None, records=())
    assert chain(scene) == AuditChain(sealed=(), unsealed=0)
    act(scene)
    assert [link.n for link in seal_all(scene)] == [1]
    assert verified(scene).broken is None
