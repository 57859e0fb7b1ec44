"""Results of other nodes among the arguments of a call: what stands for them until the job runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlane.core.workflows import RESULT_KEY

DEEPEST = 100
"""Levels that are looked through: more than a payload may have, and an end for what holds itself."""


class Result:
    """Stands for what a node of a workflow returns."""

    __slots__ = ("_owner", "name")

    def __init__(self, owner: object, name: str) -> None:
        self._owner, self.name = owner, name

    def __repr__(self) -> str:
        return f"<result of {self.name}>"


def result_names(value: object, deep: int = DEEPEST) -> Iterator[Result]:
    """Those within a value, also in lists, tuples and dicts."""
    if isinstance(value, Result):
        yield value
    elif deep and isinstance(value, dict | list | tuple):
        for one in value.values() if isinstance(value, dict) else value:
            yield from result_names(one, deep - 1)


def with_owner(value: Any, owner: object, prefix: str, deep: int = DEEPEST) -> Any:
    """The value with each result as one of the node of that name behind `prefix`, of another workflow."""
    if isinstance(value, Result):
        return Result(owner, prefix + value.name)
    if deep and isinstance(value, dict):
        return {name: with_owner(one, owner, prefix, deep - 1) for name, one in value.items()}
    if deep and isinstance(value, list | tuple):
        return [with_owner(one, owner, prefix, deep - 1) for one in value]
    return value


def without_results(value: Any, deep: int = DEEPEST) -> Any:
    """The value as it is stored: each result by the name of its node."""
    if isinstance(value, Result):
        return {RESULT_KEY: value.name}
    if deep and isinstance(value, dict):
        return {name: without_results(one, deep - 1) for name, one in value.items()}
    if deep and isinstance(value, list | tuple):
        return [without_results(one, deep - 1) for one in value]
    return value
