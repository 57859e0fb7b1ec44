"""Circuit breakers shared through the store: what every process sees, and what people do to them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from fairlane.core.breaker import Admission, BreakerPolicy, BreakerRecord
from fairlane.core.ops import Admit, Breakers, ForceBreaker, ListBreakers, Report, ResetBreaker, only
from fairlane.testing.conformance.scene import Scene

pytestmark = pytest.mark.requirement("Q10", "L8")

POLICY = BreakerPolicy(threshold=3, cooldown_s=60, probes=1)
TWO_PROBES = BreakerPolicy(threshold=1, cooldown_s=60, probes=2)


def admit(scene: Scene, name: str = "smtp", policy: BreakerPolicy = POLICY) -> Admission:
    return scene.run(Admit(name=name, policy=policy))


def report(scene: Scene, failures: int = 0, successes: int = 0, **which: Any) -> BreakerRecord:
    which = {"name": "smtp", "policy": POLICY, **which}
    return scene.run(Report(failures=failures, successes=successes, **which))


def listed(scene: Scene) -> tuple[BreakerRecord, ...]:
    return scene.run(ListBreakers()).breakers


def reset(scene: Scene, name: str = "smtp", notes: str | None = None) -> BreakerRecord:
    return scene.run(ResetBreaker(name=name, by="ada", notes=notes)).breaker


def force(scene: Scene, name: str = "smtp", notes: str | None = None) -> BreakerRecord:
    return scene.run(ForceBreaker(name=name, by="ada", notes=notes)).breaker


def refused(retry_at: datetime | None, state: str = "open") -> Admission:
    return Admission(admitted=False, state=state, retry_at=retry_at)  # type: ignore[arg-type]


PROBE = Admission(admitted=True, state="half_open")
FREE = Admission(admitted=True, state="closed")


def test_a_breaker_nobody_knows_lets_calls_through_and_stays_unknown(scene: Scene) -> None:
    assert admit(scene) == FREE
    assert scene.run(ListBreakers()) == Breakers(breakers=())


@pytest.mark.parametrize(("failures", "successes"), [(0, 0), (0, 2), (1, 0)])
def test_a_breaker_is_known_from_its_first_report(scene: Scene, failures: int, successes: int) -> None:
    told = report(scene, failures, successes)
    last_failure_at = scene.now if failures else None
    expected = BreakerRecord(name="smtp", failures=failures, last_failure_at=last_failure_at, updated_at=scene.now)
    assert told == expected
    assert listed(scene) == (expected,)


def test_failures_in_a_row_open_it_at_the_threshold(scene: Scene) -> None:
    report(scene, failures=2)
    assert admit(scene) == FREE
    scene.later(5)
    told = report(scene, failures=1)
    assert (told.state, told.failures, told.opened_at, told.retry_at) == ("open", 3, scene.now, scene.at(60))
    assert told.last_failure_at == told.updated_at == scene.now
    assert admit(scene) == refused(scene.at(60))
    assert listed(scene) == (told,)


def test_many_failures_reported_at_once_count_one_by_one(scene: Scene) -> None:
    told = report(scene, failures=5)
    assert (told.state, told.failures, told.last_failure_at) == ("open", 3, scene.now)


def test_a_success_ends_the_row_of_failures(scene: Scene) -> None:
    report(scene, failures=2)
    scene.later(5)
    told = report(scene, successes=1)
    assert (told.state, told.failures, told.updated_at, told.last_failure_at) == ("closed", 0, scene.now, scene.at(-5))
    assert report(scene, failures=2).state == "closed"


def test_failures_of_one_report_come_before_its_successes(scene: Scene) -> None:
    assert report(scene, failures=2, successes=1).failures == 0
    assert report(scene, failures=3, successes=1).state == "open"


def test_a_success_of_a_quiet_breaker_changes_nothing(scene: Scene) -> None:
    before = report(scene, successes=1)
    scene.later(5)
    assert report(scene, successes=3) == before


def test_no_call_goes_through_until_the_cooldown_is_over_and_then_one_probe(scene: Scene) -> None:
    report(scene, failures=3)
    opened = scene.now
    scene.later(59.999999)
    assert admit(scene) == refused(scene.at(0.000001))
    scene.later(0.000001)
    assert admit(scene) == PROBE
    [breaker] = listed(scene)
    assert (breaker.state, breaker.half_opened_at, breaker.opened_at) == ("half_open", scene.now, opened)
    assert (breaker.probing, breaker.successes, breaker.retry_at, breaker.updated_at) == (1, 0, None, scene.now)
    assert admit(scene) == refused(scene.at(60), "half_open")


def test_a_probe_that_succeeds_closes_it(scene: Scene) -> None:
    report(scene, failures=3)
    failed_at = scene.now
    scene.later(60)
    admit(scene)
    scene.later(2)
    told = report(scene, successes=1)
    assert told == BreakerRecord(name="smtp", last_failure_at=failed_at, updated_at=scene.now)
    assert admit(scene) == FREE


def test_a_probe_that_fails_opens_it_for_another_cooldown(scene: Scene) -> None:
    report(scene, failures=3)
    scene.later(60)
    admit(scene)
    scene.later(2)
    told = report(scene, failures=1)
    assert (told.state, told.opened_at, told.retry_at, told.probing) == ("open", scene.now, scene.at(60), 0)
    assert told.failures == 4
    assert admit(scene) == refused(scene.at(60))


def test_as_many_probes_as_the_policy_says_go_through_and_all_must_succeed(scene: Scene) -> None:
    report(scene, failures=1, policy=TWO_PROBES)
    scene.later(60)
    assert [admit(scene, policy=TWO_PROBES) for _ in range(2)] == [PROBE, PROBE]
    assert admit(scene, policy=TWO_PROBES).admitted is False
    scene.later(1)
    told = report(scene, successes=1, policy=TWO_PROBES)
    assert (told.state, told.successes, told.probing, told.updated_at) == ("half_open", 1, 1, scene.now)
    assert admit(scene, policy=TWO_PROBES) == PROBE
    assert report(scene, successes=1, policy=TWO_PROBES).state == "closed"


def test_a_failure_among_probes_opens_it_whatever_succeeded_before(scene: Scene) -> None:
    report(scene, failures=1, policy=TWO_PROBES)
    scene.later(60)
    admit(scene, policy=TWO_PROBES)
    admit(scene, policy=TWO_PROBES)
    report(scene, successes=1, policy=TWO_PROBES)
    told = report(scene, failures=1, policy=TWO_PROBES)
    assert (told.state, told.successes, told.probing) == ("open", 0, 0)
    scene.later(60)
    admit(scene, policy=TWO_PROBES)
    assert report(scene, successes=1, policy=TWO_PROBES).state == "half_open"


def test_a_probe_nobody_reports_is_given_up_after_a_cooldown(scene: Scene) -> None:
    report(scene, failures=3)
    scene.later(60)
    assert admit(scene) == PROBE
    scene.later(59)
    assert admit(scene) == refused(scene.at(1), "half_open")
    scene.later(1)
    assert admit(scene) == PROBE
    assert listed(scene)[0].probing == 1


def test_what_calls_begun_earlier_report_does_not_move_an_open_breaker(scene: Scene) -> None:
    before = report(scene, failures=3)
    scene.later(5)
    assert report(scene, successes=2) == before
    told = report(scene, failures=1)
    assert (told.state, told.failures, told.retry_at) == ("open", 3, before.retry_at)
    assert (told.last_failure_at, told.updated_at) == (scene.now, scene.now)


def test_each_call_is_judged_by_the_policy_it_brings(scene: Scene) -> None:
    report(scene, failures=2, policy=BreakerPolicy(threshold=9))
    told = report(scene, failures=1, policy=BreakerPolicy(threshold=3, cooldown_s=0.5))
    assert (told.state, told.retry_at) == ("open", scene.at(0.5))


def test_breakers_are_listed_by_name_and_do_not_touch_each_other(scene: Scene) -> None:
    for name in ("smtp", "Search", "billing"):
        report(scene, failures=1, name=name)
    report(scene, failures=2, name="billing")
    assert [(one.name, one.state) for one in listed(scene)] == [
        ("Search", "closed"),
        ("billing", "open"),
        ("smtp", "closed"),
    ]


def test_a_breaker_reset_by_hand_is_closed(scene: Scene) -> None:
    report(scene, failures=3)
    failed_at = scene.now
    scene.later(5)
    told = reset(scene)
    assert told == BreakerRecord(name="smtp", last_failure_at=failed_at, updated_at=scene.now)
    assert listed(scene) == (told,)
    assert admit(scene) == FREE


def test_a_breaker_forced_open_stays_open_until_it_is_reset(scene: Scene) -> None:
    report(scene, failures=1)
    told = force(scene)
    assert (told.state, told.failures, told.opened_at, told.retry_at) == ("open", 1, scene.now, None)
    scene.later(86_400 * 30)
    assert admit(scene) == refused(None)
    assert report(scene, successes=5).state == "open"
    reset(scene)
    assert admit(scene) == FREE


def test_a_half_open_breaker_forced_open_forgets_its_probes(scene: Scene) -> None:
    report(scene, failures=3)
    scene.later(60)
    admit(scene)
    told = force(scene)
    assert (told.state, told.probing, told.successes, told.retry_at) == ("open", 0, 0, None)


@pytest.mark.parametrize("act", [reset, force])
def test_a_breaker_nobody_knows_can_be_reset_and_forced(scene: Scene, act: Any) -> None:
    told = act(scene, "new")
    assert listed(scene) == (told,)
    assert told.state == ("open" if act is force else "closed")
    [record] = scene.audit()
    assert (record.before, record.after) == ({"state": "closed"}, {"state": told.state})


@pytest.mark.requirement("W12")
def test_what_people_do_to_breakers_is_written_down_each_time(scene: Scene) -> None:
    report(scene, failures=3)
    scene.later(5)
    reset(scene, notes="mail is back")
    reset(scene)
    force(scene, notes="maintenance")
    forced, again, first = scene.audit()
    assert [record.action for record in (first, again, forced)] == [
        "breaker_reset",
        "breaker_reset",
        "breaker_force_open",
    ]
    assert {(record.target, record.tenant, record.by, record.at) for record in (first, again, forced)} == {
        ("breaker:smtp", None, "ada", scene.now)
    }
    assert (first.notes, again.notes, forced.notes) == ("mail is back", None, "maintenance")
    assert (first.before, first.after) == ({"state": "open"}, {"state": "closed"})
    assert (again.before, again.after) == ({"state": "closed"}, {"state": "closed"})
    assert (forced.before, forced.after) == ({"state": "closed"}, {"state": "open"})
    assert scene.audit(only("acme")) == ()


def test_calls_and_reports_are_no_acts(scene: Scene) -> None:
    report(scene, failures=3)
    scene.later(60)
    admit(scene)
    report(scene, successes=1)
    assert scene.audit() == ()
