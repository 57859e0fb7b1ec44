"""Limits that people set at run time, and which limits are in force for an operation."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlane.core.limits import Limit, LimitsInForce, StoredLimit

read_limit = msgspec.json.Decoder(StoredLimit).decode
_REMEMBERED = 7


class KeptLimits:
    """What people have set, as last read. A script that was sent an older version answers with the newest ones."""

    def __init__(self) -> None:
        self.version = 0
        self._kept: tuple[StoredLimit, ...] = ()
        self._together: list[tuple[tuple[Limit, ...], LimitsInForce]] = []

    def keep(self, version: int, documents: Sequence[bytes]) -> None:
        kept = tuple(read_limit(document) for document in documents)
        self.version, self._kept, self._together = version, kept, []

    def in_force(self, given: tuple[Limit, ...]) -> LimitsInForce | None:
        """What is in force for an operation that brings these; None: nothing at all."""
        if not given and not self._kept:
            return None
        for brought, force in self._together:
            if brought == given:
                return force
        force = LimitsInForce(given, self._kept)
        self._together[:] = [*self._together[-_REMEMBERED:], (given, force)]
        return force
