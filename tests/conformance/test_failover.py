"""A store with a spool beside it answers every enqueue as the store does, while that can be reached."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from fairlane.stores.failover import Failover, Spool
from fairlane.testing.conformance import test_enqueue, test_keys
from tests.support.stores import Face, Ground, open_at

globals().update(
    {
        name: test
        for module in (test_enqueue, test_keys)
        for name, test in vars(module).items()
        if name.startswith("test_")
    }
)


@pytest.fixture(scope="module", params=[("postgres", "async"), ("redis", "sync")], ids="-".join)
def face(request: pytest.FixtureRequest, ground: Ground) -> Iterator[Face]:
    kind, colour = request.param
    face = Face(Failover(open_at(kind, ground.address(kind)), Spool()), colour)
    yield face
    face.close()
