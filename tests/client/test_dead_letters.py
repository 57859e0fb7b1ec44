"""Dead letters looked after: acknowledged, closed, reprocessed, alone and by the dozen."""

from __future__ import annotations

import asyncio
import json

import pytest

from fairlane import Fairlane, FakeClock, InvalidArguments, InvalidState, SyncTask
from fairlane.client.admin.dead_letters import Reprocessed
from fairlane.client.admin.filters import DeadLetterFilters
from fairlane.core.job import DeadLetter
from fairlane.core.ops import DeadLetterFilter
from fairlane.errors import DeadLetterNotFound, InvalidOption, UnknownTask


@pytest.fixture
def add(app: Fairlane) -> SyncTask[[int, int], int]:
    @app.task(name="add")
    def add(a: int, b: int) -> int:
        return a // b

    return add


def dead_letter(app: Fairlane, add: SyncTask[[int, int], int], key: str = "k") -> DeadLetter:
    app.jobs.bury(add.using(tenant="acme", idempotency_key=key).enqueue(1, 0), "stuck")
    return app.dead_letters.list().dead_letters[0]


@pytest.mark.requirement("L5", "L10", "I7")
def test_a_job_is_moved_to_the_dead_letters_and_looked_after(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    letter = dead_letter(app, add)
    assert (letter.status, letter.reason, letter.job.tenant) == ("pending_review", "stuck", "acme")
    acknowledged = app.dead_letters.acknowledge(letter, by="ada")
    assert (acknowledged.acknowledged_by, acknowledged.status) == ("ada", "pending_review")
    resolved = asyncio.run(app.dead_letters.aresolve(letter.id, by="ada", notes="fixed upstream"))
    assert (resolved.status, resolved.resolution_notes, resolved.closed_by) == ("resolved", "fixed upstream", "ada")
    with pytest.raises(InvalidState, match="cannot discard dead letter"):
        app.dead_letters.discard(letter)
    assert [record.action for record in app.audit.list().records] == [
        "job_dlq_resolve",
        "job_dlq_acknowledge",
        "job_bury",
    ]


@pytest.mark.requirement("L10")
def test_a_dead_letter_is_reprocessed_once_while_the_new_job_lives(
    app: Fairlane, add: SyncTask[[int, int], int]
) -> None:
    letter = dead_letter(app, add)
    new = app.dead_letters.reprocess(letter, by="ada").job
    assert (new.idempotency_key, new.payload, new.created_by) == ("k_retry_1", letter.job.payload, "ada")
    assert asyncio.run(app.dead_letters.areprocess(letter.id)) == Reprocessed(job=new, repeated=True)
    detail = app.dead_letters.get(letter.id)
    assert detail is not None
    assert (detail.dead_letter.status, detail.dead_letter.reprocessed_as) == ("retried", new.id)


def test_an_edited_payload_is_checked_and_the_letter_keeps_its_own(
    app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock
) -> None:
    letter = dead_letter(app, add)
    for payload in ({"a": 1}, {"a": 1, "b": "x"}):
        with pytest.raises(InvalidArguments):
            app.dead_letters.reprocess(letter, payload=payload)
    made = app.dead_letters.reprocess(letter, payload={"a": 4, "b": 2}, delay=60)
    assert not made.repeated
    assert json.loads(made.job.payload) == {"a": 4, "b": 2}
    assert (made.job.run_at - clock.now()).total_seconds() == 60
    detail = app.dead_letters.get(letter.id)
    assert detail is not None
    assert json.loads(detail.dead_letter.job.payload) == {"a": 1, "b": 0}
    with pytest.raises(DeadLetterNotFound):
        app.dead_letters.reprocess(10**6, payload={"a": 4, "b": 2})


def test_a_payload_of_an_unknown_task_or_another_version_is_not_edited(
    app: Fairlane, add: SyncTask[[int, int], int]
) -> None:
    letter = dead_letter(app, add)
    add.definition.version = 2
    with pytest.raises(InvalidState, match="payload version 1, its task is at 2"):
        app.dead_letters.reprocess(letter, payload={"a": 4, "b": 2})
    app.runtime.tasks.clear()
    with pytest.raises(UnknownTask):
        app.dead_letters.reprocess(letter, payload={"a": 4, "b": 2})


def test_letters_that_failed_alike_are_grouped_counted_and_reprocessed_at_a_bounded_rate(
    app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock
) -> None:
    letters = [dead_letter(app, add, key=f"k{n}") for n in range(4)]
    app.dead_letters.discard(letters[0])
    [group] = app.dead_letters.groups()
    assert (group.count, group.type) == (3, "add")
    assert app.dead_letters.groups(status="discarded")[0].count == 1
    counts = asyncio.run(app.dead_letters.acounts())
    assert counts == {"pending_review": 3, "retried": 0, "resolved": 0, "discarded": 1}
    where = DeadLetterFilter(status="pending_review", fingerprint=group.fingerprint)
    counted = app.dead_letters.act_on_many("reprocess", where=where, dry_run=True, limit=2)
    assert (counted.matched, counted.total, counted.next is None) == (2, 3, False)
    acts = app.dead_letters.act_on_many("reprocess", where=where, per_second=2.0)
    due = [(job.run_at - clock.now()).total_seconds() for job in acts.done if not isinstance(job, DeadLetter)]
    assert due == [0.0, 0.5, 1.0]
    again = app.dead_letters.act_on_many("discard", [letter.id for letter in letters])
    assert ({refused.code for refused in again.refused}, len(again.done)) == ({"invalid_state"}, 3)


def test_the_rate_continues_over_several_calls(app: Fairlane, add: SyncTask[[int, int], int], clock: FakeClock) -> None:
    for n in range(5):
        dead_letter(app, add, key=f"k{n}")
    where, before, behind, due = DeadLetterFilter(status="pending_review"), None, 0, []
    while behind == 0 or before is not None:
        acts = app.dead_letters.act_on_many(
            "reprocess", where=where, per_second=2.0, limit=2, before=before, behind=behind
        )
        before, behind = acts.next, behind + acts.matched
        due += [(job.run_at - clock.now()).total_seconds() for job in acts.done if not isinstance(job, DeadLetter)]
    assert due == [0.0, 0.5, 1.0, 1.5, 2.0]
    with pytest.raises(InvalidOption, match="behind"):
        app.dead_letters.act_on_many("reprocess", where=where, behind=-1)
    with pytest.raises(InvalidOption, match="behind"):
        app.dead_letters.act_on_many("reprocess", where=where, behind=10**400)


def test_an_act_stays_within_the_rows_that_were_counted(app: Fairlane, add: SyncTask[[int, int], int]) -> None:
    for n in range(5):
        dead_letter(app, add, key=f"k{n}")
    where = DeadLetterFilter(status="pending_review")
    counted = app.dead_letters.act_on_many("resolve", where=where, dry_run=True, limit=2)
    acts = [app.dead_letters.act_on_many("resolve", where=where, down_to=counted.next) for _ in range(2)]
    assert [(act.matched, act.next) for act in acts] == [(2, None), (0, None)]
    assert len(app.dead_letters.list(status="pending_review").dead_letters) == 3


def test_the_keywords_of_a_listing_are_the_fields_of_its_filter() -> None:
    assert {*DeadLetterFilters.__annotations__} == {*DeadLetterFilter.__struct_fields__}
