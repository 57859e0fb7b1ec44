"""Workflows on PostgreSQL: how long a graph of 10,000 nodes takes to enqueue, and at what rate it runs beside plain jobs."""

from __future__ import annotations

from statistics import median

from bench.postgres_ground import TYPE, Bench, bench, clock, new_id, specs
from fairlane.core.ops import EnqueueWorkflow
from fairlane.core.workflows import GraphNode, WorkflowId, WorkflowSpec, compile_graph

LAYERS, WIDTH, ROUNDS = 100, 100, 3
ENQUEUE_S, SHARE = 2.0, 0.6
Names = list[list[str]]


def names() -> Names:
    return [[f"{TYPE}-{layer}-{place}" for place in range(WIDTH)] for layer in range(LAYERS)]


def whole_layers() -> list[GraphNode]:
    """Every node waits for the whole layer before its own: 990,000 edges."""
    found = names()
    return [
        GraphNode(name, tuple(found[layer - 1]) if layer else ()) for layer in range(LAYERS) for name in found[layer]
    ]


def chains() -> list[GraphNode]:
    """Every node waits for one of the layer before its own: 9,900 edges."""
    found = names()
    return [
        GraphNode(name, (found[layer - 1][place],) if layer else ())
        for layer in range(LAYERS)
        for place, name in enumerate(found[layer])
    ]


def fill(ground: Bench, graph: list[GraphNode]) -> float:
    """Enqueue a graph in an empty database; seconds, compiling it included."""
    ground.empty()
    ground.raw.execute(
        "truncate fairlane.workflow, fairlane.node, fairlane.gate, fairlane.tally, fairlane.held, fairlane.dead_letter"
    )
    jobs = specs(len(graph))
    began = clock.monotonic()
    compiled = compile_graph(graph)
    spec = WorkflowSpec(id=WorkflowId(new_id()), name="bench", tenant="tenant-00000")
    op = EnqueueWorkflow(workflow=spec, jobs=jobs, nodes=compiled.nodes, gates=compiled.gates)
    assert ground.store.run(op).disposition == "created"
    return clock.monotonic() - began


def main() -> None:
    with bench() as ground:
        for title, graph in (("layers, each after the whole one before", whole_layers()), ("chains", chains())):
            took, shares = [], []
            for _ in range(ROUNDS):
                took.append(fill(ground, graph))
                flow = ground.drain(LAYERS * WIDTH)
                row = ground.raw.execute("select sum(completed) from fairlane.tally").fetchone()
                assert row is not None
                assert row[0] == LAYERS * WIDTH, f"{row[0]} of {LAYERS * WIDTH} nodes have run"
                ground.fill(LAYERS * WIDTH)
                shares.append((flow, ground.drain(LAYERS * WIDTH)))
            share = median(flow / plain for flow, plain in shares)
            told(
                f"100 x 100 {title}: enqueued in",
                f"{median(took):.2f} s",
                f"<= {ENQUEUE_S} s",
                median(took) <= ENQUEUE_S,
            )
            told(
                f"100 x 100 {title}: run at {median(flow for flow, _ in shares):,.0f}/s, share of the rate of plain jobs",
                f"{share:.2f}",
                f">= {SHARE}",
                share >= SHARE,
            )


def told(what: str, found: str, goal: str, is_met: bool) -> None:
    print(f"  {what}: {found}   goal {goal}   {'met' if is_met else 'MISSED'}", flush=True)


if __name__ == "__main__":
    main()
