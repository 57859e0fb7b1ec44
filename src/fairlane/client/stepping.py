"""Decisions that ask the store in between, written once for sync and async code: a generator yields operations and is sent their answers."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from fairlane.client.opening import StoreAccess
from fairlane.core.ops import Op

T = TypeVar("T")
Steps = Generator[Op[Any], Any, T]


def run_steps(access: StoreAccess, steps: Steps[T]) -> T:
    try:
        op = next(steps)
        while True:
            op = steps.send(access.run(op))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


async def arun_steps(access: StoreAccess, steps: Steps[T]) -> T:
    try:
        op = next(steps)
        while True:
            op = steps.send(await access.arun(op))
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
