"""Signals emitted before, while and after jobs go to wait for them, by eight processes: each arrives, once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.ops import Deliver
from fairlane.testing.conformance.samples import completed
from tests.races.conftest import prepared
from tests.races.track import Racers, Track
from tests.support.stores import SHARED_KINDS, Ground

PROCESSES, EMITTERS, JOBS = 8, 4, 60


@pytest.fixture(params=SHARED_KINDS)
def eight(request: pytest.FixtureRequest, ground: Ground, racers: Racers) -> Iterator[Track]:
    yield from prepared(Track(racers, request.param, ground.address(request.param), PROCESSES))


@pytest.mark.requirement("L18")
def test_no_signal_is_lost_and_none_arrives_twice(eight: Track) -> None:
    scene = eight.scene
    scene.now = SystemClock().now()
    jobs = scene.put_many(JOBS, tenant="acme")
    eight.race("wait_or_emit", seqs=[job.seq for job in jobs], emitters=EMITTERS)
    scene.now = SystemClock().now()
    while scene.run(Deliver()).more:
        continue
    for job in jobs:
        detail = scene.find(job.id)
        assert detail is not None
        assert detail.waits_for is None
        assert [(step.n, step.name, step.result) for step in detail.steps] == [(1, "paid", str(job.seq))]
    worker = scene.hire(600)
    while leases := scene.claim(worker, 50):
        scene.settle(worker, *map(completed, leases))
    assert {scene.status(job.id) for job in jobs} == {"completed"}
