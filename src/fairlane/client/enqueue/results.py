"""Results of other nodes among the arguments of a call: what stands for them until the job runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fairlane.core.workflows import RESULT_KEY


class Result:
    """Stands for what a node of a workflow returns."""

    __slots__ = ("_owner", "name")

    def __init__(self, owner: object, name: str) -> None:
        self._owner, self.name = owner, name

    def __repr__(self) -> str:
        return f"<result of {self.name}>"


def result_names(value: object) -> Iterator[Result]:
    """Those within a value, also in lists, tuples and dicts."""
    if isinstance(value, Result):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from result_names(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from result_names(one)


def without_results(value: Any) -> Any:
    """The value as it is stored: each result by the name of its node."""
    if isinstance(value, Result):
        return {RESULT_KEY: value.name}
    if isinstance(value, dict):
        return {name: without_results(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [without_results(one) for one in value]
    return value
