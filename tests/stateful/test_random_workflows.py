"""Each store beside the model: random graphs and batches whose nodes fail, crash, are cancelled, added and tried again.

They look alike on both. And without the model: no node starts before its parents have ended, or beside itself; none that
has completed runs again, callbacks of batches included, unless a retry asks for it; in the end all have ended, or the
workflow names the dead letters that it waits for.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

from fairlane.core.ids import JobId, WorkerId
from fairlane.core.job import FINAL, Lease
from fairlane.core.ops import Purge, TurnResult
from fairlane.core.workflows import GraphNode, OnFailure
from fairlane.testing.conformance.samples import cancelled, completed, died
from fairlane.testing.conformance.scene import Runs, Scene, wanting
from fairlane.testing.conformance.workflows import Flow
from tests.stateful.test_against_model import COLOURS, LONG_TIMES
from tests.support.stores import Face, Ground, Oracle, open_at

NAMES = "abcde"
EXAMPLES = 40
OUTCOMES: dict[str, Any] = {"complete": completed, "die": died, "stop": cancelled}
ACTS = ("claim", "claim", "claim", *OUTCOMES, "complete", "cancel", "bury", "reprocess", "discard", "resolve")
ACTS += ("retry", "retry", "retry_only", "cancel_workflow", "crash", "late", "add", "add")
ON_FAILURE: tuple[OnFailure, ...] = ("stop", "continue", "compensate")
CALLBACKS: tuple[tuple[str, OnFailure], ...] = (("good", "stop"), ("bad", "compensate"), ("end", "continue"))
MOST_ADDED = 3
LEASE_S = 100.0

Story = list[tuple[str, int]]
"""What happens, each with the place of the node it happens to."""


@st.composite
def graphs(draw: st.DrawFn) -> list[GraphNode]:
    found = [GraphNode(name, (), on_failure, everyone=True) for name, on_failure in draw(callbacks)]
    for place in range(draw(st.integers(2, len(NAMES)))):
        after = draw(st.sets(st.sampled_from(NAMES[:place]), max_size=3)) if place else set()
        found.append(GraphNode(NAMES[place], tuple(sorted(after)), draw(st.sampled_from(ON_FAILURE))))
    return found


callbacks = st.sampled_from(((), (), CALLBACKS, CALLBACKS[2:]))
stories = st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 11)), min_size=15, max_size=40)


class Player:
    """Plays a story on one store, with two workers; what it tells has no numbers of a store's own."""

    def __init__(self, store: Runs, graph: list[GraphNode]) -> None:
        store.run(Purge())
        self.scene = Scene(store)
        self.flow = Flow(self.scene, graph).put()
        self.graph = {node.name: node for node in graph}
        self.workers = [self.scene.hire(LEASE_S), self.scene.hire(LEASE_S)]
        self.running: dict[str, tuple[WorkerId, Lease]] = {}
        self.lost: dict[str, tuple[WorkerId, Lease]] = {}
        self.ended: dict[str, set[str]] = {name: set() for name in self.graph}
        """How each node has ended since it was enqueued, or run again with its workflow."""

    def act(self, act: str, place: int) -> Any:
        flow, scene, name = self.flow, self.scene, list(self.graph)[place % len(self.graph)]
        if act == "claim":
            return self.claim(self.workers[place % 2])
        if act in OUTCOMES:
            return self.settle(act, name)
        if act == "crash":
            return self.crash(place % 2)
        if act == "late":
            return self.settle_late(name)
        if act == "add":
            return self.add(name, place)
        if act == "cancel":
            return scene.cancel(flow.job(name)).refused
        if act == "bury":
            self.lose({flow.job(name)})
            return scene.bury(flow.job(name)).refused
        if act in ("reprocess", "discard", "resolve"):
            return getattr(scene, act)(flow.letter(name)).refused
        told = flow.cancel() if act == "cancel_workflow" else self.retry(act, name)
        return told.refused, told.jobs

    # Workers.

    def claim(self, worker: WorkerId) -> list[str]:
        turned = self.turned(self.scene.turn(worker, wanting(100)))
        for lease in turned.leases:
            self.check_start(lease.type)
            self.running[lease.type] = worker, lease
        return sorted(lease.type for lease in turned.leases)

    def settle(self, act: str, name: str) -> int | None:
        if name not in self.running:
            return None
        worker, lease = self.running.pop(name)
        return len(self.turned(self.scene.settle(worker, OUTCOMES[act](lease))).refused)

    def turned(self, turned: TurnResult) -> TurnResult:
        self.lose({gone.id for gone in turned.reclaimed})
        return turned

    def crash(self, place: int) -> list[str]:
        """One of the workers is not heard of any more."""
        scene, other = self.scene, self.workers[1 - place]
        for _ in range(2):
            scene.renew(other, LEASE_S)
            scene.later(0.6 * LEASE_S)
        scene.renew(other, LEASE_S)
        self.workers[place] = scene.hire(LEASE_S)
        gone = scene.reclaim()
        self.lose({one.id for one in gone})
        return sorted(f"{one.type} {one.became}" for one in gone)

    def lose(self, jobs: set[JobId]) -> None:
        for name in [name for name, (_, lease) in self.running.items() if lease.id in jobs]:
            self.lost[name] = self.running.pop(name)

    def settle_late(self, name: str) -> None:
        if name in self.lost:
            worker, lease = self.lost[name]
            assert self.scene.settle(worker, completed(lease)).refused

    def add(self, name: str, place: int) -> Any:
        """Add a node, behind another or behind none; a running one adds it under its lease."""
        new = GraphNode(f"x{len(self.graph)}", (name,) if place % 4 else (), ON_FAILURE[place % 3])
        if sum(known.startswith("x") for known in self.graph) == MOST_ADDED or self.graph[name].everyone:
            return None
        holder = self.running.get(name) or self.lost.get(name)
        guard = {} if holder is None else dict(zip(("seq", "attempt", "claim_no"), holder[1].key, strict=True))
        told = self.flow.add([new], known=list(self.graph), **guard)
        assert (told.refused == "lease_lost") == (holder is not None and name not in self.running)
        if told.added:
            self.graph[new.name], self.ended[new.name] = new, set()
            assert self.flow.add([new], known=[*self.graph][:-1], **guard).added == 0
        return told

    # People.

    def retry(self, act: str, name: str) -> Any:
        before = {node.name: node.job_id for node in self.flow.nodes()}
        told = getattr(self.flow, act)(name)
        for node in self.flow.nodes():
            if node.job_id != before[node.name]:
                self.ended[node.name].clear()
        return told

    def look(self) -> Any:
        found, statuses = self.flow.see(), self.flow.statuses()
        for name, status in statuses.items():
            if status in FINAL:
                self.ended[name].add(status)
        tally = found.workflow.tally
        assert tally.waiting == list(statuses.values()).count("waiting")
        assert tally.live == sum(status in ("pending", "processing", "retrying") for status in statuses.values())
        return found.workflow.status, tally, len(found.dead), statuses, self.flow.gates()

    # What holds on every store.

    def parents(self, name: str) -> list[str]:
        node = self.graph[name]
        return [one.name for one in self.graph.values() if not one.everyone] if node.everyone else list(node.after)

    def check_start(self, name: str) -> None:
        """It may begin: those it waits for have ended as it wants it, and it neither runs nor has completed."""
        assert name not in self.running, "it runs beside itself"
        assert "completed" not in self.ended[name], "it runs again, and nobody asked for it"
        parents, on_failure, nodes = self.parents(name), self.graph[name].on_failure, self.flow.nodes()
        if on_failure == "stop":
            left = [node for node in nodes if node.name in parents and node.status != "completed"]
            assert all(node.status == "dead" for node in left), "a parent has not completed"
            assert all(self.scene.letter(node.job_seq).status == "resolved" for node in left)
            return
        ends = [self.ended[parent] for parent in parents]
        assert all(ends), "a parent has not ended"
        assert on_failure == "continue" or not ends or any(how - {"completed"} for how in ends), "no parent failed"

    def finish(self) -> None:
        """Run all that may: then everything has ended, or what is waited for is named."""
        while self.running or self.claim(self.workers[0]) or self.flow.advance():
            for name in list(self.running):
                self.settle("complete", name)
            self.look()
        found, statuses = self.flow.see(), self.flow.statuses()
        assert found.workflow.status in ("completed", "failed", "cancelled", "blocked")
        waiting = {name for name, status in statuses.items() if status == "waiting"}
        assert bool(waiting) == (found.workflow.status == "blocked")
        assert found.dead or not waiting, "it waits for nothing"
        assert any(not self.graph[name].everyone for name in waiting) or not {"bad", "end"} & waiting, (
            "a callback was not called"
        )


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
            assert here.act(act, place) == model.act(act, place), (act, place)
            assert here.look() == model.look(), (act, place)
        here.finish()
        model.finish()
        assert here.look() == model.look(), "in the end"

    alike()


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
