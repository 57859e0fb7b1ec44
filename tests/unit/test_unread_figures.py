"""No figure is there for show: something in the source reads each field of settings, profiles, queues and workers."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from msgspec import Struct

from fairlane.client.settings.model import FROM_PROFILE, Settings
from fairlane.core.breaker import BreakerPolicy
from fairlane.core.profiles import Lane, Profile
from fairlane.core.queues import QueuePolicy
from fairlane.core.retry import Policy, Retry
from fairlane.worker.config import WorkerConfig

SRC = Path(__file__).parents[2] / "src" / "fairlane"

RECEIVERS: dict[type[Struct], set[str]] = {
    Settings: {"settings", "_settings", "Settings()"},
    Profile: {"figures", "profile"},
    QueuePolicy: {"policy", "grants", "queue"},
    WorkerConfig: {"config", "_config"},
    Lane: {"lane", "config"},
    Retry: {"retry", "app"},
    Policy: {"policy"},
    BreakerPolicy: {"policy", "changed", "figures"},
}
"""What holds a value of each class where the source reads it: `settings.url`, `self._settings.url`, `lane.config.slots`.
Reads of `self` count in the class's own methods, except in the checks of its constructor."""


class Read(NamedTuple):
    receiver: str
    field: str
    owner: str | None
    """The class around it, if it reads `self`."""


@cache
def reads() -> set[Read]:
    """Every attribute that the source reads."""
    found: set[Read] = set()
    left: list[tuple[str | None, ast.AST]] = [(None, ast.parse(path.read_text("utf-8"))) for path in SRC.rglob("*.py")]
    while left:
        owner, node = left.pop()
        if isinstance(node, ast.FunctionDef) and node.name == "__post_init__":
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            holder = node.value
            name = (
                holder.id if isinstance(holder, ast.Name) else holder.attr if isinstance(holder, ast.Attribute) else ""
            )
            found.add(Read(name, node.attr, owner if name == "self" else None))
        inside = node.name if isinstance(node, ast.ClassDef) else owner
        left += [(inside, child) for child in ast.iter_child_nodes(node)]
    return found


@pytest.mark.requirement("D17")
@pytest.mark.parametrize("kind", RECEIVERS, ids=lambda kind: kind.__name__)
def test_every_field_is_read_by_something(kind: type[Struct]) -> None:
    read = {read.field for read in reads() if read.receiver in RECEIVERS[kind] or read.owner == kind.__name__}
    if kind is Profile:
        read |= set(FROM_PROFILE)  # by name, into the settings, whose readers count
    assert [field for field in kind.__struct_fields__ if field not in read] == []
