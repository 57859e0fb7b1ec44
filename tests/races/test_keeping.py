"""Many processes on one store: each duty taken once, each link used once, no record unsealed, no event missed."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from fairlane.core.audit_chain import seal, verify
from fairlane.core.clock import SystemClock
from fairlane.core.ops import (
    ALL_TENANTS,
    Alert,
    IssueCredential,
    PageAudit,
    ReadAlerts,
    ReadAuditChain,
    ReadEvents,
    ReadStats,
    ReadUnsealed,
    SaveAlerts,
    SealAudit,
)
from fairlane.testing.conformance.scene import Scene
from tests.races.track import Track


@pytest.fixture
def scene(track: Track) -> Scene:
    track.scene.now = SystemClock().now()
    return track.scene


def test_each_duty_is_taken_by_one_of_all_processes(track: Track, scene: Scene) -> None:
    duties = 300 if track.is_long else 40
    taken = [name for racer in track.race("take_duties", duties=duties) for name in racer]
    assert len(taken) == len(set(taken)) == duties


@pytest.mark.requirement("W13")
def test_a_link_tried_by_everyone_at_once_lets_one_in(track: Track, scene: Scene) -> None:
    hashes = [f"{nth:064x}" for nth in range(100 if track.is_long else 30)]
    for one in hashes:
        given = {"kind": "link", "name": "ada", "prefix": "fl_", "roles": ("viewer",), "by": "ada"}
        scene.run(IssueCredential(id=scene.making.job_id(), hash=one, **given))
    redeemed = [one for racer in track.race("redeem_links", hashes=hashes) for one in racer]
    assert sorted(redeemed) == hashes
    records = scene.run(PageAudit(scope=ALL_TENANTS, action="link_redeem", limit=200)).records
    assert len({record.target for record in records}) == len(records) == len(hashes)


@pytest.mark.requirement("W12")
def test_acts_and_sealers_at_once_leave_one_whole_chain(track: Track, scene: Scene) -> None:
    each = 60 if track.is_long else 12
    jobs = [[str(receipt.id) for receipt in scene.put_many(each)] for _ in range(track.count)]
    sealed = sum(track.race("act_and_seal", jobs=jobs))
    while (there := scene.run(ReadUnsealed())).records:
        links = seal(there.last, there.records)
        assert scene.run(SealAudit(links=links)).sealed
        sealed += len(links)
    chain, after = [], 0
    while page := scene.run(ReadAuditChain(after=after, limit=1000)).sealed:
        chain += page
        after = page[-1].link.n
    found = verify(chain)
    assert (found.links, found.broken) == (each * track.count, None)
    assert sealed == each * track.count
    assert len({one.link.audit_id for one in chain}) == each * track.count


@pytest.mark.requirement("I13")
def test_a_watcher_misses_no_event_however_many_tell_at_once(track: Track, scene: Scene) -> None:
    rounds = 100 if track.is_long else 15
    before = scene.run(ReadEvents(scope=ALL_TENANTS)).last
    told = track.race("tell_and_watch", rounds=rounds, after=before)
    events, after = [], before
    while page := scene.run(ReadEvents(scope=ALL_TENANTS, after=after, limit=1000)).events:
        events += [[event.data["who"], event.data["nth"], event.data["part"]] for event in page]
        after = page[-1].id
    assert Counter(map(tuple, events)) == Counter(
        (who, nth, part) for who in range(track.count) for nth in range(rounds) for part in range(2)
    )
    for seen in told:
        assert seen == events[: len(seen)], "an event came to be seen before one that a reader had passed"


def test_an_alert_decided_upon_by_everyone_changes_once_for_each_who_was_first(track: Track, scene: Scene) -> None:
    instants = {"since": scene.now, "fired_at": None, "resolved_at": None}
    first = Alert(rule="r", about="", state="pending", value=0.0, severity="warning", version=1, **instants)
    assert scene.run(SaveAlerts(alerts=(first,))).saved
    saved = sum(track.race("raise_an_alert", rounds=200 if track.is_long else 30))
    [alert] = scene.run(ReadAlerts()).alerts
    assert (alert.version, alert.value) == (1 + saved, float(saved))
    assert saved >= 30


def test_jobs_rolled_up_by_everyone_are_counted_once(track: Track, scene: Scene) -> None:
    jobs = 2000 if track.is_long else 200
    scene.put_many(jobs)
    assert sum(track.race("roll_up", limit=7)) == jobs
    span = timedelta(hours=1)
    rows = scene.run(ReadStats(since=scene.now - span, until=scene.now + span)).rows
    assert sum(row.enqueued for row in rows) == jobs
