"""A copy of a Turn that arrives late, as only a network can deliver it, claims nothing."""

from __future__ import annotations

from contextlib import closing

import pytest

from fairlane.testing.conformance.samples import completed
from fairlane.testing.conformance.scene import Scene, wanting
from tests.support.stores import Ground, open_at


@pytest.mark.requirement("W5")
@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_late_copy_of_a_turn_claims_nothing(ground: Ground, kind: str) -> None:
    with closing(open_at(kind, ground.address(kind))) as store:
        scene = Scene(store)
        scene.put_many(5)
        worker = scene.hire()
        [old] = scene.turn(worker, wanting(1, start=1), claim_no=1).leases
        [new] = scene.turn(worker, wanting(1, start=1), claim_no=2, outcomes=(completed(old),)).leases
        scene.turn(worker, claim_no=3, outcomes=(completed(new),))
        late = scene.turn(worker, wanting(1, start=1), claim_no=1)
        assert (late.leases, late.registered) == ((), True)
        assert len(scene.turn(worker, wanting(9), claim_no=4).leases) == 3
