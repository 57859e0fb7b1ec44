"""Payload versions: how an old job's payload is brought to the shape today's code expects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fairlane.errors import InvalidOption, InvalidPayload

Payload = dict[str, Any]
Upcast = Callable[[Payload], Payload]

HIGHEST_VERSION = 32_767


class Upcasters:
    """One step per task and version, each from a version to the next."""

    def __init__(self) -> None:
        self._steps: dict[tuple[str, int], Upcast] = {}

    def register(self, task: str, from_version: int) -> Callable[[Upcast], Upcast]:
        """Decorate the function that turns a payload of `from_version` into the next version's."""
        check_version(from_version)
        if (task, from_version) in self._steps:
            raise InvalidOption("from_version", from_version, f'no second upcaster for "{task}" from this version')

        def keep(step: Upcast) -> Upcast:
            self._steps[task, from_version] = step
            return step

        return keep

    def missing(self, task: str, version: int, target: int) -> list[int]:
        """The versions from `version` up to `target` that have no upcaster."""
        return [step for step in range(version, target) if (task, step) not in self._steps]

    def upcast(self, task: str, payload: Payload, version: int, target: int) -> Payload:
        """The payload at version `target`, from `version` up. Steps may change the one given in place."""
        if missing := self.missing(task, version, target):
            steps = ", ".join(f"{step} to {step + 1}" for step in missing[:10])
            raise InvalidPayload(
                task, [f"no upcaster from version {steps}: register one with from_version={missing[0]}"]
            )
        for step in range(version, target):
            payload = self._steps[task, step](payload)
            if not isinstance(payload, dict):
                raise InvalidPayload(task, [f"the upcaster from version {step} must return a dict"])
        return payload


def check_version(version: object) -> int:
    if isinstance(version, bool) or not isinstance(version, int) or not 1 <= version <= HIGHEST_VERSION:
        raise InvalidOption("payload_version", version, f"a whole number from 1 to {HIGHEST_VERSION}")
    return version
