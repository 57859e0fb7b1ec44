"""Where the SQLite store stops counting, and what it keeps apart from its callers."""

from __future__ import annotations

import pytest

from fairlane.core.ops import ALL_TENANTS, GroupDeadLetters, IssueCredential, PageAudit, ReadAuditChain
from fairlane.stores.sqlite import MemoryStore
from fairlane.testing.conformance.scene import Scene


@pytest.fixture
def scene() -> Scene:
    return Scene(MemoryStore())


@pytest.mark.requirement("W10")
def test_groups_are_made_of_the_newest_ten_thousand_letters(scene: Scene) -> None:
    oldest = scene.put("report.make")
    receipts = scene.put_many(10_000)
    for receipt in (oldest, *receipts):
        scene.bury(receipt.id)
    [group] = scene.run(GroupDeadLetters(scope=ALL_TENANTS)).groups
    assert (group.type, group.count, group.newest) == ("mail.send", 10_000, receipts[-1].seq)


@pytest.mark.requirement("W12")
def test_unsealed_records_are_counted_up_to_a_thousand(scene: Scene) -> None:
    for nth, receipt in enumerate(scene.put_many(1002), start=1):
        scene.cancel(receipt.id)
        if nth in (999, 1000, 1002):
            assert scene.run(ReadAuditChain()).unsealed == min(nth, 1000)


@pytest.mark.requirement("W12")
def test_whoever_read_an_audit_record_cannot_change_it(scene: Scene) -> None:
    given = {"kind": "token", "name": "ci", "prefix": "fl_", "hash": "a" * 64, "by": "ada"}
    scene.run(IssueCredential(id=scene.making.job_id(), roles=("viewer",), **given))
    [read] = scene.run(PageAudit(scope=ALL_TENANTS)).records
    assert read.after is not None
    read.after["roles"].append("manager")
    read.after["name"] = "mallory"
    [record] = scene.run(PageAudit(scope=ALL_TENANTS)).records
    assert record.after is not None
    assert (record.after["roles"], record.after["name"]) == (["viewer"], "ci")
