"""Nodes and gates of workflows as scripts/nodes.lua keeps them, and what acts on dead letters mean to nodes."""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
from msgspec import Struct

from fairlane.core.workflows import GateState, Opens
from fairlane.stores.redis.jobs.records import KeptJob
from fairlane.stores.redis.states import node_field
from fairlane.stores.redis.steps import Script, Work

_NODE_FIELD = re.compile(r"node:([0-9a-f]{32}):([0-9]+)\Z")
"""As `node_field` makes it."""


class KeptNode(Struct, frozen=True, kw_only=True):
    name: str
    seq: int
    gate: int | None = None
    counts: list[int] | dict[str, int] = []
    """Lua knows no empty list: it writes an empty table."""
    again: bool | None = None
    skipped: bool = False
    """Its gate ended it, unneeded."""

    @property
    def counts_for(self) -> tuple[int, ...]:
        return tuple(self.counts) if isinstance(self.counts, list) else ()


class KeptGate(Struct, frozen=True, kw_only=True):
    opens: Opens
    waits: int
    failed: int
    counts_for: int | None = None
    everyone: bool | None = None
    state: GateState
    reached: int = -1


read_node = msgspec.msgpack.Decoder(KeptNode).decode
read_gate = msgspec.msgpack.Decoder(KeptGate).decode


def is_waiting(n: int, gate: KeptGate | None) -> bool:
    """Whether a node waits, by the state of its gate."""
    return gate is not None and gate.state != "open" and (gate.state != "opening" or n > gate.reached)


class FoundNode(NamedTuple):
    """The node that a job stood for."""

    workflow: str
    n: int
    node: KeptNode
    gate: KeptGate | None
    is_current: bool
    """The job stands for it still."""

    @property
    def field(self) -> str:
        return node_field(UUID(hex=self.workflow), self.n)

    @property
    def is_waiting(self) -> bool:
        return is_waiting(self.n, self.gate)

    @property
    def may_be_replaced(self) -> bool:
        is_shut = self.gate is not None and self.gate.state in ("closing", "closed", "skipping", "skipped")
        return self.is_current and not is_shut


def find_node(work: Work, found: KeptJob) -> Generator[Script, Any, FoundNode | None]:
    """The node that a job stands, or stood, for; None: it is none."""
    named = _NODE_FIELD.match(found.body.dedup or "")
    if named is None:
        return None
    workflow, number = named.groups()
    [kept] = yield from work.read(("HGET", f"nodes:{workflow}", number))
    if kept is None:
        return None
    node, gate = read_node(kept), None
    if node.gate is not None:
        [raw] = yield from work.read(("HGET", f"gates:{workflow}", node.gate))
        gate = read_gate(raw)
    return FoundNode(workflow, int(number), node, gate, node.seq == found.seq)


def replace_job(work: Work, found: FoundNode) -> None:
    """The job that was created last stands for the node from now on."""
    work.act("replace_job", found.workflow, found.n, 0, True)
    work.act("figure", found.workflow, "dead", -1)
    if found.is_waiting:
        work.act("figure", found.workflow, "waiting", 1)
