"""Alerts as a store keeps them: written by whoever is first, silenced by people."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from msgspec.structs import replace

from fairlane.core.ops import Alert, Alerts, Purge, ReadAlerts, SaveAlerts, Silence, SilenceAlerts
from fairlane.testing.conformance.samples import NOON
from fairlane.testing.conformance.scene import Scene


def alert(rule: str = "backlog", about: str = "critical", **facts: Any) -> Alert:
    words = {"state": "pending", "since": NOON, "fired_at": None, "resolved_at": None, "value": 1001.5}
    return Alert(rule=rule, about=about, **{**words, "severity": "warning", "version": 1, **facts})


def save(scene: Scene, *alerts: Alert) -> tuple[tuple[str, str], ...]:
    return scene.run(SaveAlerts(alerts=alerts)).saved


def kept(scene: Scene) -> tuple[Alert, ...]:
    return scene.run(ReadAlerts()).alerts


def silence(scene: Scene, rule: str = "backlog", for_s: float = 600, **how: Any) -> Alerts:
    return scene.run(SilenceAlerts(rule=rule, for_s=for_s, **{"by": "ada", **how}))


def silenced(scene: Scene) -> list[str]:
    return [one.rule for one in scene.run(ReadAlerts()).silences]


def test_there_are_none_at_first(scene: Scene) -> None:
    assert scene.run(ReadAlerts()) == Alerts(alerts=(), silences=())


def test_an_alert_is_kept_as_it_was_written(scene: Scene) -> None:
    told = alert(
        state="resolved",
        since=scene.at(-90.5),
        fired_at=scene.at(-30.000001),
        told_at=scene.at(-29.5),
        resolved_at=scene.now,
        value=-0.25,
        severity="critical",
    )
    assert save(scene, told) == (("backlog", "critical"),)
    assert kept(scene) == (told,)
    assert scene.audit() == ()


def test_alerts_are_read_by_rule_and_what_they_are_about(scene: Scene) -> None:
    some = [("stuck", ""), ("backlog", "été"), ("backlog", "b"), ("Backlog", "z"), ("backlog", "B"), ("backlog", "")]
    assert save(scene, *(alert(rule, about) for rule, about in some)) == tuple(some)
    assert [(one.rule, one.about) for one in kept(scene)] == sorted(some)


def test_an_alert_follows_its_course_version_by_version(scene: Scene) -> None:
    course = [
        alert(),
        alert(version=2, state="firing", fired_at=scene.at(900), value=1200.0),
        alert(version=3, state="resolved", fired_at=scene.at(900), resolved_at=scene.at(1000), value=3.0),
        alert(version=4, since=scene.at(5000)),
    ]
    for told in course:
        assert save(scene, told) == (("backlog", "critical"),)
        assert kept(scene) == (told,)


@pytest.mark.parametrize("version", [0, 1, 2, 4])
def test_who_decided_upon_an_older_state_writes_nothing(scene: Scene, version: int) -> None:
    save(scene, alert())
    save(scene, alert(version=2, value=7.0))
    assert save(scene, alert(version=version, value=9.0)) == ()
    assert [(one.version, one.value) for one in kept(scene)] == [(2, 7.0)]


@pytest.mark.parametrize("version", [-1, 0, 2])
def test_the_first_version_is_one(scene: Scene, version: int) -> None:
    assert save(scene, alert(version=version)) == ()
    assert kept(scene) == ()


def test_of_two_that_decide_at_once_one_is_told_that_it_was_first(scene: Scene) -> None:
    save(scene, alert())
    firing = alert(version=2, state="firing", fired_at=scene.now)
    assert [save(scene, firing), save(scene, firing)] == [(("backlog", "critical"),), ()]


def test_losing_one_race_does_not_keep_the_others_back(scene: Scene) -> None:
    save(scene, alert("b", "x"))
    written = save(scene, alert("c", "x"), alert("b", "x"), alert("b", "y"), alert("a", "", version=2))
    assert written == (("c", "x"), ("b", "y"))
    assert [(one.rule, one.about) for one in kept(scene)] == [("b", "x"), ("b", "y"), ("c", "x")]


def test_saving_nothing_is_fine(scene: Scene) -> None:
    assert save(scene) == ()


def test_an_instant_is_the_same_in_every_zone(scene: Scene) -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=2)))
    told = alert(since=elsewhere, fired_at=NOON, told_at=elsewhere)
    save(scene, told)
    assert kept(scene) == (replace(told, since=NOON, told_at=NOON),)
    assert kept(scene)[0].since.tzinfo == UTC


def over(about: str, over_at: datetime, **facts: Any) -> Alert:
    return alert(about=about, state="resolved", resolved_at=over_at, **facts)


def test_what_is_over_is_forgotten_after_a_day(scene: Scene) -> None:
    save(
        scene, over("first", scene.now), over("second", scene.at(0.000001)), alert(about="third", since=scene.at(-9e6))
    )
    save(scene, alert(about="back", state="firing", resolved_at=scene.now))
    scene.later(86_399.999999)
    assert [one.about for one in kept(scene)] == ["back", "first", "second", "third"]
    scene.later(0.000001)
    assert [one.about for one in kept(scene)] == ["back", "second", "third"]
    assert [one.about for one in silence(scene).alerts] == ["back", "second", "third"]


def test_what_was_forgotten_begins_anew(scene: Scene) -> None:
    save(scene, over("a", scene.now), over("b", scene.at(60)))
    save(scene, over("a", scene.now, version=2))
    scene.later(86_400)
    assert save(scene, alert(about="a", version=3), alert(about="b", version=1)) == (), "neither follows what is kept"
    assert save(scene, alert(about="a", version=1), alert(about="b", version=2)) == (("backlog", "a"), ("backlog", "b"))
    assert [(one.about, one.version) for one in kept(scene)] == [("a", 1), ("b", 2)]


def test_what_fires_again_within_the_day_goes_on(scene: Scene) -> None:
    save(scene, over("a", scene.now))
    scene.later(86_000)
    save(scene, alert(about="a", version=2, state="firing", fired_at=scene.now, resolved_at=scene.at(-86_000)))
    scene.later(86_000)
    assert [one.version for one in kept(scene)] == [2]


def test_a_silence_is_told_with_who_and_until_when(scene: Scene) -> None:
    save(scene, alert())
    told = silence(scene, for_s=90.5, notes="we know")
    assert told.silences == (Silence(rule="backlog", until=scene.at(90.5), by="ada", notes="we know"),)
    assert told.alerts == kept(scene) == (alert(),)
    assert scene.run(ReadAlerts()) == told


def test_a_silence_ends_by_itself(scene: Scene) -> None:
    silence(scene, for_s=60)
    scene.later(59.999999)
    assert silenced(scene) == ["backlog"]
    scene.later(0.000001)
    assert silenced(scene) == []


def test_a_silence_is_ended_by_hand(scene: Scene) -> None:
    silence(scene)
    silence(scene, "stuck")
    assert [one.rule for one in silence(scene, for_s=0, by="grace").silences] == ["stuck"]
    assert silenced(scene) == ["stuck"]


def test_silencing_again_counts_from_now(scene: Scene) -> None:
    silence(scene, for_s=600)
    scene.later(10)
    told = silence(scene, for_s=30, by="grace", notes="less")
    assert told.silences == (Silence(rule="backlog", until=scene.at(30), by="grace", notes="less"),)


def test_silences_are_told_by_rule_and_need_no_alert(scene: Scene) -> None:
    for rule in ("stuck", "backlog", "Zebra"):
        silence(scene, rule)
    assert silenced(scene) == ["Zebra", "backlog", "stuck"]


@pytest.mark.requirement("W12")
def test_silencing_is_written_down(scene: Scene) -> None:
    silence(scene, for_s=600.5, notes="we know")
    scene.later(1)
    silence(scene, for_s=0, by="grace")
    ended, begun = scene.audit()
    assert {(record.action, record.target) for record in (begun, ended)} == {("alert_silence", "alert:backlog")}
    assert (begun.by, begun.notes, begun.tenant, begun.before) == ("ada", "we know", None, None)
    assert begun.after == {"until": "2026-03-01T12:10:00.500000Z"}
    assert (ended.by, ended.notes, ended.before, ended.after) == ("grace", None, None, {"until": None})


def test_ending_a_silence_that_is_not_there_writes_nothing(scene: Scene) -> None:
    silence(scene, for_s=0)
    assert scene.audit() == ()
    silence(scene, for_s=10)
    scene.later(10)
    silence(scene, for_s=0)
    assert len(scene.audit()) == 1


def test_a_purge_takes_alerts_and_silences(scene: Scene) -> None:
    save(scene, alert())
    silence(scene)
    scene.run(Purge())
    assert scene.run(ReadAlerts()) == Alerts(alerts=(), silences=())
    assert save(scene, alert()) == (("backlog", "critical"),)
