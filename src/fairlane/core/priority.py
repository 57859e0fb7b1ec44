"""Priorities: whole numbers, smaller first, with names for the usual ones."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.errors import InvalidOption, UnknownPriority

HIGHEST_NUMBER = 32_767
DEFAULT_LABELS: Mapping[str, int] = {"high": 0, "normal": 5, "low": 10}


class Priorities:
    """The labels an application uses for its priorities."""

    def __init__(self, labels: Mapping[str, int] = DEFAULT_LABELS) -> None:
        given: list[tuple[object, object]] = list(labels.items())
        for label, number in given:
            if not isinstance(label, str) or not label or label.lstrip("-").isdigit():
                raise InvalidOption("priority label", label, "a word, such as high")
            _check_number(f'priority "{label}"', number)
        self._labels = dict(labels)

    @property
    def labels(self) -> Mapping[str, int]:
        return dict(self._labels)

    def resolve(self, priority: str | int) -> int:
        """The number a label or a number stands for."""
        if isinstance(priority, str):
            if priority not in self._labels:
                raise UnknownPriority(priority, self._labels)
            return self._labels[priority]
        return _check_number("priority", priority)


def _check_number(option: str, number: object) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= HIGHEST_NUMBER:
        raise InvalidOption(option, number, f"a label, or a whole number from 0 to {HIGHEST_NUMBER}")
    return number
