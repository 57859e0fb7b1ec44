"""The reply to a commit may be lost at any byte. The call is repeated by itself, and happens once."""

from __future__ import annotations

import pytest

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease
from fairlane.core.ops import ALL_TENANTS, Cancel, Enqueue, Fail, Op, Renew, Turn
from fairlane.errors import StoreUnavailable
from fairlane.stores.postgres import PostgresStore
from fairlane.testing.conformance.samples import Making, completed, retried
from fairlane.testing.conformance.scene import wanting
from tests.faults.cuts import Direction, cut_at, measure, offsets
from tests.faults.places import Place
from tests.servers.proxy import Cut, Proxy
from tests.support.stores import Face

# Direction, kind of cut, colour, and every how many bytes the quick run cuts.
CLOSED: list[tuple[Direction, Cut, str, int]] = [("sent", "close", "sync", 97), ("received", "close", "sync", 31)]
OTHERWISE: list[tuple[Direction, Cut, str, int]] = [
    ("sent", "reset", "sync", 401),
    ("received", "reset", "sync", 97),
    ("sent", "close", "async", 401),
    ("received", "close", "async", 97),
]


def cuts(variant: str, first: object, second: object) -> pytest.MarkDecorator:
    """The first variant cut in every way, the second by closing."""
    every = [(*way, first) for way in (*CLOSED, *OTHERWISE)] + [(*way, second) for way in CLOSED]
    ids = ["-".join(map(str, (*way[:3], way[4]))) for way in every]
    return pytest.mark.parametrize(("direction", "how", "colour", "stride", variant), every, ids=ids)


@pytest.mark.requirement("W6")
@cuts("key", None, "key")
def test_an_enqueue_cut_at_any_byte_makes_exactly_one_job(
    place: Place, proxy: Proxy, direction: Direction, how: Cut, colour: str, stride: int, key: str | None
) -> None:
    making = Making()
    dispositions = []

    def enqueue(number: int) -> Enqueue:
        return Enqueue(jobs=(making.job(idempotency_key=key and f"{key}{number:05}"),))

    length = measure(place, enqueue(0))[direction]
    for offset in offsets(length, stride):
        op = enqueue(offset)

        def call(face: Face, op: Enqueue = op) -> None:
            [receipt] = face.run(op).receipts
            assert receipt.id == op.jobs[0].id
            dispositions.append(receipt.disposition)

        cut_at(place, proxy, direction, length.before + offset, how, call, colour)
    assert place.jobs() == len(dispositions) + 1
    assert place.number("select count(*) from fairlane.ready") == len(dispositions) + 1
    assert set(dispositions) <= {"created", "replayed"}
    if direction == "received":
        assert "replayed" in dispositions  # the cuts came after the commit


@pytest.mark.requirement("Q17", "W7")
@cuts("ending", "completed", "retried")
def test_a_turn_cut_at_any_byte_settles_once_and_claims_once(
    place: Place,
    proxy: Proxy,
    store: PostgresStore,
    direction: Direction,
    how: Cut,
    colour: str,
    stride: int,
    ending: str,
) -> None:
    making = Making()
    store.run(Enqueue(jobs=tuple(making.job() for _ in range(2_000))))
    worker = making.worker_id()
    store.run(Renew(worker=worker, lease_s=3600))
    [lease] = store.run(Turn(worker=worker, claim_no=1, wants=(wanting(1),))).leases
    leases = [lease]

    def turn() -> Turn:
        last = leases[-1]
        outcome = completed(last, '{"sent":true}') if ending == "completed" else retried(last, delay_s=3600)
        return Turn(worker=worker, claim_no=last.seq + 1, outcomes=(outcome,), wants=(wanting(1),))

    length = measure(place, turn())[direction]
    leases += store.run(turn()).leases  # the measured turn again: its outcome is accepted, its lease returned
    for offset in offsets(length, 3 * stride):
        op = turn()

        def call(face: Face, op: Turn = op) -> None:
            result = face.run(op)
            assert not result.refused
            leases.extend(result.leases)

        cut_at(place, proxy, direction, length.before + offset, how, call, colour)
    _assert_each_ran_once(place, worker, leases, ending)


def _assert_each_ran_once(place: Place, worker: WorkerId, leases: list[Lease], ending: str) -> None:
    assert [lease.attempt for lease in leases] == [1] * len(leases)
    assert len({lease.seq for lease in leases}) == len(leases)
    held = place.rows("select seq from fairlane.lease where worker = %s", worker)
    assert held == [(leases[-1].seq,)]
    ended = [lease.seq for lease in leases[:-1]]
    if ending == "completed":
        facts = place.rows("select seq, attempt, attempts from fairlane.done order by seq")
        assert facts == [(seq, 1, 0) for seq in ended]
    else:
        facts = place.rows("select seq, attempt, attempts from fairlane.scheduled order by seq")
        assert facts == [(seq, 1, 1) for seq in ended]  # charged once


@pytest.mark.requirement("L5")
@pytest.mark.parametrize("act", ["fail", "cancel"])
@pytest.mark.parametrize(("direction", "stride"), [("sent", 61), ("received", 37)])
def test_an_act_of_a_person_cut_at_any_byte_is_not_repeated_and_says_so(
    place: Place, proxy: Proxy, store: PostgresStore, direction: Direction, stride: int, act: str
) -> None:
    making = Making()
    errors: list[StoreUnavailable] = []

    def act_on_a_new_job() -> Op[object]:
        job = making.job()
        store.run(Enqueue(jobs=(job,)))
        if act == "cancel":
            return Cancel(scope=ALL_TENANTS, id=job.id, by="ada")
        return Fail(scope=ALL_TENANTS, id=job.id, by="ada", reason="wrong", retry_delay_s=3600)

    length = measure(place, act_on_a_new_job())[direction]
    for offset in offsets(length, stride):
        op = act_on_a_new_job()

        def call(face: Face, op: Op[object] = op) -> None:
            try:
                face.run(op)
            except StoreUnavailable as error:
                errors.append(error)

        cut_at(place, proxy, direction, length.before + offset, "close", call, "sync")
    assert errors
    warning = f"the {act} may or may not have taken effect: check before retrying"
    assert all(warning in str(error) for error in errors)
    acts = dict(place.rows("select target, count(*) from fairlane.audit group by target"))
    assert acts
    assert set(acts.values()) == {1}
    charged = place.rows("select attempts from fairlane.scheduled union all select attempts from fairlane.done")
    assert set(charged) == ({(1,)} if act == "fail" else {(0,)})
