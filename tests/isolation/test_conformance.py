"""The contract of a store holds on an isolated one, reached by roles that may only call functions: the same tests, another way in."""

from __future__ import annotations

from types import ModuleType

from fairlane.testing.conformance import (
    test_by_hand,
    test_cancel,
    test_claim,
    test_dead_letters,
    test_enqueue,
    test_limits,
    test_schedules,
    test_scope,
    test_settle,
)


def _tests_of(*modules: ModuleType) -> dict[str, object]:
    return {
        f"{name}__{module.__name__.rpartition('.')[2]}": value
        for module in modules
        for name, value in vars(module).items()
        if name.startswith("test_") and callable(value)
    }


globals().update(
    _tests_of(
        *(test_claim, test_settle, test_enqueue, test_dead_letters, test_cancel, test_by_hand, test_scope),
        *(test_limits, test_schedules),
    )
)
del test_by_hand, test_cancel, test_claim, test_dead_letters, test_enqueue, test_limits, test_schedules, test_scope
del test_settle
