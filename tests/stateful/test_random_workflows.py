"""Each store beside the model: random graphs whose nodes fail, are cancelled and tried again look alike on both."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from fairlane.core.ops import Purge
from fairlane.core.workflows import GraphNode, OnFailure
from fairlane.testing.conformance.samples import cancelled, completed, died
from fairlane.testing.conformance.scene import Runs, Scene
from fairlane.testing.conformance.workflows import Flow
from tests.stateful.test_against_model import COLOURS, LONG_TIMES
from tests.support.stores import Face, Ground, Oracle, open_at

NAMES = "abcde"
EXAMPLES = 40
OUTCOMES: dict[str, Any] = {"complete": completed, "die": died, "stop": cancelled}
ACTS = ("claim", "claim", "claim", *OUTCOMES, "complete", "cancel", "bury", "reprocess", "discard", "resolve")
ACTS += ("retry", "retry", "retry_only", "cancel_workflow")

Story = list[tuple[str, int]]
"""What happens, each with the place of the node it happens to."""


@st.composite
def graphs(draw: st.DrawFn) -> list[GraphNode]:
    found: list[GraphNode] = []
    for place in range(draw(st.integers(2, len(NAMES)))):
        after = draw(st.sets(st.sampled_from(NAMES[:place]), max_size=3)) if place else set()
        on_failure: OnFailure = draw(st.sampled_from(("stop", "continue", "compensate")))
        found.append(GraphNode(NAMES[place], tuple(sorted(after)), on_failure))
    return found


stories = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, len(NAMES) - 1)), min_size=15, max_size=40)


class Player:
    """Plays a story on one store; what it tells has no numbers of a store's own."""

    def __init__(self, store: Runs, graph: list[GraphNode]) -> None:
        store.run(Purge())
        self.scene = Scene(store)
        self.flow = Flow(self.scene, graph).put()

    def act(self, act: str, name: str) -> Any:
        flow, scene = self.flow, self.scene
        if act == "claim":
            return flow.claim()
        if act in OUTCOMES:
            lease = flow.leases.pop(name, None)
            return lease and flow.worker and len(scene.settle(flow.worker, OUTCOMES[act](lease)).refused)
        if act in ("cancel", "bury"):
            return getattr(scene, act)(flow.job(name)).refused
        if act in ("reprocess", "discard", "resolve"):
            return getattr(scene, act)(flow.letter(name)).refused
        told = flow.cancel() if act == "cancel_workflow" else getattr(flow, act)(name)
        return told.refused, told.jobs

    def look(self) -> Any:
        found = self.flow.see()
        return found.workflow.status, found.workflow.tally, len(found.dead), self.flow.statuses(), self.flow.gates()


def play(store: Runs, examples: int, *, same_every_time: bool) -> None:
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=same_every_time,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(graphs(), stories)
    def alike(graph: list[GraphNode], story: Story) -> None:
        here, model = Player(store, graph), Player(Oracle(), graph)
        for act, place in story:
            name = graph[place % len(graph)].name
            assert here.act(act, name) == model.act(act, name), (act, name)
            assert here.look() == model.look(), (act, name)
            check(here)

    alike()


def check(player: Player) -> None:
    """The figures say what the nodes say."""
    tally, statuses = player.flow.see().workflow.tally, list(player.flow.statuses().values())
    assert tally.waiting == statuses.count("waiting")
    assert tally.live == sum(status in ("pending", "processing", "retrying") for status in statuses)


@pytest.mark.requirement("L18")
def test_a_random_workflow_looks_the_same_in_memory_and_in_the_model(ground: Ground) -> None:
    face = Face(open_at("memory", ""), "sync")
    play(face, EXAMPLES, same_every_time=True)
    face.close()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.requirement("L18")
@pytest.mark.parametrize("kind", COLOURS)
def test_random_workflows_look_the_same_in_a_store_and_in_the_model(ground: Ground, kind: str) -> None:
    face = Face(open_at(kind, ground.address(kind)), COLOURS[kind])
    play(face, LONG_TIMES * 5, same_every_time=False)
    face.close()
