"""Graphs of workflows: what cannot be run is refused before anything is written, with the path that shows why."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from fairlane.core.workflows import MAX_NODES, GraphNode, compile_graph, find_cycle
from fairlane.errors import InvalidWorkflow

pytestmark = pytest.mark.requirement("L18")

NAMES = "abcdef"


def nodes(parents: dict[str, tuple[str, ...]]) -> list[GraphNode]:
    return [GraphNode(name, after) for name, after in parents.items()]


@pytest.mark.parametrize(
    ("parents", "path"),
    [
        ({"a": ("a",)}, "a -> a"),
        ({"a": ("b",), "b": ("a",)}, "b -> a -> b"),
        ({"z": (), "a": ("z", "c"), "b": ("a",), "c": ("b",), "end": ("c",)}, "b -> c -> a -> b"),
    ],
)
def test_a_cycle_is_refused_with_its_path(parents: dict[str, tuple[str, ...]], path: str) -> None:
    with pytest.raises(InvalidWorkflow, match=re.escape(f"its nodes wait for each other: {path}") + "$"):
        compile_graph(nodes(parents))


@given(st.dictionaries(st.sampled_from(NAMES), st.lists(st.sampled_from(NAMES), max_size=3), min_size=1))
def test_a_graph_is_refused_for_a_cycle_only_if_it_has_one(parents: dict[str, list[str]]) -> None:
    inside = {name: tuple(parent for parent in after if parent in parents) for name, after in parents.items()}
    left = dict(inside)
    while free := [name for name, after in left.items() if not left.keys() & set(after)]:
        left = {name: after for name, after in left.items() if name not in free}
    circle = find_cycle(inside)
    assert bool(circle) == bool(left)
    if not circle:
        assert {node.name for node in compile_graph(nodes(inside)).nodes} == inside.keys()
        return
    assert circle[0] == circle[-1]
    assert all(before in inside[name] for before, name in pairwise(circle))
    with pytest.raises(InvalidWorkflow, match="wait for each other"):
        compile_graph(nodes(inside))


def test_a_parent_that_nobody_added_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidWorkflow, match=r'node "report" is after "fetsh", which was not added\. .*"fetch"'):
        compile_graph(nodes({"fetch": (), "report": ("fetsh",)}))
    assert compile_graph(nodes({"report": ("fetch",)}), known=["fetch"]).behind == (("fetch", 0),)


def test_more_nodes_than_a_workflow_may_have_are_refused() -> None:
    many = [GraphNode(str(n)) for n in range(MAX_NODES)]
    assert len(compile_graph(many).nodes) == MAX_NODES
    for graph, known in (([*many, GraphNode("more")], ()), (many, ("known",))):
        with pytest.raises(InvalidWorkflow, match="it has 100,001 nodes: expected at most 100,000"):
            compile_graph(graph, known)


@pytest.mark.parametrize("name", ["", "x" * 201])
def test_a_node_without_a_fit_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidWorkflow, match="expected 1 to 200 bytes"):
        compile_graph([GraphNode(name)])
