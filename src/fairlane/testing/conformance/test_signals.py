"""Signals: each reaches each job that waits for it once, whether it was emitted before, while or after it waits."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from msgspec import Raw

from fairlane.core.ids import WorkerId
from fairlane.core.job import Lease, SignalWait, StepRecord
from fairlane.core.ops import (
    ALL_TENANTS,
    Deliver,
    Delivered,
    Emit,
    Emitted,
    ForgetOld,
    ListSignals,
    SignalAnswer,
    TakeSignal,
    Why,
    only,
)
from fairlane.core.outcome import Snoozed, Suspension
from fairlane.testing.conformance.samples import cancelled, completed, retried, snoozed
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("L18")


def emit(scene: Scene, name: str = "paid", data: str = "{}", tenant: str = "acme", **more: Any) -> UUID:
    sent = scene.making.job_id()
    answer = scene.run(Emit(id=sent, tenant=tenant, name=name, data=Raw(data.encode()), **more))
    assert not answer.repeated
    return sent


def waiting(lease: Lease, n: int = 1, timeout_s: float = 3600.0, name: str = "paid", key: str = "") -> Snoozed:
    return snoozed(lease, timeout_s, suspension=Suspension(n=n, name=name, signal=True, key=key))


def take(scene: Scene, worker: WorkerId, lease: Lease, n: int = 1, name: str = "paid", key: str = "") -> SignalAnswer:
    return scene.run(
        TakeSignal(
            worker=worker, seq=lease.seq, attempt=lease.attempt, claim_no=lease.claim_no, n=n, name=name, key=key
        )
    )


def leased(scene: Scene, **options: Any) -> tuple[WorkerId, Lease]:
    options.setdefault("tenant", "acme")
    worker, lease = scene.leased(**options)
    scene.renew(worker, 1_000_000)
    return worker, lease


def heard(scene: Scene, lease: Lease) -> list[tuple[int, str | None, UUID | None]]:
    detail = scene.find(lease.id)
    assert detail is not None
    return [(step.n, step.result, step.signal) for step in detail.steps]


def waits_for(scene: Scene, lease: Lease) -> SignalWait | None:
    detail, why = scene.find(lease.id), scene.run(Why(scope=ALL_TENANTS, id=lease.id))
    assert detail is not None
    assert why is not None
    assert why.waits_for == detail.waits_for
    return detail.waits_for


def test_a_signal_ends_the_wait_and_the_job_is_due_at_once(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease, key="7"))
    assert waits_for(scene, lease) == SignalWait(n=1, name="paid", key="7", until=scene.at(3600))
    assert scene.claim(worker) == ()
    at = scene.later(10)
    sent = scene.making.job_id()
    assert scene.run(Emit(id=sent, tenant="acme", name="paid", key="7", data=Raw(b'{"sum":3}'))) == Emitted(
        repeated=False, delivered=1
    )
    assert (waits_for(scene, lease), scene.see(lease.id).run_at) == (None, at)
    [again] = scene.claim(worker)
    assert (again.id, again.attempt, again.attempts) == (lease.id, 2, 0)
    kept = StepRecord(n=1, kind="wait", name="paid", key="7", attempt=1, at=at, result='{"sum":3}', signal=sent)
    assert take(scene, worker, again, key="7") == SignalAnswer(accepted=True, step=kept)


@pytest.mark.parametrize("data", ["null", '"\\u0000"', "[1,  2]", '"text"'])
def test_the_data_of_a_signal_is_kept_as_its_exact_text(scene: Scene, data: str) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease))
    sent = emit(scene, data=data)
    assert heard(scene, lease) == [(1, data, sent)]


def test_a_signal_emitted_before_anybody_waits_is_found(scene: Scene) -> None:
    sent = emit(scene, data="1")
    worker, lease = leased(scene)
    answer = take(scene, worker, lease)
    assert answer.step is not None
    assert (answer.step.result, answer.step.signal, answer.step.attempt) == ("1", sent, 1)


def test_a_signal_emitted_between_asking_and_going_to_wait_is_found(scene: Scene) -> None:
    worker, lease = leased(scene)
    assert take(scene, worker, lease) == SignalAnswer(accepted=True)
    sent = emit(scene, data="1")
    scene.settle(worker, waiting(lease))
    assert (heard(scene, lease), waits_for(scene, lease)) == ([(1, "1", sent)], None)
    assert len(scene.claim(worker)) == 1


def test_a_wait_that_nobody_ends_is_over_at_its_timeout(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease, timeout_s=60))
    scene.later(59)
    assert scene.claim(worker) == ()
    at = scene.later(1)
    [again] = scene.claim(worker)
    assert waits_for(scene, lease) is None
    answer = take(scene, worker, again)
    assert answer.step == StepRecord(n=1, kind="wait", name="paid", key="", attempt=2, at=at)
    emit(scene)
    assert take(scene, worker, again) == answer


def test_a_signal_emitted_after_the_timeout_and_before_the_job_runs_again_still_counts(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease, timeout_s=60))
    scene.later(60)
    scene.promote()
    sent = emit(scene, data="1")
    [again] = scene.claim(worker)
    answer = take(scene, worker, again)
    assert answer.step is not None
    assert answer.step.signal == sent


def test_a_job_that_comes_back_before_its_timeout_knows_how_long_it_may_wait(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease, timeout_s=60))
    scene.later(10)
    scene.fail(lease.id, retry_delay_s=0.0)
    [again] = scene.claim(worker)
    assert take(scene, worker, again) == SignalAnswer(accepted=True, left_s=50.0)
    assert take(scene, worker, again, n=2) == SignalAnswer(accepted=True)


def test_a_signal_reaches_each_waiting_job_once(scene: Scene) -> None:
    worker = scene.hire(1_000_000)
    scene.put_many(3, tenant="acme")
    leases = scene.claim(worker, 3)
    scene.settle(worker, *(waiting(lease) for lease in leases))
    sent = emit(scene, data="1")
    assert [heard(scene, lease) for lease in leases] == [[(1, "1", sent)]] * 3
    again = scene.claim(worker, 3)
    assert len(again) == 3
    scene.settle(worker, *(waiting(lease, n=2) for lease in again))
    assert [waits_for(scene, lease) is not None for lease in leases] == [True] * 3
    assert scene.run(Deliver()).count == 0
    second = emit(scene, data="2")
    assert [heard(scene, lease)[1:] for lease in leases] == [[(2, "2", second)]] * 3


def test_a_job_gets_kept_signals_in_the_order_of_their_emission(scene: Scene) -> None:
    ids = []
    for number in range(3):
        ids.append(emit(scene, data=str(number)))
        scene.later(1)
    worker, lease = leased(scene)
    for n in (1, 2, 3):
        assert take(scene, worker, lease, n).step is not None
    assert heard(scene, lease) == [(1, "0", ids[0]), (2, "1", ids[1]), (3, "2", ids[2])]
    assert take(scene, worker, lease, 4) == SignalAnswer(accepted=True)


@pytest.mark.parametrize(
    "other", [{"name": "sent"}, {"key": "8"}, {"tenant": "globex"}, {"tenant": "acm", "name": "epaid"}]
)
def test_signals_of_another_name_key_or_tenant_do_not_concern_a_job(scene: Scene, other: dict[str, str]) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease, key="7"))
    emit(scene, **{"key": "7", **other})
    assert (heard(scene, lease), waits_for(scene, lease) is None) == ([], False)


def test_a_signal_emitted_again_after_a_lost_reply_is_there_once(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease))
    op = Emit(id=scene.making.job_id(), tenant="acme", name="paid", data=Raw(b"1"))
    assert scene.run(op) == Emitted(repeated=False, delivered=1)
    assert scene.run(op) == Emitted(repeated=True)
    assert len(scene.run(ListSignals(scope=ALL_TENANTS)).signals) == 1


def test_a_signal_that_is_not_delivered_at_once_is_delivered_by_a_duty(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease))
    sent = emit(scene, data="1", deliver=False)
    assert heard(scene, lease) == []
    assert scene.run(Deliver()) == Delivered(count=1)
    assert heard(scene, lease) == [(1, "1", sent)]
    assert scene.run(Deliver()) == Delivered(count=0)


def test_many_waits_are_ended_in_bounded_steps(scene: Scene) -> None:
    worker = scene.hire(1_000_000)
    scene.put_many(5, tenant="acme")
    leases = scene.claim(worker, 5)
    scene.settle(worker, *(waiting(lease) for lease in leases))
    emit(scene, deliver=False)
    emit(scene, name="sent", deliver=False)
    assert scene.run(Deliver(limit=2)) == Delivered(count=2, more=True)
    assert [len(heard(scene, lease)) for lease in leases] == [1, 1, 0, 0, 0]
    assert scene.run(Deliver(limit=2)) == Delivered(count=2, more=True)
    assert scene.run(Deliver(limit=2)) == Delivered(count=1)
    assert scene.run(Deliver(limit=2)) == Delivered(count=0)


def test_a_cancelled_job_waits_no_more(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease))
    scene.cancel(lease.id)
    assert waits_for(scene, lease) is None
    sent = scene.making.job_id()
    assert scene.run(Emit(id=sent, tenant="acme", name="paid", data=Raw(b"1"))).delivered == 0
    assert (scene.status(lease.id), heard(scene, lease)) == ("cancelled", [])


def test_a_job_asked_to_stop_does_not_go_to_wait(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.cancel(lease.id)
    scene.settle(worker, waiting(lease))
    assert (scene.status(lease.id), waits_for(scene, lease)) == ("cancelled", None)


def test_a_worker_that_lost_its_lease_takes_no_signal_and_is_told(scene: Scene) -> None:
    worker, lease = scene.leased(tenant="acme")
    emit(scene)
    scene.later(60)
    scene.reclaim()
    assert take(scene, worker, lease) == SignalAnswer(accepted=False)
    assert len(scene.settle(worker, waiting(lease)).refused) == 1
    assert (heard(scene, lease), waits_for(scene, lease)) == ([], None)


def test_a_job_that_failed_after_a_signal_keeps_it(scene: Scene) -> None:
    worker, lease = leased(scene)
    sent = emit(scene, data="1")
    take(scene, worker, lease)
    scene.settle(worker, retried(lease, 0.0))
    [again] = scene.claim(worker)
    assert heard(scene, again) == [(1, "1", sent)]
    assert take(scene, worker, again, 2) == SignalAnswer(accepted=True)


def test_signals_are_listed_newest_first_and_of_one_tenant_where_asked(scene: Scene) -> None:
    first = emit(scene, key="7", data="1")
    at = scene.later(1)
    second = emit(scene, name="sent", tenant="globex", data="2")
    found = scene.run(ListSignals(scope=ALL_TENANTS)).signals
    assert [signal.id for signal in found] == [second, first]
    assert (found[0].tenant, found[0].name, found[0].key, found[0].data, found[0].at) == ("globex", "sent", "", "2", at)
    assert [signal.id for signal in scene.run(ListSignals(scope=only("acme"))).signals] == [first]
    assert [signal.id for signal in scene.run(ListSignals(scope=ALL_TENANTS, name="sent")).signals] == [second]
    assert [signal.id for signal in scene.run(ListSignals(scope=ALL_TENANTS, key="7")).signals] == [first]
    assert [signal.id for signal in scene.run(ListSignals(scope=ALL_TENANTS, limit=1)).signals] == [second]


def test_old_signals_are_forgotten_oldest_first(scene: Scene) -> None:
    for _ in range(3):
        emit(scene, deliver=False)
        scene.later(1)
    assert scene.run(ForgetOld(signals_before=scene.at(-1), limit=1)).signals == 1
    assert scene.run(ForgetOld(signals_before=scene.at(-1))).signals == 1
    assert len(scene.run(ListSignals(scope=ALL_TENANTS)).signals) == 1
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease))
    assert len(heard(scene, lease)) == 1
    assert scene.run(ForgetOld(signals_before=scene.at(10))).signals == 1
    assert len(heard(scene, lease)) == 1


def test_a_job_that_waited_is_removed_with_its_wait(scene: Scene) -> None:
    worker, lease = leased(scene)
    scene.settle(worker, waiting(lease, timeout_s=60))
    scene.later(60)
    [again] = scene.claim(worker)
    scene.settle(worker, completed(again))
    other_worker, other = leased(scene)
    scene.settle(other_worker, cancelled(other))
    assert scene.retain(finished_before=scene.at(1)) == 2
    emit(scene)
    assert scene.run(Deliver()).count == 0
