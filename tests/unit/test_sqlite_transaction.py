"""Every operation has one function that answers it, with the type that the operation promises."""

from __future__ import annotations

from typing import Any, get_type_hints

import pytest

from fairlane.core import ops
from fairlane.core.ops import Check, Op
from fairlane.stores.sqlite import MemoryStore as MemoryStore
from fairlane.stores.sqlite.transaction import HANDLERS, is_change

OPERATIONS: list[type[Op[Any]]] = [
    kind for kind in vars(ops).values() if isinstance(kind, type) and issubclass(kind, Op) and hasattr(kind, "answer")
]


def test_every_operation_is_answered() -> None:
    assert len(OPERATIONS) > 70
    assert {*HANDLERS, Check} == {*OPERATIONS}


@pytest.mark.parametrize("kind", HANDLERS, ids=lambda kind: kind.__name__)
def test_a_function_answers_what_its_operation_promises(kind: type[Op[Any]]) -> None:
    assert get_type_hints(HANDLERS[kind])["return"] == kind.answer


def test_events_are_written_only_where_there_are_any_or_somebody_watches() -> None:
    reads = ops.ReadEvents(scope=ops.ALL_TENANTS)
    assert not is_change(reads)
    assert is_change(ops.ReadEvents(scope=ops.ALL_TENANTS, watch=True))
    assert not is_change(ops.AddEvents())
    assert is_change(ops.AddEvents(events=(ops.EventDraft(kind="job_completed"),)))
