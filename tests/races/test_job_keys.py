"""Many processes that enqueue and run jobs with keys: as many run at once as there are places, and ordered ones in turn."""

from __future__ import annotations

from collections import defaultdict

import msgspec
import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.job_keys import JobKey
from tests.races.track import Track

KEYS = [JobKey(value="customer:1"), JobKey(value="customer:2", running=2), JobKey(value="shop:7", ordered=True)]


@pytest.mark.requirement("D24")
def test_a_key_has_no_more_than_its_places_and_loses_none(track: Track) -> None:
    track.scene.now = SystemClock().now()
    each = 60 if track.is_long else 6
    jobs = 2 * each * track.count
    told = track.race("run_with_keys", keys=[msgspec.to_builtins(key) for key in KEYS], each=each, jobs=jobs)
    ran = [tuple(one) for racer in told for one in racer]
    assert len({number for _, number, *_ in ran}) == len(ran) == jobs
    by_key = defaultdict(list)
    for tenant, number, key, began_s, ended_s in ran:
        by_key[tenant, key].append((began_s, ended_s, number))
    places = {key.value: key.running for key in KEYS}
    for (_, key), spans in by_key.items():
        assert most_at_once(spans) <= places[key], key


def most_at_once(spans: list[tuple[float, float, int]]) -> int:
    changes = sorted([(began_s, 1) for began_s, _, _ in spans] + [(ended_s, -1) for _, ended_s, _ in spans])
    now, most = 0, 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


@pytest.mark.requirement("D24")
def test_an_ordered_key_runs_its_jobs_as_they_were_enqueued(track: Track) -> None:
    track.scene.now = SystemClock().now()
    key, jobs = JobKey(value="shop:7", ordered=True), 300 if track.is_long else 40
    track.scene.put_many(jobs, key=key, correlation_id="shop:7")
    told = track.race("run_with_keys", keys=[msgspec.to_builtins(key)], each=0, jobs=jobs)
    ran = sorted((began_s, number) for racer in told for _, number, _, began_s, _ in racer)
    assert [number for _, number in ran] == sorted(number for _, number in ran)
    assert len(ran) == jobs
