"""Racers for every store that several processes may share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.core.ops import Purge
from fairlane.testing.conformance.scene import Scene
from tests.races.track import Racers, Track
from tests.support.stores import SHARED_KINDS, Face, Ground, ground, open_at

__all__ = ["ground"]

QUICK, LONG = 5, 16
FIELDS = [(kind, QUICK) for kind in SHARED_KINDS] + [
    pytest.param((kind, LONG), marks=[pytest.mark.long, pytest.mark.timeout(1800)]) for kind in SHARED_KINDS
]


@pytest.fixture(scope="session")
def racers() -> Iterator[Racers]:
    racers = Racers()
    yield racers
    racers.close()


@pytest.fixture(scope="module", params=FIELDS, ids=lambda field: f"{field[0]}-{field[1]}")
def field(request: pytest.FixtureRequest, ground: Ground, racers: Racers) -> Track:
    """A store of its own, and processes for it."""
    kind, count = request.param
    return Track(racers, kind, ground.address(kind), count)


@pytest.fixture
def track(field: Track) -> Iterator[Track]:
    """The same with the store emptied, and a face of our own to look at it."""
    yield from prepared(field)


def prepared(track: Track) -> Iterator[Track]:
    face = Face(open_at(track.kind, track.address), "sync")
    face.run(Purge())
    track.scene = Scene(face)
    yield track
    face.close()
