"""Racers for every store that several processes may share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.core.ops import Purge
from tests.races.track import Track
from tests.support.scene import Scene
from tests.support.stores import SHARED_KINDS, Face, Ground, ground, open_at

__all__ = ["ground"]

QUICK, LONG = 5, 16
FIELDS = [(kind, QUICK) for kind in SHARED_KINDS] + [
    pytest.param((kind, LONG), marks=[pytest.mark.long, pytest.mark.timeout(1800)]) for kind in SHARED_KINDS
]


@pytest.fixture(scope="module", params=FIELDS, ids=lambda field: f"{field[0]}-{field[1]}")
def field(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Track]:
    """A store of its own and processes waiting at the start."""
    kind, count = request.param
    with Track(kind, ground.address(kind), count) as started:
        yield started


@pytest.fixture
def track(field: Track) -> Iterator[Track]:
    """The same with the store emptied, and a face of our own to look at it."""
    face = Face(open_at(field.kind, field.address), "sync")
    face.run(Purge())
    field.scene = Scene(face)
    yield field
    face.close()
