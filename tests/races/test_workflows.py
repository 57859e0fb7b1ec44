"""Many processes end the nodes of the same workflows at once: each gate opens once, each node runs once."""

from __future__ import annotations

import pytest

from fairlane.core.clock import SystemClock
from fairlane.core.workflows import GraphNode
from fairlane.testing.conformance.workflows import Flow
from tests.races.track import Track


@pytest.mark.requirement("L18")
def test_the_last_ends_at_the_same_instant_open_a_gate_once(track: Track) -> None:
    track.scene.now = SystemClock().now()
    rounds = 20 if track.is_long else 4
    layers = {
        f"l{layer}-{n}": [f"l{layer - 1}-{m}" for m in range(6)] if layer else []
        for layer in range(5)
        for n in range(6)
    }
    batch = [GraphNode(f"m{n}") for n in range(70)]
    batch += [GraphNode("good", (), "stop", everyone=True), GraphNode("end", (), "continue", everyone=True)]
    flows = [Flow(track.scene, graph).put() for _ in range(rounds) for graph in (layers, batch)]
    told = track.race("claim_and_complete", batch=2)
    for _ in range(20):  # who found nothing left while others were about to let more go
        if all(flow.status == "completed" for flow in flows):
            break
        told += track.race("claim_and_complete", batch=2)
    claimed = [job for racer in told for job in racer["claimed"]]
    assert len(claimed) == len(set(claimed)) == sum(len(flow.graph) for flow in flows)
    assert {flow.status for flow in flows} == {"completed"}
