"""Registers which function answers which operation: the one its parameter `op` is annotated with.

@change
def cancel(tx: Transaction, op: Cancel) -> JobAct: ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from fairlane.core.ops import Op
from fairlane.stores.sqlite.transaction import Transaction

Handler = Callable[[Transaction, Any], object]
H = TypeVar("H", bound=Handler)

HANDLERS: dict[type[Op[Any]], Handler] = {}
_WRITES: dict[type[Op[Any]], Callable[[Any], bool]] = {}


def reading(handler: H) -> H:
    """It changes nothing, and waits for no writer."""
    HANDLERS[_operation(handler)] = handler
    return handler


def change(handler: H) -> H:
    """It runs in a write transaction."""
    return change_if(lambda op: True)(handler)


def change_if(writes: Callable[[Any], bool]) -> Callable[[H], H]:
    """It runs in a write transaction for the operations that `writes` is true of."""

    def register(handler: H) -> H:
        _WRITES[_operation(handler)] = writes
        return reading(handler)

    return register


def is_change(op: Op[Any]) -> bool:
    return type(op) in _WRITES and _WRITES[type(op)](op)


def _operation(handler: Handler) -> type[Op[Any]]:
    operation: type[Op[Any]] = handler.__globals__[handler.__annotations__["op"]]
    return operation
