"""The graph of a workflow as geometry for SVG: boxes in layers, and the lines between them.

Many nodes in a layer are drawn as one box for each task, and many layers as one box: a drawing has at most
MOST_LAYERS × MOST_ABREAST boxes, however large the workflow. Short workflows go from left to right, long ones down.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from msgspec import Struct
from msgspec.structs import replace

from fairlane.client.admin.workflows import WorkflowGraph
from fairlane.core.text import printable
from fairlane.core.workflows import Node, layers
from fairlane.web.formats import span

MOST_LAYERS = 40
MOST_ABREAST = 12
MOST_LINES = 1_000
"""With more lines between its boxes, a drawing is folded further."""
FEW_ABREAST = 4
ACROSS_UP_TO = 5
"""Layers that are drawn from left to right."""
WIDE, HIGH, GAP, AISLE, EDGE = 184, 50, 14, 44, 8
MOST_LETTERS = 22
ORDER = ("dead", "failed", "cancelled", "processing", "pending", "waiting", "completed")
"""What a box of several nodes is coloured by: the first that one of them is in."""


class Box(Struct, frozen=True, kw_only=True):
    """One node, or several that are drawn as one."""

    names: tuple[str, ...]
    type: str
    label: str
    state: str
    says: str
    job_id: str | None
    x: float = 0
    y: float = 0


class Drawing(Struct, frozen=True, kw_only=True):
    width: float
    height: float
    boxes: tuple[Box, ...]
    lines: str
    """The path of all lines."""
    is_folded: bool


def state_of(node: Node) -> str:
    return "waiting" if node.waiting else node.status


def took_s(node: Node) -> float | None:
    if node.started_at is None or node.finished_at is None:
        return None
    return max((node.finished_at - node.started_at).total_seconds(), 0.0)


def draw(graph: WorkflowGraph) -> Drawing:
    nodes = {node.name: node for node in graph.nodes}
    by_layer = [[nodes[name] for name in layer] for layer in layers(graph.parents)]
    found = _fold(by_layer, MOST_ABREAST)
    pairs = _pairs(found, graph.parents)
    if len(pairs) > MOST_LINES:
        found = _fold(by_layer, FEW_ABREAST)
        pairs = _pairs(found, graph.parents)
    found = _untangled(found, pairs)
    is_across = len(found) <= ACROSS_UP_TO
    placed, width, height = _place(found, is_across=is_across)
    return Drawing(
        width=width,
        height=height,
        boxes=tuple(placed.values()),
        lines="".join(_line(placed[one], placed[other], is_across=is_across) for one, other in sorted(pairs)),
        is_folded=any(len(box.names) > 1 for box in placed.values()),
    )


def _fold(by_layer: Sequence[Sequence[Node]], most: int) -> list[list[Box]]:
    if len(by_layer) > MOST_LAYERS:
        half = MOST_LAYERS // 2
        middle = by_layer[half : len(by_layer) - half + 1]
        between = [node for layer in middle for node in layer]
        folded = _together(between, f"{len(middle):,} layers")
        return [*_fold(by_layer[:half], most), [folded], *_fold(by_layer[len(by_layer) - half + 1 :], most)]
    return [_fold_layer(layer, most) for layer in by_layer]


def _fold_layer(layer: Sequence[Node], most: int) -> list[Box]:
    if len(layer) <= most:
        return [_alone(node) for node in layer]
    by_type = [list(group) for _, group in groupby(sorted(layer, key=lambda node: node.type), lambda node: node.type)]
    shown = by_type if len(by_type) <= most else by_type[: most - 1]
    boxes = [_alone(group[0]) if len(group) == 1 else _together(group) for group in shown]
    rest = [node for group in by_type[len(shown) :] for node in group]
    return [*boxes, _together(rest, "other tasks")] if rest else boxes


def _alone(node: Node) -> Box:
    return Box(
        names=(node.name,),
        type=node.type,
        label=_short(node.name),
        state=state_of(node),
        says=state_of(node) + (f" in {span(took)}" if (took := took_s(node)) is not None else ""),
        job_id=str(node.job_id),
    )


def _together(nodes: Sequence[Node], what: str | None = None) -> Box:
    counts = Counter(state_of(node) for node in nodes)
    first = [state for state in ORDER if counts[state]]
    types = {node.type for node in nodes}
    what = what or nodes[0].type.rpartition(".")[2]
    return Box(
        names=tuple(node.name for node in nodes),
        type=types.pop() if len(types) == 1 else "",
        label=_short(f"{len(nodes):,} × {what}"),
        state=first[0],
        says=_short(", ".join(f"{counts[state]:,} {state}" for state in first), 30),
        job_id=None,
    )


def _short(given: str, most: int = MOST_LETTERS) -> str:
    text = printable(given)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _pairs(boxes: Sequence[Sequence[Box]], parents: Mapping[str, Sequence[str]]) -> set[tuple[str, str]]:
    """The boxes that are joined, each by the name of its first node."""
    box_of = {name: box.names[0] for layer in boxes for box in layer for name in box.names}
    # The nodes behind one gate have one tuple of parents: of a layer after a layer it is looked through once.
    joined = {(id(after), box_of[name]): after for name, after in parents.items() if after}
    found = {(box_of[parent], box) for (_, box), after in joined.items() for parent in after}
    return {(one, other) for one, other in found if one != other}


def _untangled(boxes: Sequence[Sequence[Box]], pairs: Iterable[tuple[str, str]]) -> list[list[Box]]:
    """Each layer in the order of what it waits for: fewer lines cross."""
    parents: dict[str, list[str]] = {}
    for parent, name in pairs:
        parents.setdefault(name, []).append(parent)
    place: dict[str, float] = {}
    found = []
    for layer in boxes:
        middle = (len(layer) - 1) / 2

        def weight(box: Box) -> float:
            over = [place[parent] for parent in parents.get(box.names[0], ())]
            return sum(over) / len(over) if over else 0.0

        ordered = sorted(layer, key=weight)
        place.update({box.names[0]: index - middle for index, box in enumerate(ordered)})
        found.append(ordered)
    return found


def _place(boxes: Sequence[Sequence[Box]], *, is_across: bool) -> tuple[dict[str, Box], float, float]:
    """The boxes with their places, each layer in the middle; and how large the drawing is."""
    most = max(len(layer) for layer in boxes)
    along, beside = (WIDE + AISLE, HIGH + GAP) if is_across else (HIGH + AISLE, WIDE + GAP)
    placed = {}
    for number, layer in enumerate(boxes):
        for index, box in enumerate(layer):
            far, side = EDGE + number * along, EDGE + ((most - len(layer)) / 2 + index) * beside
            x, y = (far, side) if is_across else (side, far)
            placed[box.names[0]] = replace(box, x=round(x, 1), y=round(y, 1))
    length, breadth = 2 * EDGE + len(boxes) * along - AISLE, 2 * EDGE + most * beside - GAP
    return placed, *((length, breadth) if is_across else (breadth, length))


def _line(one: Box, other: Box, *, is_across: bool) -> str:
    if is_across:
        x, y, to_x, to_y = one.x + WIDE, one.y + HIGH / 2, other.x, other.y + HIGH / 2
        return f"M{x:g} {y:g}C{x + AISLE / 2:g} {y:g} {to_x - AISLE / 2:g} {to_y:g} {to_x:g} {to_y:g}"
    x, y, to_x, to_y = one.x + WIDE / 2, one.y + HIGH, other.x + WIDE / 2, other.y
    return f"M{x:g} {y:g}C{x:g} {y + AISLE / 2:g} {to_x:g} {to_y - AISLE / 2:g} {to_x:g} {to_y:g}"
