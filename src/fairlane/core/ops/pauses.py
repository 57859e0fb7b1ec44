"""Pauses of queues, types and tenants: no worker claims their jobs until they are lifted.

Enqueueing continues, unless a pause refuses it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from msgspec import Struct

from fairlane.core.ops.base import Act, Op

PauseKind = Literal["queue", "type", "tenant"]


class Pause(Struct, frozen=True, kw_only=True):
    kind: PauseKind
    name: str
    by: str
    at: datetime
    notes: str | None
    refuse: bool = False
    """Enqueues of its jobs are refused."""


class Pauses(Struct, frozen=True, kw_only=True):
    pauses: tuple[Pause, ...]
    """By kind, then name."""
    changed: bool = False


class PauseClaims(Act[Pauses], frozen=True, kw_only=True):
    """From this commit on no Turn claims jobs of this queue, type or tenant; leased ones continue.

    A claim treats jobs of a paused type as unwanted, passes over lines of a paused tenant unseen (no mark, no turn),
    and skips a paused queue, for takes as for discovery.

    With `refuse`, every `Enqueue` that starts after this commit and holds such a job is refused.

    Pausing twice writes nothing, but `refuse` is added to a pause that lacks it: then by, at and notes are the new
    ones. Audit: `pause`, target `<kind>:<name>`, tenant only for a tenant, before {"paused"}, after {"paused": true},
    each with "refuse": true where it refuses.
    """

    kind: PauseKind
    name: str
    refuse: bool = False


class ResumeClaims(Act[Pauses], frozen=True, kw_only=True):
    """Lift a pause; resuming what is not paused writes nothing. Audit: `resume`, likewise. Wakes waiting workers."""

    kind: PauseKind
    name: str


class ListPauses(Op[Pauses], frozen=True, kw_only=True):
    """Every pause, by kind and name."""
